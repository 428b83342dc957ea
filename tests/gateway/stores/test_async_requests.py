"""Small objects over asyncio: what is written and read is the same as by threads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import PreconditionFailed
from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes
from skyplane_gateway.stores.base import read_exactly

pytestmark = pytest.mark.parametrize(
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


def test_a_refusal_is_left_to_a_thread(harness: Any) -> None:
    first = harness.shared
    old = first.put("k", b"body", crc32c=crc32c(b"body"))
    with pytest.raises(PreconditionFailed):
        first.put("k", b"else", precondition=IF_ABSENT, crc32c=crc32c(b"else"))
    first.put("k", b"newer", crc32c=crc32c(b"newer"))
    with pytest.raises(PreconditionFailed):
        first.read("k", offset=0, length=4, if_match=old.etag)
    assert first.settled == 2
