"""From what boto3 raises to this project's errors: by code and status, never by text."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    SSLError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)
from botocore.exceptions import (
    ConnectionError as BotoConnectionError,
)

from skyplane_gateway.errors import (
    ChecksumMismatch,
    ConfigurationInvalid,
    CredentialsExpired,
    InvalidKey,
    NotFound,
    NotRestored,
    PermissionDenied,
    PreconditionFailed,
    SkyplaneError,
    StoreError,
    StoreUnavailable,
    Throttled,
    Unauthenticated,
)

_NOT_FOUND = {"NoSuchBucket", "NoSuchKey", "NoSuchUpload", "NoSuchVersion", "NotFound"}
_DENIED = {"AccessDenied", "AllAccessDisabled", "AccountProblem"}
_UNAUTHENTICATED = {
    "AuthorizationHeaderMalformed",
    "InvalidAccessKeyId",
    "InvalidClientTokenId",
    "InvalidToken",
    "NotSignedUp",
    "RequestTimeTooSkewed",
    "SignatureDoesNotMatch",
    "XAdminUserNotFound",  # versitygw's name for an unknown access key
}
#: Of credentials that were good. `InvalidToken` is not among them: S3 says so of one that
#: is malformed or of another service.
_EXPIRED = {"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired"}
_THROTTLED = {
    "BandwidthLimitExceeded",
    "RequestLimitExceeded",
    "SlowDown",
    "SlowDownRead",
    "SlowDownWrite",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
    "TooManyRequestsException",
}
_BAD_DIGEST = {"BadDigest", "InvalidDigest", "XAmzContentChecksumMismatch"}
#: Of a completion: the store does not have what it acknowledged.
_BAD_PART = {"InvalidPart", "InvalidPartOrder"}
_BAD_KEY = {
    "InvalidObjectName",
    "KeyTooLongError",
    # Servers on a file system, where a name is either a file or a directory.
    "DirectoryObjectContainsData",
    "ExistingObjectIsDirectory",
    "ObjectParentIsFile",
    "XMinioInvalidObjectName",
    "XMinioObjectExistsAsDirectory",
    "XMinioParentIsObject",
}
_WRONG_REGION = {"PermanentRedirect", "IllegalLocationConstraintException"}
_TRANSIENT = {"RequestTimeout", "InternalError", "ServiceUnavailable", "OperationAborted"}
_NO_CREDENTIALS = (
    CredentialRetrievalError,
    NoCredentialsError,
    PartialCredentialsError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)


def code_of(error: ClientError) -> str:
    """S3's error code; the HTTP status as text where the answer had no body (HEAD)."""
    return str(error.response.get("Error", {}).get("Code", ""))


def status_of(error: ClientError) -> int:
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


@contextmanager
def mapped(what: str) -> Iterator[None]:
    """Raise this project's error for what boto3 raises inside.

    Args:
        what: what was being done to which object of which endpoint, for the message.
    """
    try:
        yield
    except (ClientError, BotoCoreError) as error:
        raise translate(error, what) from error


def translate(error: ClientError | BotoCoreError, what: str) -> SkyplaneError:
    """The leaf of the error tree for one of boto3's exceptions."""
    if isinstance(error, ClientError):
        return _from_answer(error, what)
    if isinstance(error, _NO_CREDENTIALS):
        return Unauthenticated(
            f"{what}: there are no usable credentials; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or give this location a profile or a connection"
        )
    if isinstance(error, ProfileNotFound):
        return ConfigurationInvalid(f"{what}: there is no such credentials profile; check its name")
    if isinstance(error, ParamValidationError):
        return StoreError(f"{what}: S3 cannot take this request ({error})", is_permanent=True)
    if isinstance(error, SSLError):
        return StoreUnavailable(
            f"{what}: the endpoint's certificate was not accepted; check the endpoint's name and "
            "the CA bundle (AWS_CA_BUNDLE)",
            is_permanent=True,
        )
    if isinstance(error, HTTPClientError | BotoConnectionError):
        return StoreUnavailable(
            f"{what}: the endpoint cannot be reached or does not answer ({type(error).__name__}); "
            "check the endpoint and the network"
        )
    return StoreError(f"{what}: {type(error).__name__}: {error}")


