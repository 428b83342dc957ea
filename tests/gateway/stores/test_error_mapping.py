"""Answers of the services become errors of this project: by code, then by status."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Mapping
from email.utils import formatdate
from functools import partial
from typing import Any

import google.auth.exceptions
import pytest
import requests
import urllib3
from botocore.exceptions import ClientError, SSLError as BotoSslError
from tests.gateway.stores.scripted import Reply, ScriptedServer
from tests.ports import free_port

from skyplane_gateway.common import errors
from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.stores.azure import error_mapping as azure
from skyplane_gateway.stores.gcs import error_mapping as gcs
from skyplane_gateway.stores.gcs.store import GcsStore
from skyplane_gateway.stores.registry import open_without_retries
from skyplane_gateway.stores.s3 import error_mapping as s3

WHAT = "writing k"
DATE = "Mon, 23 Nov 2026 10:00:00 GMT"
DATE_UNIX_S = 1_795_428_000
#: Any: google-auth's functions have no types.
auth_errors: Any = google.auth.exceptions


def refusal(reason: str, message: str = "no") -> bytes:
    """Of Google's JSON API."""
    rows = [{"domain": "global", "reason": reason, "message": message}]
    return json.dumps({"error": {"code": 0, "message": message, "errors": rows}}).encode()


def refused(
    kind: str, status: int, code: str, headers: Mapping[str, str] | None = None, **more: Any
) -> errors.SkyplaneError:
    headers = dict(headers or {})
    if kind == "s3":
        meta = {"HTTPStatusCode": status, "HTTPHeaders": headers}
        answer: Any = {"Error": {"Code": code}, "ResponseMetadata": meta}
        return s3.translate(ClientError(answer, "PutObject"), WHAT)
    if kind == "azure":
        headers["x-ms-error-code"] = code
        return azure.translate(azure.Refused(status, headers, **more), WHAT)
    body = refusal(code, "lacks a.permission") if code else b"<html>"
    return gcs.from_refusal(status, headers, body, WHAT, **{"is_renewable": False, **more})


