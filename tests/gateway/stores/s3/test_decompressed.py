"""Services and proxies that decompress objects with `Content-Encoding: gzip` unless gzip is asked
for, and that compress others where it is: R2, Google's XML API, Cloudflare before any server.

The stored form is copied, so gzip is asked for where another form is answered.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from typing import Any

import pytest
from tests.faults.http_proxy import FaultProxy, running
from tests.faults.http_rules import Rule
from tests.gateway.stores.async_first import AsyncFirst
from tests.gateway.stores.scripted import CREDENTIALS, Reply, ScriptedServer

from skyplane_gateway.common.objects import ObjectAttributes, StoreSpec
from skyplane_gateway.stores import ObjectStore
from skyplane_gateway.stores.base import read_exactly
from skyplane_gateway.stores.registry import open_without_retries

STORED = gzip.compress(b"text " * 1000)
GZIPPED = ObjectAttributes(content_type="text/plain", content_encoding="gzip")
PLAIN = ObjectAttributes(content_type="text/plain")


@pytest.fixture
def proxy(moto_url: str) -> Iterator[FaultProxy]:
    with running(moto_url, [Rule("decompress", times=0)]) as found:
        yield found


@pytest.fixture
def store(proxy: FaultProxy) -> Iterator[ObjectStore]:
    found = open_without_retries(StoreSpec("s3", "gzipped", proxy.url, "us-east-1"), CREDENTIALS)
    found._client.create_bucket(Bucket="gzipped")  # type: ignore[attr-defined]
    found.put("gzipped", STORED, attributes=GZIPPED)
    found.put("plain", b"some text", attributes=PLAIN)
    yield found
    found.close()


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("key", ["gzipped", "plain"])
def test_what_is_stored_is_read(store: Any, key: str, start: int, is_async: bool) -> None:
    body, attributes = (STORED, GZIPPED) if key == "gzipped" else (b"some text", PLAIN)
    info = store.head(key)
    assert (info.size_bytes, info.attributes) == (len(body), attributes)
    by = AsyncFirst(store) if is_async else store
    with by.read(key, offset=start, length=len(body) - start, if_match=info.etag) as reader:
        assert read_exactly(reader, len(body) - start) == body[start:]
        assert reader.attributes == attributes


def test_only_such_objects_take_a_second_request(store: Any, proxy: FaultProxy) -> None:
    def requests(key: str) -> list[str]:
        begun = len(proxy.log.exchanges)
        info = store.head(key)
        store.read(key, offset=0, length=info.size_bytes, if_match=info.etag).close()
        return [each.method for each in proxy.log.exchanges[begun:]]

    assert requests("plain") == ["HEAD", "GET"]
    assert requests("gzipped") == ["HEAD", "HEAD", "GET", "GET"]


def test_gzip_is_asked_for_without_a_signature(scripted: ScriptedServer) -> None:
    """Google's servers add a value of their own on the way, so a signed one would be refused."""
    bad, good = Reply(200, b"decompressed"), Reply(206, b"gz", {"Content-Range": "bytes 0-1/2"})
    scripted.open(bad, good).read("k", offset=0, length=2, if_match=None).close()
    first, second = (request.headers for request in scripted.requests)
    assert "gzip" not in first.get("accept-encoding", "")
    assert second["accept-encoding"] == "gzip"
    assert "accept-encoding" not in second["authorization"]
