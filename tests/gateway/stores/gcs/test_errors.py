"""Answers of Google Cloud Storage as errors of this project: by reason, then by status."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import google.auth.exceptions
import pytest

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    CredentialsExpired,
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
    StoreUnavailable,
    Throttled,
    Unauthenticated,
)
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.stores import StoreSpec
from skyplane_gateway.stores.gcs.errors import refusal_of, translate
from skyplane_gateway.stores.gcs.store import GcsStore

#: Any: google-auth's functions have no types.
auth_errors: Any = google.auth.exceptions


def refusal(reason: str, message: str = "no") -> bytes:
    errors = [{"domain": "global", "reason": reason, "message": message}]
    return json.dumps({"error": {"code": 0, "message": message, "errors": errors}}).encode()


@pytest.mark.parametrize(
    ("status", "body", "kind", "is_permanent", "said"),
    [
        (404, refusal("notFound"), NotFound, True, "check the name"),
        (
            403,
            refusal("forbidden", "lacks storage.objects.get"),
            PermissionDenied,
            True,
            "objects.get",
        ),
        (403, refusal("retentionPolicyNotMet"), PermissionDenied, True, "retention"),
        (403, refusal("objectUnderActiveHold"), PermissionDenied, True, "hold"),
        (403, refusal("userRateLimitExceeded"), Throttled, False, "fewer"),
        (412, refusal("conditionNotMet"), PreconditionFailed, True, "another writer"),
        (409, refusal("conflict"), PreconditionFailed, False, "begin again"),
        (429, refusal("rateLimitExceeded"), Throttled, False, "fewer"),
        (503, refusal("backendError"), Throttled, False, "fewer"),
        (500, refusal("internalError"), StoreUnavailable, False, "try again"),
        (502, b"<html>", StoreUnavailable, False, "try again"),
        (408, b"", StoreUnavailable, False, "try again"),
        (401, refusal("authError"), Unauthenticated, True, "credentials"),
        (400, refusal("userProjectMissing"), StoreError, True, "give the option user_project"),
        (400, refusal("userProjectInvalid"), StoreError, True, "names no project"),
        (
            403,
            refusal("UserProjectAccessDenied", "lacks serviceusage.services.use"),
            PermissionDenied,
            True,
            r"serviceusage\.services\.use",
        ),
        (403, refusal("UserProjectAccountProblem"), PermissionDenied, True, "billing"),
        (403, refusal("accountDisabled"), PermissionDenied, True, "billing"),
        (
            400,
            refusal("resourceIsEncryptedWithCustomerEncryptionKey"),
            PermissionDenied,
            True,
            "not supported",
        ),
        (404, refusal("notFound"), NotFound, True, "soft-deleted"),
        (400, refusal("invalid", "a long story"), StoreError, True, "a long story"),
        (302, b"", StoreError, False, "302"),
    ],
)
def test_answers(
    scripted: Any,
    reply: Any,
    status: int,
    body: bytes,
    kind: type[StoreError],
    is_permanent: bool,
    said: str,
) -> None:
    scripted.replies.append(reply(status, body))
    with pytest.raises(kind, match=said) as caught:
        GcsStore(StoreSpec("gcs", "bkt", scripted.url)).head("k")
    assert type(caught.value) is kind
    assert caught.value.is_permanent is is_permanent
    assert "looking at gs://bkt/k at http://" in caught.value.message


def mismatch(kind: str) -> bytes:
    """As the service says it: it has no reason of its own for it."""
    return refusal("invalid", f'Provided {kind} "AAAA" doesn\'t match calculated {kind} "BBBB".')


@pytest.mark.parametrize("verb", ["put", "part"])
@pytest.mark.parametrize("body", [mismatch("CRC32C"), mismatch("MD5 hash")])
def test_bytes_that_changed_on_the_way_are_sent_again(
    scripted: Any, reply: Any, verb: str, body: bytes
) -> None:
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    scripted.replies.append(reply(400, body))
    arguments: dict[str, Any] = {"crc32c": crc32c(b"body")}
    if verb == "put":
        send: Any = partial(store.put, "k", b"body", **arguments)
    else:
        send = partial(store.put_part, "k", "0" * 32, 1, b"body", offset=0, **arguments)
    with pytest.raises(ChecksumMismatch, match="send them again") as caught:
        send()
    assert not caught.value.is_permanent
    assert "Provided" in caught.value.message


def test_a_refusal_that_names_a_field_is_not_about_the_bytes(scripted: Any, reply: Any) -> None:
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    error = {"reason": "invalid", "message": "no", "locationType": "parameter", "location": "x"}
    body = json.dumps({"error": {"code": 400, "message": "no", "errors": [error]}}).encode()
    scripted.replies.append(reply(400, body))
    with pytest.raises(StoreError) as caught:
        store.put("k", b"body", crc32c=crc32c(b"body"))
    assert (type(caught.value), caught.value.is_permanent) == (StoreError, True)


@pytest.mark.parametrize("code", ["CrcMismatch", "BadDigest"])
def test_the_other_api_has_codes_for_it(scripted: Any, reply: Any, code: str) -> None:
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    scripted.replies.append(reply(400, f"<Error><Code>{code}</Code></Error>".encode()))
    with pytest.raises(ChecksumMismatch):
        store.put("k", b"body")


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]", b""])
def test_a_success_that_tells_of_no_object_is_none(scripted: Any, reply: Any, body: bytes) -> None:
    """Of a proxy that wants a login, for example."""
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    scripted.replies += [reply(200, body)] * 2
    verbs: list[Callable[[], object]] = [lambda: store.head("k"), lambda: store.put("k", b"body")]
    for verb in verbs:
        with pytest.raises(StoreUnavailable) as caught:
            verb()
        assert not caught.value.is_permanent


@pytest.mark.parametrize(
    ("reason", "said"), [("retentionPolicyNotMet", "retention"), ("objectUnderActiveHold", "hold")]
)
def test_an_object_that_is_kept_is_neither_deleted_nor_replaced(
    scripted: Any, reply: Any, reason: str, said: str
) -> None:
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    scripted.replies += [reply(403, refusal(reason))] * 2
    verbs: list[Callable[[], object]] = [
        lambda: store.delete("k"),
        lambda: store.put("k", b"body"),
    ]
    for verb in verbs:
        with pytest.raises(PermissionDenied, match=said) as caught:
            verb()
        assert caught.value.is_permanent


def test_an_answer_of_the_xml_api_is_read_too(scripted: Any, reply: Any) -> None:
    body = (
        b"<?xml version='1.0'?><Error><Code>AccessDenied</Code>"
        b"<Details>x lacks storage.objects.get</Details></Error>"
    )
    scripted.replies.append(reply(403, body))
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    with pytest.raises(PermissionDenied, match=r"AccessDenied.*objects\.get"):
        store.read("k", offset=0, length=1, if_match=None)


def test_a_token_of_limited_life_is_renewed(scripted: Any, reply: Any) -> None:
    scripted.replies.append(reply(401, refusal("authError")))
    credentials = Credentials({"access_token": "t", "expires_at": "1"})
    with pytest.raises(CredentialsExpired):
        GcsStore(StoreSpec("gcs", "bkt", scripted.url), credentials).head("k")
    (request,) = scripted.requests
    assert request.headers["authorization"] == "Bearer t"


@pytest.mark.parametrize(("header", "seconds"), [("7", 7.0), ("soon", None), ("", None)])
def test_retry_after(scripted: Any, reply: Any, header: str, seconds: float | None) -> None:
    scripted.replies.append(reply(429, refusal("rateLimitExceeded"), {"Retry-After": header}))
    with pytest.raises(Throttled) as caught:
        GcsStore(StoreSpec("gcs", "bkt", scripted.url)).head("k")
    assert caught.value.retry_after_s == seconds


def test_retry_after_as_a_date_is_compared_with_the_stores_clock() -> None:
    headers = {
        "retry-after": "Mon, 23 Nov 2026 10:00:09 GMT",
        "date": "Mon, 23 Nov 2026 10:00:00 GMT",
    }
    assert refusal_of(429, headers, b"").retry_after_s == 9.0


def test_a_wrong_checksum_is_told_from_other_bad_requests(scripted: Any, reply: Any) -> None:
    store = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    scripted.replies += [reply(400, refusal("invalid", "metadata is too long"))] * 2
    with pytest.raises(ChecksumMismatch):
        store.put("k", b"body", crc32c=1)
    with pytest.raises(StoreError, match="metadata is too long"):
        store.put("k", b"body", crc32c=crc32c(b"body"))


def test_an_endpoint_that_does_not_answer() -> None:
    store = GcsStore(StoreSpec("gcs", "bkt", "http://127.0.0.1:9"))
    with pytest.raises(StoreUnavailable, match="check the endpoint"):
        store.head("k")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (auth_errors.DefaultCredentialsError(), Unauthenticated),
        (auth_errors.RefreshError("revoked"), Unauthenticated),
        (auth_errors.RefreshError("later", retryable=True), StoreUnavailable),
        (auth_errors.TransportError("no route"), StoreUnavailable),
    ],
)
def test_errors_of_credentials(error: Exception, kind: type[StoreError]) -> None:
    assert type(translate(error, "reading gs://b/k")) is kind
