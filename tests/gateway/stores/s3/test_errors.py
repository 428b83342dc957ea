"""S3's answers become errors of this project."""

from __future__ import annotations

import socket
from typing import Any

import pytest
from botocore.exceptions import ClientError

from skyplane_gateway.common import errors
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.stores.registry import open_without_retries
from skyplane_gateway.stores.s3.errors import translate

DATE = "Tue, 02 Jan 2024 03:04:05 GMT"


def answered(status: int, code: str, headers: dict[str, str] | None = None) -> errors.SkyplaneError:
    answer: Any = {
        "Error": {"Code": code},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers or {}},
    }
    return translate(ClientError(answer, "PutObject"), "writing s3://bkt/k")


@pytest.mark.parametrize(
    ("status", "code", "kind", "is_permanent"),
    [
        (301, "PermanentRedirect", errors.StoreError, True),
        (400, "ExpiredToken", errors.CredentialsExpired, False),
        (400, "TokenRefreshRequired", errors.CredentialsExpired, False),
        (400, "InvalidToken", errors.Unauthenticated, True),
        (400, "BadDigest", errors.ChecksumMismatch, False),
        (400, "InvalidDigest", errors.ChecksumMismatch, False),
        (400, "XAmzContentSHA256Mismatch", errors.ChecksumMismatch, False),
        (400, "XAmzContentChecksumMismatch", errors.ChecksumMismatch, False),
        (400, "IncompleteBody", errors.StoreUnavailable, False),
        (400, "InvalidPart", errors.ChecksumMismatch, False),
        (400, "KeyTooLongError", errors.InvalidKey, True),
        (400, "EntityTooSmall", errors.StoreError, True),
        (401, "", errors.Unauthenticated, True),
        (403, "AccessDenied", errors.PermissionDenied, True),
        (403, "InvalidObjectState", errors.NotRestored, True),
        (403, "InvalidAccessKeyId", errors.Unauthenticated, True),
        (403, "SignatureDoesNotMatch", errors.Unauthenticated, True),
        (403, "SomethingNew", errors.PermissionDenied, True),
        (404, "NoSuchBucket", errors.NotFound, True),
        (404, "NoSuchUpload", errors.NotFound, True),
        (404, "404", errors.NotFound, True),
        (408, "", errors.StoreUnavailable, False),
        (409, "ConditionalRequestConflict", errors.PreconditionFailed, False),
        (412, "PreconditionFailed", errors.PreconditionFailed, True),
        (412, "412", errors.PreconditionFailed, True),
        (429, "TooManyRequests", errors.Throttled, False),
        (503, "SlowDown", errors.Throttled, False),
        (503, "SomethingNew", errors.Throttled, False),
        (503, "ServiceUnavailable", errors.StoreUnavailable, False),
        (500, "InternalError", errors.StoreUnavailable, False),
        (502, "SomethingNew", errors.StoreUnavailable, False),
        (200, "SomethingNew", errors.StoreError, False),
    ],
)
def test_an_answer_has_one_error(
    status: int, code: str, kind: type[errors.SkyplaneError], is_permanent: bool
) -> None:
    found = answered(status, code)
    assert (type(found), found.is_permanent) == (kind, is_permanent)
    assert found.message.startswith(f"writing s3://bkt/k: {code or status}")


@pytest.mark.parametrize(
    ("status", "code", "headers", "seconds"),
    [
        (503, "SlowDown", {"retry-after": "7"}, 7.0),
        (429, "TooManyRequests", {"retry-after": "0"}, 0.0),
        (429, "", {"retry-after": "2"}, 2.0),
        (503, "ServiceUnavailable", {"retry-after": "4"}, 4.0),
        (503, "SlowDown", {"date": DATE, "retry-after": DATE.replace("05 GMT", "35 GMT")}, 30.0),
        (503, "SlowDown", {"retry-after": DATE}, None),
        (503, "SlowDown", {"retry-after": "soon"}, None),
        (503, "SlowDown", {}, None),
    ],
)
def test_retry_after_is_seconds_or_a_date(
    status: int, code: str, headers: dict[str, str], seconds: float | None
) -> None:
    found = answered(status, code, headers)
    assert isinstance(found, errors.Throttled)
    assert found.retry_after_s == seconds


def test_an_endpoint_without_a_server_is_unavailable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        credentials = Credentials({"access_key_id": "a", "secret_access_key": "b"})
        store = open_without_retries(StoreSpec("s3", "bkt", url, "us-east-1"), credentials)
        with pytest.raises(errors.StoreUnavailable, match="cannot be reached") as caught:
            store.check()
    assert url in caught.value.message