#: Status, code, error, whether that is permanent, and a part of its advice.
S3: list[tuple[int, str, type, bool, str]] = [
    (301, "PermanentRedirect", errors.StoreError, True, "region"),
    (400, "ExpiredToken", errors.CredentialsExpired, False, "renew"),
    (400, "TokenRefreshRequired", errors.CredentialsExpired, False, "renew"),
    (400, "InvalidToken", errors.Unauthenticated, True, "correct"),
    (400, "BadDigest", errors.ChecksumMismatch, False, "send them again"),
    (400, "InvalidDigest", errors.ChecksumMismatch, False, "send them again"),
    (400, "XAmzContentSHA256Mismatch", errors.ChecksumMismatch, False, "send them again"),
    (400, "XAmzContentChecksumMismatch", errors.ChecksumMismatch, False, "send them again"),
    (400, "IncompleteBody", errors.StoreUnavailable, False, "try again"),
    (400, "InvalidPart", errors.ChecksumMismatch, False, "upload the object again"),
    (400, "KeyTooLongError", errors.InvalidKey, True, "name"),
    (400, "EntityTooSmall", errors.StoreError, True, "refuses"),
    (401, "", errors.Unauthenticated, True, "correct"),
    (403, "AccessDenied", errors.PermissionDenied, True, "grant"),
    (403, "InvalidObjectState", errors.NotRestored, True, "restore it"),
    (403, "InvalidAccessKeyId", errors.Unauthenticated, True, "correct"),
    (403, "SignatureDoesNotMatch", errors.Unauthenticated, True, "correct"),
    (403, "SomethingNew", errors.PermissionDenied, True, "grant"),
    (404, "NoSuchBucket", errors.NotFound, True, "check the name"),
    (404, "NoSuchUpload", errors.NotFound, True, "check the name"),
    (404, "404", errors.NotFound, True, "check the name"),
    (408, "", errors.StoreUnavailable, False, "try again"),
    (409, "ConditionalRequestConflict", errors.PreconditionFailed, False, "begin again"),
    (412, "PreconditionFailed", errors.PreconditionFailed, True, "another writer"),
    (412, "412", errors.PreconditionFailed, True, "another writer"),
    (429, "TooManyRequests", errors.Throttled, False, "fewer"),
    (503, "SlowDown", errors.Throttled, False, "fewer"),
    (503, "SomethingNew", errors.Throttled, False, "fewer"),
    (503, "ServiceUnavailable", errors.StoreUnavailable, False, "try again"),
    (500, "InternalError", errors.StoreUnavailable, False, "try again"),
    (502, "SomethingNew", errors.StoreUnavailable, False, "try again"),
    (200, "SomethingNew", errors.StoreError, False, "refuses"),
]
GCS: list[tuple[int, str, type, bool, str]] = [
    (404, "notFound", errors.NotFound, True, "soft-deleted"),
    (403, "forbidden", errors.PermissionDenied, True, "lacks a.permission"),
    (403, "retentionPolicyNotMet", errors.PermissionDenied, True, "retention"),
    (403, "objectUnderActiveHold", errors.PermissionDenied, True, "hold"),
    (403, "userRateLimitExceeded", errors.Throttled, False, "fewer"),
    (412, "conditionNotMet", errors.PreconditionFailed, True, "another writer"),
    (409, "conflict", errors.PreconditionFailed, False, "begin again"),
    (429, "rateLimitExceeded", errors.Throttled, False, "fewer"),
    (503, "backendError", errors.Throttled, False, "fewer"),
    (500, "internalError", errors.StoreUnavailable, False, "try again"),
    (502, "", errors.StoreUnavailable, False, "try again"),
    (408, "", errors.StoreUnavailable, False, "try again"),
    (401, "authError", errors.Unauthenticated, True, "credentials"),
    (400, "userProjectMissing", errors.StoreError, True, "give the option user_project"),
    (400, "userProjectInvalid", errors.StoreError, True, "names no project"),
    (403, "UserProjectAccessDenied", errors.PermissionDenied, True, "lacks a.permission"),
    (403, "UserProjectAccountProblem", errors.PermissionDenied, True, "billing"),
    (403, "accountDisabled", errors.PermissionDenied, True, "billing"),
    (
        400,
        "resourceIsEncryptedWithCustomerEncryptionKey",
        errors.PermissionDenied,
        True,
        "not supported",
    ),
    (400, "crcMismatch", errors.ChecksumMismatch, False, "send them again"),
    (400, "BadDigest", errors.ChecksumMismatch, False, "send them again"),
    (400, "invalid", errors.StoreError, True, "lacks a.permission"),
    (302, "", errors.StoreError, False, "302"),
]
AZURE: list[tuple[int, str, type, bool, str]] = [
    (404, "ContainerNotFound", errors.NotFound, True, "check the name"),
    (403, "AuthenticationFailed", errors.Unauthenticated, True, "clock"),
    (401, "NoAuthenticationInformation", errors.Unauthenticated, True, "renew or correct"),
    (403, "AuthorizationPermissionMismatch", errors.PermissionDenied, True, "Data Contributor"),
    (403, "AuthorizationFailure", errors.PermissionDenied, True, "role"),
    (409, "PublicAccessNotPermitted", errors.PermissionDenied, True, "anonymous=true"),
    (403, "KeyBasedAuthenticationNotPermitted", errors.PermissionDenied, True, "account keys"),
    (409, "BlobImmutableDueToPolicy", errors.PermissionDenied, True, "immutability policy"),
    (412, "LeaseIdMissing", errors.PermissionDenied, True, "lease"),
    (409, "BlobArchived", errors.NotRestored, True, "rehydrate"),
    (409, "SnapshotsPresent", errors.StoreError, True, "snapshots"),
    (409, "InvalidBlobType", errors.StoreError, True, "append blob"),
    (400, "InvalidBlobOrBlock", errors.StoreError, True, "another program"),
    (400, "MetadataTooLarge", errors.StoreError, True, "metadata"),
    (409, "BlobAlreadyExists", errors.PreconditionFailed, True, "another writer"),
    (412, "ConditionNotMet", errors.PreconditionFailed, True, "another writer"),
    (412, "SomethingNew", errors.PreconditionFailed, True, "another writer"),
    (400, "Crc64Mismatch", errors.ChecksumMismatch, False, "send them again"),
    (400, "Md5Mismatch", errors.ChecksumMismatch, False, "send them again"),
    (400, "InvalidMd5", errors.ChecksumMismatch, False, "send them again"),
    (400, "InvalidBlockList", errors.ChecksumMismatch, False, "upload the object again"),
    (400, "InvalidResourceName", errors.InvalidKey, True, "name"),
    (503, "ServerBusy", errors.Throttled, False, "fewer"),
    (500, "InternalError", errors.StoreUnavailable, False, "try again"),
    (500, "SomethingNew", errors.StoreUnavailable, False, "try again"),
    (400, "SomethingNew", errors.StoreError, True, "refuses"),
]


