"""Answers of Azure become this project's errors by their codes, and say what to do."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    CredentialsExpired,
    InvalidKey,
    NotFound,
    NotRestored,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
    Throttled,
    Unauthenticated,
)
from skyplane_gateway.common.objects import Credentials, StoreSpec
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.registry import open_without_retries

KEY = Credentials({"account_key": "a2V5"})
DATE = "Mon, 23 Nov 2026 10:00:00 GMT"
DATE_UNIX_S = 1_795_428_000


def opened(url: str, credentials: Credentials = KEY) -> ObjectStore:
    return open_without_retries(StoreSpec("azure", "acct/box", url), credentials)


def failure(
    scripted: Any,
    reply: Any,
    status: int,
    code: str,
    credentials: Credentials = KEY,
    header: tuple[str, str] = ("X-Other", ""),
) -> StoreError:
    headers = {"x-ms-error-code": code, header[0]: header[1]}
    scripted.replies.append(reply(status, headers=headers))
    store = opened(scripted.url, credentials)
    with pytest.raises(StoreError) as caught:
        store.put("k", b"x")
    store.close()
    assert len(scripted.requests) == 1
    return caught.value


@pytest.mark.parametrize(
    ("status", "code", "kind", "advice", "is_permanent"),
    [
        (404, "ContainerNotFound", NotFound, "check the name", True),
        (403, "AuthenticationFailed", Unauthenticated, "clock", True),
        (401, "NoAuthenticationInformation", Unauthenticated, "renew or correct", True),
        (403, "AuthorizationPermissionMismatch", PermissionDenied, "Data Contributor", True),
        (403, "AuthorizationFailure", PermissionDenied, "role", True),
        (409, "PublicAccessNotPermitted", PermissionDenied, "anonymous=true", True),
        (403, "KeyBasedAuthenticationNotPermitted", PermissionDenied, "account keys", True),
        (409, "BlobImmutableDueToPolicy", PermissionDenied, "immutability policy", True),
        (412, "LeaseIdMissing", PermissionDenied, "lease", True),
        (409, "BlobArchived", NotRestored, "rehydrate", True),
        (409, "SnapshotsPresent", StoreError, "snapshots", True),
        (409, "InvalidBlobType", StoreError, "append blob", True),
        (400, "InvalidBlobOrBlock", StoreError, "another program", True),
        (400, "MetadataTooLarge", StoreError, "metadata", True),
        (409, "BlobAlreadyExists", PreconditionFailed, "another writer", True),
        (412, "ConditionNotMet", PreconditionFailed, "another writer", True),
        (412, "SomethingNew", PreconditionFailed, "another writer", True),
        (400, "Crc64Mismatch", ChecksumMismatch, "send them again", False),
        (400, "Md5Mismatch", ChecksumMismatch, "send them again", False),
        (400, "InvalidMd5", ChecksumMismatch, "send them again", False),
        (400, "InvalidBlockList", ChecksumMismatch, "upload the object again", False),
        (400, "InvalidResourceName", InvalidKey, "name", True),
        (500, "InternalError", StoreUnavailable, "try again", False),
        (500, "SomethingNew", StoreUnavailable, "try again", False),
        (400, "SomethingNew", StoreError, "refuses", True),
    ],
)
def test_a_code_has_one_meaning(
    scripted: Any,
    reply: Any,
    status: int,
    code: str,
    kind: type[StoreError],
    advice: str,
    is_permanent: bool,
) -> None:
    error = failure(scripted, reply, status, code)
    assert type(error) is kind
    assert error.is_permanent is is_permanent
    assert code in error.message
    assert advice in error.message
    assert "writing az://acct/box/k" in error.message


def test_a_busy_service_names_the_pause(scripted: Any, reply: Any) -> None:
    error = failure(scripted, reply, 503, "ServerBusy", header=("Retry-After", "7"))
    assert isinstance(error, Throttled)
    assert error.retry_after_s == 7


@pytest.mark.parametrize(("expires", "kind"), [(-1, CredentialsExpired), (9, Unauthenticated)])
def test_a_token_has_expired_by_the_clock_of_the_service(
    scripted: Any, reply: Any, expires: int, kind: type[StoreError]
) -> None:
    token = Credentials({"bearer_token": "t", "expires_at": str(DATE_UNIX_S + expires)})
    error = failure(scripted, reply, 401, "InvalidAuthenticationInfo", token, ("Date", DATE))
    assert type(error) is kind


def test_a_signature_tells_its_own_expiry(scripted: Any, reply: Any) -> None:
    sas = Credentials({"sas_token": "?sv=2023&se=2026-11-23T09%3A59%3A59Z&sig=x"})
    error = failure(scripted, reply, 403, "AuthenticationFailed", sas, ("Date", DATE))
    assert isinstance(error, CredentialsExpired)
    assert scripted.requests[0].path == "/acct/box/k?sv=2023&se=2026-11-23T09%3A59%3A59Z&sig=x"


def test_a_closed_port_is_no_endpoint(unused_port_url: str) -> None:
    store = opened(unused_port_url)
    with pytest.raises(StoreUnavailable, match="cannot be reached"):
        store.head("k")