def _from_answer(error: ClientError, what: str) -> StoreError:
    code, status = code_of(error), status_of(error)
    said = f"{what}: {code or status}"
    retry_after_s = _retry_after(error)
    asks_to_wait = code not in _TRANSIENT or retry_after_s is not None
    if code in _THROTTLED or (status in (429, 503) and asks_to_wait):
        return Throttled(f"{said}; the store asks for fewer requests", retry_after_s=retry_after_s)
    by_code = _by_code(code, said)
    return by_code if by_code is not None else _by_status(status, said, error)


def _retry_after(error: ClientError) -> float | None:
    """`Retry-After` (RFC 9110, 10.2.3): seconds, or a date, which the answer's own dates."""
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    text = headers.get("retry-after", "")
    if text.isdecimal():
        return float(text)
    try:
        until, now = parsedate_to_datetime(text), parsedate_to_datetime(headers.get("date", ""))
        return max(0.0, (until - now).total_seconds())
    except (TypeError, ValueError):
        return None


def _by_code(code: str, said: str) -> StoreError | None:
    if code in _NOT_FOUND:
        return NotFound(f"{said}; check the name, or it was deleted meanwhile")
    if code in _DENIED:
        return PermissionDenied(f"{said}; grant these credentials the permission for it")
    if code == "InvalidObjectState":
        return NotRestored(
            f"{said}; the object is archived (Glacier, Deep Archive or an archive tier): restore "
            "it (aws s3api restore-object), then copy again"
        )
    if code in _EXPIRED:
        return CredentialsExpired(
            f"{said}; these credentials were good and have expired: renew them, then go on"
        )
    if code in _UNAUTHENTICATED:
        return Unauthenticated(
            f"{said}; the store does not accept these credentials: renew or correct them"
        )
    if code == "PreconditionFailed":
        return PreconditionFailed(f"{said}; somebody wrote or changed the object meanwhile")
    if code == "ConditionalRequestConflict":
        return PreconditionFailed(
            f"{said}; another write of the same object was going on: begin again",
            is_permanent=False,
        )
    if code in _BAD_DIGEST:
        return ChecksumMismatch(f"{said}; the bytes changed on the way: send them again")
    if code in _BAD_PART:
        return ChecksumMismatch(f"{said}; the store has not kept a part: upload the object again")
    if code in _BAD_KEY:
        return InvalidKey(f"{said}; the store cannot hold an object of this name")
    if code in _WRONG_REGION:
        return StoreError(
            f"{said}; the bucket is in another region: give the location's region",
            is_permanent=True,
        )
    if code in _TRANSIENT:
        return StoreUnavailable(f"{said}; try again")
    return None


def _by_status(status: int, said: str, error: ClientError) -> StoreError:
    if status == 404:
        return NotFound(f"{said}; check the name, or it was deleted meanwhile")
    if status == 403:
        return PermissionDenied(f"{said}; grant these credentials the permission for it")
    if status == 401:
        return Unauthenticated(f"{said}; the store does not accept these credentials")
    if status == 412:
        return PreconditionFailed(f"{said}; somebody wrote or changed the object meanwhile")
    if status in (301, 307):
        return StoreError(
            f"{said}; the bucket is in another region: give the location's region",
            is_permanent=True,
        )
    if status >= 500 or status == 408:
        return StoreUnavailable(f"{said}; try again")
    message = error.response.get("Error", {}).get("Message", "")
    # A 200 with an error inside is the store's fault; a 4xx is the request's.
    return StoreError(f"{said} ({message})", is_permanent=400 <= status < 500)