@pytest.mark.parametrize(
    ("kind", "status", "code", "leaf", "is_permanent", "advice"),
    [(kind, *row) for kind, rows in (("s3", S3), ("gcs", GCS), ("azure", AZURE)) for row in rows],
)
def test_an_answer_has_one_error(
    kind: str, status: int, code: str, leaf: type, is_permanent: bool, advice: str
) -> None:
    found = refused(kind, status, code)
    assert (type(found), found.is_permanent) == (leaf, is_permanent)
    assert found.message.startswith(f"{WHAT}: {code or status}" if kind != "gcs" else WHAT)
    assert advice in found.message


@pytest.mark.parametrize(
    ("status", "code", "headers", "seconds"),
    [
        (503, "SlowDown", {"retry-after": "7"}, 7.0),
        (429, "TooManyRequests", {"retry-after": "0"}, 0.0),
        (429, "", {"retry-after": "2"}, 2.0),
        (503, "ServiceUnavailable", {"retry-after": "4"}, 4.0),
        (503, "SlowDown", {"date": DATE, "retry-after": DATE.replace("00 GMT", "30 GMT")}, 30.0),
        (503, "SlowDown", {"retry-after": DATE}, None),
        (503, "SlowDown", {"retry-after": "soon"}, None),
        (503, "SlowDown", {}, None),
    ],
)
@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_retry_after_is_seconds_or_a_date(
    kind: str, status: int, code: str, headers: dict[str, str], seconds: float | None
) -> None:
    found = refused(kind, status, code, headers)
    assert isinstance(found, errors.Throttled)
    assert found.retry_after_s == seconds


@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
def test_an_endpoint_without_a_server_is_unavailable(kind: str) -> None:
    key = {"access_key_id": "a", "secret_access_key": "b", "account_key": "a2V5"}
    bucket = "acct/box" if kind == "azure" else "bkt"
    url = f"http://127.0.0.1:{free_port()}"
    spec = StoreSpec(kind, bucket, url, "us-east-1")
    store = open_without_retries(spec, None if kind == "gcs" else Credentials(key))
    with pytest.raises(errors.StoreUnavailable, match="cannot be reached") as caught:
        store.head("k")
    assert url in caught.value.message
    store.close()


# ------------------------------------------------------------------ clocks


@pytest.mark.parametrize(
    ("kind", "status", "code", "more", "leaf"),
    [
        ("s3", 403, "RequestTimeTooSkewed", {}, errors.Unauthenticated),
        ("s3", 403, "SignatureDoesNotMatch", {}, errors.Unauthenticated),
        ("s3", 400, "ExpiredToken", {}, errors.CredentialsExpired),
        ("s3", 400, "RequestExpired", {}, errors.CredentialsExpired),
        ("azure", 403, "AuthenticationFailed", {}, errors.Unauthenticated),
        ("azure", 401, "InvalidAuthenticationInfo", {}, errors.Unauthenticated),
        ("gcs", 401, "", {}, errors.Unauthenticated),
        ("gcs", 401, "", {"is_renewable": True}, errors.CredentialsExpired),
    ],
)
@pytest.mark.parametrize("ahead_s", [86_400, -1200, 30])
def test_a_refusal_of_credentials_names_the_clock(
    kind: str, status: int, code: str, more: dict[str, Any], leaf: type, ahead_s: int
) -> None:
    date = formatdate(time.time() - ahead_s, usegmt=True)
    error = refused(kind, status, code, {"date": date}, **more)
    assert type(error) is leaf
    if ahead_s == 30:
        assert " the store's: set it" not in error.message
        return
    side = "ahead of" if ahead_s > 0 else "behind"
    assert f" s {side} the store's: set it" in error.message


def test_a_skewed_time_is_not_a_matter_of_credentials() -> None:
    error = refused("s3", 403, "RequestTimeTooSkewed")
    assert "the clock of this machine is wrong" in error.message
    assert "renew" not in error.message


@pytest.mark.parametrize("kind", ["s3", "gcs", "azure"])
@pytest.mark.parametrize(
    ("code", "said"),
    [(9, "is not valid yet by this machine's clock"), (10, "has expired by"), (20, "CA bundle")],
)
def test_a_certificate_that_is_not_valid_now(kind: str, code: int, said: str) -> None:
    unverified = ssl.SSLCertVerificationError(1, "certificate verify failed")
    unverified.verify_code = code
    cause = urllib3.exceptions.SSLError(unverified)
    if kind == "s3":
        try:
            raise BotoSslError(endpoint_url="https://x", error=cause) from cause
        except BotoSslError as error:
            found = s3.translate(error, WHAT)
    elif kind == "gcs":
        retry = urllib3.exceptions.MaxRetryError(Any, "https://x", cause)  # type: ignore[arg-type]
        found = gcs.translate(requests.exceptions.SSLError(retry), WHAT)
    else:
        found = azure.translate(cause, WHAT)
    assert said in found.message
    assert found.is_permanent


