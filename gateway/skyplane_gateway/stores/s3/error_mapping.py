"""Maps boto3's exceptions to this project's errors, by code and status, never by text."""

from __future__ import annotations

from typing import Final

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectionError as BotoConnectionError,
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

from skyplane_gateway.common.errors import (
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
    Unauthenticated,
)
from skyplane_gateway.stores.error_rules import (
    Meaning,
    Refusal,
    mapping,
    not_trusted,
    retry_after_s,
    unreachable,
)
from skyplane_gateway.stores.response_validation import unavailable
from skyplane_gateway.stores.s3.sdk import BadAnswer

_THROTTLED: Final = (
    "BandwidthLimitExceeded RequestLimitExceeded SlowDown SlowDownRead SlowDownWrite "
    "Throttling ThrottlingException TooManyRequests TooManyRequestsException"
)
_TRANSIENT: Final = "InternalError OperationAborted RequestTimeout ServiceUnavailable"

#: A code decides before a status does.
_MEANINGS: Final = (
    Meaning(
        NotFound,
        "check the name, or it was deleted meanwhile",
        "NoSuchBucket NoSuchKey NoSuchUpload NoSuchVersion NotFound",
        (404,),
    ),
    Meaning(
        PermissionDenied,
        "grant these credentials the permission for it",
        "AccessDenied AccountProblem AllAccessDisabled",
        (403,),
    ),
    Meaning(
        NotRestored,
        "the object is archived (Glacier, Deep Archive or an archive tier): restore it "
        "(aws s3api restore-object), then copy again",
        "InvalidObjectState",
    ),
    Meaning(
        CredentialsExpired,
        "these credentials have expired: renew them, then continue",
        # Not `InvalidToken`: S3 answers that to a malformed token or one of another service.
        "ExpiredToken ExpiredTokenException RequestExpired TokenRefreshRequired",
    ),
    Meaning(
        Unauthenticated,
        "the store does not accept these credentials: renew or correct them",
        # XAdminUserNotFound: versitygw's name for an unknown access key.
        "AuthorizationHeaderMalformed InvalidAccessKeyId InvalidClientTokenId InvalidToken "
        "NotSignedUp SignatureDoesNotMatch XAdminUserNotFound",
        (401,),
    ),
    Meaning(
        Unauthenticated,
        "the clock of this machine is wrong, not the credentials: set it by NTP",
        "RequestTimeTooSkewed",
    ),
    Meaning(
        PreconditionFailed,
        "another writer wrote or changed the object meanwhile",
        "PreconditionFailed",
        (412,),
    ),
    Meaning(
        PreconditionFailed,
        "another write of the same object was in progress: begin again",
        "ConditionalRequestConflict",
        is_permanent=False,
    ),
    Meaning(
        ChecksumMismatch,
        "the bytes changed on the way: send them again",
        "BadDigest InvalidDigest XAmzContentChecksumMismatch XAmzContentSHA256Mismatch",
    ),
    Meaning(
        ChecksumMismatch,
        "the store has lost a part: upload the object again",
        "InvalidPart InvalidPartOrder",
    ),
    Meaning(
        InvalidKey,
        "the store cannot hold an object of this name",
        # The last six: servers on a file system, where a name is a file or a directory.
        "InvalidObjectName KeyTooLongError DirectoryObjectContainsData ExistingObjectIsDirectory "
        "ObjectParentIsFile XMinioInvalidObjectName XMinioObjectExistsAsDirectory "
        "XMinioParentIsObject",
    ),
    Meaning(
        StoreError,
        "the bucket is in another region: give the location's region",
        "PermanentRedirect IllegalLocationConstraintException",
        (301, 307),
        is_permanent=True,
    ),
    Meaning(
        StoreError,
        "the server does not offer this request",
        "NotImplemented",
        (501,),
        is_permanent=True,
    ),
    Meaning(StoreUnavailable, "try again", f"{_TRANSIENT} IncompleteBody", (408,)),
)


class StaleCredentials(BotoCoreError):
    """A refresh gave credentials that have expired; botocore has a RuntimeError for it."""

    fmt = "the refreshed credentials have expired"


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


def translate(error: ClientError | BotoCoreError, what: str) -> SkyplaneError:
    """The leaf of the error tree for one of boto3's exceptions."""
    if isinstance(error, ClientError):
        return _from_answer(error, what)
    if isinstance(error, BadAnswer):
        return unavailable(what, error)
    if isinstance(error, _NO_CREDENTIALS):
        return Unauthenticated(
            f"{what}: there are no usable credentials; set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY, or give this location a profile or a connection"
        )
    if isinstance(error, StaleCredentials):
        return CredentialsExpired(
            f"{what}: the refreshed credentials have expired already: renew them at their source "
            "(aws sso login, or the program or role that gives them), or set this machine's clock"
        )
    if isinstance(error, ProfileNotFound):
        return ConfigurationInvalid(f"{what}: there is no such credentials profile; check its name")
    if isinstance(error, ParamValidationError):
        return StoreError(f"{what}: S3 does not accept this request ({error})", is_permanent=True)
    if isinstance(error, SSLError):
        return not_trusted(what, error, "AWS_CA_BUNDLE")
    if isinstance(error, HTTPClientError | BotoConnectionError):
        return unreachable(what, error)
    return StoreError(f"{what}: {type(error).__name__}: {error}")


mapped: Final = mapping(translate, ClientError, BotoCoreError)


def _from_answer(error: ClientError, what: str) -> StoreError:
    code, status = code_of(error), status_of(error)
    headers = error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    asks_to_wait = code not in _TRANSIENT.split() or retry_after_s(headers) is not None
    is_throttling = code in _THROTTLED.split() or (status in (429, 503) and asks_to_wait)
    message = error.response.get("Error", {}).get("Message", "")
    refusal = Refusal(status, headers, code, message)
    return refusal.error(_MEANINGS, f"{what}: {code or status}", is_throttling=is_throttling)
