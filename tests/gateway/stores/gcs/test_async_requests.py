"""Small objects of Google Cloud Storage over asyncio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.gateway.stores.async_first import AsyncFirst

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import StoreUnavailable
from skyplane_gateway.common.objects import Credentials
from skyplane_gateway.stores import StoreSpec
from skyplane_gateway.stores.base import read_exactly
from skyplane_gateway.stores.gcs.store import GcsStore


def read(store: Any, key: str, length: int, etag: str | None) -> bytes:
    with store.read(key, offset=0, length=length, if_match=etag) as reader:
        return bytes(read_exactly(reader, length))


def test_the_token_is_sent(scripted: Any, reply: Any) -> None:
    credentials = Credentials({"access_token": "t"})
    store = AsyncFirst(GcsStore(StoreSpec("gcs", "bkt", scripted.url), credentials))
    headers = {"Content-Range": "bytes 0-1/2", "x-goog-generation": "7"}
    scripted.replies.append(reply(206, b"ab", headers))
    assert read(store, "a/b", 2, "7") == b"ab"
    (request,) = scripted.requests
    assert (request.path, store.settled) == ("/bkt/a%2Fb", 1)
    sent = request.headers
    assert (sent["authorization"], sent["accept-encoding"]) == ("Bearer t", "gzip")
    assert sent["x-goog-if-generation-match"] == "7"


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Range": "bytes 0-1/9", "x-goog-generation": "7"},
        {"Content-Range": "bytes 0-1/2", "x-goog-generation": "8"},
        {"x-goog-generation": "7"},
    ],
)
def test_an_answer_for_something_else_is_not_taken(
    scripted: Any, reply: Any, headers: dict[str, str]
) -> None:
    store = AsyncFirst(GcsStore(StoreSpec("gcs", "bkt", scripted.url)))
    scripted.replies += [reply(206, b"ab", headers), reply(500)]
    with pytest.raises(StoreUnavailable):
        read(store, "k", 2, "7")
    assert store.settled == 0


@pytest.mark.parametrize("body", [b"<html>", b"{}", b"[]"])
def test_a_success_that_tells_of_no_object_is_left_to_a_thread(
    scripted: Any, reply: Any, body: bytes
) -> None:
    store = AsyncFirst(GcsStore(StoreSpec("gcs", "bkt", scripted.url)))
    scripted.replies += [reply(200, body), reply(500)]
    with pytest.raises(StoreUnavailable):
        store.put("k", b"body", crc32c=crc32c(b"body"))
    assert store.settled == 0


def test_the_platforms_identity_is_looked_up_by_a_thread() -> None:
    store = GcsStore(StoreSpec("gcs", "bkt"))
    assert store._client.authorization() is None


def test_certificates_that_cannot_be_read_leave_requests_to_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert GcsStore(StoreSpec("gcs", "bkt")).async_requests is not None
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path))
    assert GcsStore(StoreSpec("gcs", "bkt")).async_requests is not None
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing"))
    assert GcsStore(StoreSpec("gcs", "bkt")).async_requests is None


@pytest.mark.parametrize("is_async", [True, False])
def test_the_checksum_is_found_among_two_headers(scripted: Any, reply: Any, is_async: bool) -> None:
    """The service sends one header for each."""
    store: Any = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    if is_async:
        store = AsyncFirst(store)
    hashes = {"x-goog-hash": "md5=GH6Q+kpTLfKi+wJ8gRHlXw==", "X-Goog-Hash": "crc32c=4waSgw=="}
    headers = {"content-range": "bytes 0-8/9", "x-goog-generation": "7", **hashes}
    scripted.replies.append(reply(206, b"123456789", headers))
    with store.read("k", offset=0, length=9, if_match="7") as reader:
        assert reader.stated == ("CRC32C", "e3069283")