# ------------------------------------------------------------------ Azure


@pytest.mark.parametrize(
    ("after_s", "leaf"), [(-1, errors.CredentialsExpired), (9, errors.Unauthenticated)]
)
def test_a_token_has_expired_by_the_clock_of_the_service(after_s: int, leaf: type) -> None:
    more = {"expires_unix_s": DATE_UNIX_S + after_s}
    error = refused("azure", 401, "InvalidAuthenticationInfo", {"date": DATE}, **more)
    assert type(error) is leaf


def test_a_signature_tells_its_own_expiry(scripted: ScriptedServer) -> None:
    sas = Credentials({"sas_token": "?sv=2023&se=2026-11-23T09%3A59%3A59Z&sig=x"})
    scripted.replies.append(Reply(403, headers={"x-ms-error-code": "No", "Date": DATE}))
    store = open_without_retries(StoreSpec("azure", "acct/box", scripted.url), sas)
    with pytest.raises(errors.CredentialsExpired, match="writing az://acct/box/k"):
        store.put("k", b"x")
    store.close()
    assert scripted.requests[0].path == "/acct/box/k?sv=2023&se=2026-11-23T09%3A59%3A59Z&sig=x"


# ------------------------------------------------------------------ Google


@pytest.mark.parametrize("verb", ["put", "part"])
@pytest.mark.parametrize("kind", ["CRC32C", "MD5 hash"])
def test_bytes_that_changed_on_the_way_are_sent_again(
    scripted: ScriptedServer, verb: str, kind: str
) -> None:
    """The service has no reason of its own for it."""
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    message = f'Provided {kind} "AAAA" doesn\'t match calculated {kind} "BBBB".'
    scripted.replies.append(Reply(400, refusal("invalid", message)))
    send: Callable[..., object] = partial(store.put, "k", b"body")
    if verb == "part":
        send = partial(store.put_part, "k", "0" * 32, 1, b"body", offset=0)
    with pytest.raises(errors.ChecksumMismatch, match=r"send them again.*Provided") as caught:
        send(crc32c=crc32c(b"body"))
    assert not caught.value.is_permanent


def test_a_wrong_checksum_is_told_from_other_bad_requests(scripted: ScriptedServer) -> None:
    """A refusal that names a field is not about the bytes."""
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    error = {"reason": "invalid", "message": "no", "locationType": "parameter", "location": "x"}
    body = json.dumps({"error": {"code": 400, "message": "no", "errors": [error]}}).encode()
    scripted.replies += [Reply(400, body), Reply(400, refusal("invalid", "too long"))]
    with pytest.raises(errors.StoreError) as caught:
        store.put("k", b"body", crc32c=crc32c(b"body"))
    assert (type(caught.value), caught.value.is_permanent) == (errors.StoreError, True)
    with pytest.raises(errors.ChecksumMismatch):
        store.put("k", b"body", crc32c=1)


def test_an_answer_of_the_xml_api_is_read_too(scripted: ScriptedServer) -> None:
    details = b"<Details>x lacks storage.objects.get</Details>"
    scripted.replies.append(Reply(403, b"<Error><Code>AccessDenied</Code>%b</Error>" % details))
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    said = r"reading gs://bkt/k at http://.*AccessDenied.*objects\.get"
    with pytest.raises(errors.PermissionDenied, match=said):
        store.read("k", offset=0, length=1, if_match=None)


def test_a_token_of_limited_life_is_renewed(scripted: ScriptedServer) -> None:
    scripted.replies.append(Reply(401, refusal("authError")))
    credentials = Credentials({"access_token": "t", "expires_at": "1"})
    with pytest.raises(errors.CredentialsExpired):
        GcsStore(StoreSpec("gcs", "bkt", scripted.url), credentials).head("k")
    assert scripted.requests[0].headers["authorization"] == "Bearer t"


@pytest.mark.parametrize(
    ("error", "leaf"),
    [
        (auth_errors.DefaultCredentialsError(), errors.Unauthenticated),
        (auth_errors.RefreshError("revoked"), errors.Unauthenticated),
        (auth_errors.RefreshError("later", retryable=True), errors.StoreUnavailable),
        (auth_errors.TransportError("no route"), errors.StoreUnavailable),
    ],
)
def test_errors_of_credentials(error: Exception, leaf: type) -> None:
    assert type(gcs.translate(error, WHAT)) is leaf
