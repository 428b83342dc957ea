"""Small objects of Google Cloud Storage over asyncio."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.faults import fake_gcs
from tests.gateway.stores.async_first import AsyncFirst

from skyplane_gateway.checksum import crc32c
from skyplane_gateway.errors import PreconditionFailed, StoreUnavailable
from skyplane_gateway.objects import IF_ABSENT, Credentials, ObjectAttributes
from skyplane_gateway.stores import StoreSpec
from skyplane_gateway.stores.gcs.store import GcsStore

ATTRIBUTES = ObjectAttributes(
    content_type="text/plain", content_encoding="gzip", metadata=(("owner", "caf\u00e9 \u4e2d"),)
)


@pytest.fixture
def pair(fake_gcs_url: str) -> tuple[Any, GcsStore]:
    """One bucket, over asyncio first and in threads only."""
    spec = StoreSpec("gcs", fake_gcs.create_bucket(fake_gcs_url), fake_gcs_url)
    return AsyncFirst(GcsStore(spec)), GcsStore(spec)


def read(store: Any, key: str, length: int, etag: str | None) -> tuple[bytes, Any]:
    with store.read(key, offset=0, length=length, if_match=etag) as reader:
        body = bytearray(length)
        assert reader.readinto(memoryview(body)) == length
        return bytes(body), reader.attributes


@pytest.mark.parametrize("body", [b"", b"small"])
def test_both_ways_write_and_read_the_same(pair: tuple[Any, GcsStore], body: bytes) -> None:
    first, threads = pair
    checksum = crc32c(body)
    one = first.put("one", body, attributes=ATTRIBUTES, crc32c=checksum)
    two = threads.put("two", body, attributes=ATTRIBUTES, crc32c=checksum)
    assert first.settled == 1
    assert (one.size_bytes, one.crc32c, one.attributes) == (
        two.size_bytes,
        two.crc32c,
        two.attributes,
    )
    for key, etag in (("one", one.etag), ("two", two.etag)):
        for store in pair:
            assert read(store, key, len(body), etag) == (body, ATTRIBUTES)
    assert first.settled == 3


def test_a_refusal_is_left_to_a_thread(pair: tuple[Any, GcsStore]) -> None:
    first, _ = pair
    old = first.put("k", b"body", crc32c=crc32c(b"body"))
    with pytest.raises(PreconditionFailed):
        first.put("k", b"else", precondition=IF_ABSENT, crc32c=crc32c(b"else"))
    first.put("k", b"newer", crc32c=crc32c(b"newer"))
    with pytest.raises(PreconditionFailed):
        first.read("k", offset=0, length=4, if_match=old.etag)
    assert first.settled == 2


def test_the_token_is_sent(scripted: Any, reply: Any) -> None:
    credentials = Credentials({"access_token": "t"})
    store = AsyncFirst(GcsStore(StoreSpec("gcs", "bkt", scripted.url), credentials))
    headers = {"Content-Range": "bytes 0-1/2", "x-goog-generation": "7"}
    scripted.replies.append(reply(206, b"ab", headers))
    assert read(store, "a/b", 2, "7")[0] == b"ab"
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
