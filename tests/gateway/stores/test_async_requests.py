"""Small objects over asyncio: what is written and read is the same as by threads."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.stores.async_first import AsyncFirst
from tests.gateway.stores.scripted import Reply, ScriptedServer

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import PreconditionFailed, StoreUnavailable
from skyplane_gateway.common.objects import IF_ABSENT, Credentials, ObjectAttributes, StoreSpec
from skyplane_gateway.stores.azure.credentials import IdentitySigner
from skyplane_gateway.stores.base import read_exactly
from skyplane_gateway.stores.gcs.store import GcsStore
from skyplane_gateway.stores.registry import open_without_retries

every_service = pytest.mark.parametrize(
    "harness", ["azure-async", "gcs-async", "versitygw-async"], indirect=True
)

#: Only Google keeps letters of other alphabets in a request over asyncio.
METADATA = {"gcs": (("owner", "caf\u00e9 \u4e2d"),)}


def attributes_for(harness: Any) -> ObjectAttributes:
    return ObjectAttributes(
        content_type="text/plain",
        content_encoding="gzip",
        metadata=METADATA.get(harness.spec.kind, (("with-dash", "1=2&3"),)),
    )


def read(store: Any, key: str, length: int, etag: str) -> tuple[bytes, ObjectAttributes]:
    with store.read(key, offset=0, length=length, if_match=etag) as reader:
        return bytes(read_exactly(reader, length)), reader.attributes


@every_service
@pytest.mark.parametrize("body", [b"", b"small"])
def test_both_ways_write_and_read_the_same(harness: Any, body: bytes) -> None:
    first, threads = harness.shared, replace(harness, wrap=lambda store: store).open()
    checksum, attributes = crc32c(body), attributes_for(harness)
    one = first.put("a b/\u00e9+%2B", body, attributes=attributes, crc32c=checksum)
    assert first.settled == 1
    two = threads.put("two", body, attributes=attributes, crc32c=checksum)
    assert (one.size_bytes, one.crc32c, one.attributes) == (
        two.size_bytes,
        two.crc32c,
        two.attributes,
    )
    for info in (one, two):
        for store in (first, threads):
            assert read(store, info.key, len(body), info.etag) == (body, attributes)
    assert first.settled == 3


@every_service
def test_a_refusal_is_left_to_a_thread(harness: Any) -> None:
    first = harness.shared
    old = first.put("k", b"body", crc32c=crc32c(b"body"))
    with pytest.raises(PreconditionFailed):
        first.put("k", b"else", precondition=IF_ABSENT, crc32c=crc32c(b"else"))
    first.put("k", b"newer", crc32c=crc32c(b"newer"))
    with pytest.raises(PreconditionFailed):
        first.read("k", offset=0, length=4, if_match=old.etag)
    assert first.settled == 2


#: Kind -> bucket, credentials, header of a version, two versions, and the path of `a/b`.
SERVICES: dict[str, tuple[str, dict[str, str], str, tuple[str, str], str]] = {
    "azure": ("acct/box", {"bearer_token": "t"}, "ETag", ('"7"', '"8"'), "/acct/box/a/b"),
    "gcs": ("bkt", {"access_token": "t"}, "x-goog-generation", ("7", "8"), "/bkt/a%2Fb"),
}


def opened(url: str, kind: str) -> AsyncFirst:
    bucket, values, *_ = SERVICES[kind]
    return AsyncFirst(open_without_retries(StoreSpec(kind, bucket, url), Credentials(values)))


@pytest.mark.parametrize("kind", SERVICES)
def test_the_token_is_sent(scripted: ScriptedServer, kind: str) -> None:
    _, _, header, (version, _), path = SERVICES[kind]
    store = opened(scripted.url, kind)
    scripted.replies.append(Reply(206, b"ab", {"Content-Range": "bytes 0-1/2", header: version}))
    assert read(store, "a/b", 2, version)[0] == b"ab"
    (request,) = scripted.requests
    assert (request.path, store.settled) == (path, 1)
    assert request.headers["authorization"] == "Bearer t"
    pin = "if-match" if kind == "azure" else "x-goog-if-generation-match"
    assert request.headers[pin] == version
    # Else Google decompresses gzip, and ignores the range.
    assert request.headers.get("accept-encoding") == ("gzip" if kind == "gcs" else None)


@pytest.mark.parametrize("kind", SERVICES)
@pytest.mark.parametrize(
    ("content_range", "version"),
    [("bytes 0-1/9", 0), ("bytes 1-2/3", 0), ("bytes 0-1/2", 1), ("", 0)],
)
def test_an_answer_for_something_else_is_not_taken(
    scripted: ScriptedServer, kind: str, content_range: str, version: int
) -> None:
    header, versions = SERVICES[kind][2:4]
    if (kind, content_range) == ("azure", "bytes 0-1/9"):
        return  # The range is right; the version, which is pinned, decides.
    store = opened(scripted.url, kind)
    headers = {"Content-Range": content_range, header: versions[version]}
    scripted.replies += [Reply(206, b"ab", headers), Reply(500)]
    with pytest.raises(StoreUnavailable):
        read(store, "k", 2, versions[0])
    assert store.settled == 0


def test_the_identity_of_the_machine_is_looked_up_by_a_thread() -> None:
    assert not IdentitySigner().is_ready
    assert GcsStore(StoreSpec("gcs", "bkt"))._client.authorization() is None


def test_certificates_that_cannot_be_read_leave_requests_to_threads(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert GcsStore(StoreSpec("gcs", "bkt")).async_requests is not None
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path))
    assert GcsStore(StoreSpec("gcs", "bkt")).async_requests is not None
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "missing"))
    assert GcsStore(StoreSpec("gcs", "bkt")).async_requests is None


@pytest.mark.parametrize("is_async", [True, False])
def test_the_checksum_is_found_among_two_headers(scripted: ScriptedServer, is_async: bool) -> None:
    """The service sends one header for each."""
    store: Any = GcsStore(StoreSpec("gcs", "bkt", scripted.url))
    if is_async:
        store = AsyncFirst(store)
    hashes = {"x-goog-hash": "md5=GH6Q+kpTLfKi+wJ8gRHlXw==", "X-Goog-Hash": "crc32c=4waSgw=="}
    headers = {"content-range": "bytes 0-8/9", "x-goog-generation": "7", **hashes}
    scripted.replies.append(Reply(206, b"123456789", headers))
    with store.read("k", offset=0, length=9, if_match="7") as reader:
        assert reader.stated == ("CRC32C", "e3069283")
