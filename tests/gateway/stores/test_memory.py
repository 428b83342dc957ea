"""An upload with the most parts, which takes too long in other stores."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator

import pytest

from skyplane_gateway.checksum import crc32c
from skyplane_gateway.stores import ObjectStore, StoreSpec
from skyplane_gateway.stores.base import read_object
from skyplane_gateway.stores.memory import create_bucket, delete_bucket
from skyplane_gateway.stores.registry import open_without_retries

PARTS = 10_000


@pytest.fixture
def store() -> Iterator[ObjectStore]:
    name = uuid.uuid4().hex
    create_bucket(name)
    yield open_without_retries(StoreSpec("memory", name))
    delete_bucket(name)


@pytest.mark.parametrize("last", [b"x", b"xyz"], ids=["short", "full"])
def test_ten_thousand_parts_in_any_order(store: ObjectStore, last: bytes) -> None:
    bodies = [number.to_bytes(3, "big") for number in range(PARTS - 1)] + [last]
    upload_id = store.create_upload("k")
    order = list(range(PARTS))
    random.Random(1).shuffle(order)
    for index in order:
        body = bodies[index]
        store.put_part("k", upload_id, index + 1, body, offset=3 * index, crc32c=crc32c(body))
    listed = store.list_parts("k", upload_id)
    assert [part.number for part in listed] == list(range(1, PARTS + 1))
    assert [part.crc32c for part in listed] == [crc32c(body) for body in bodies]
    whole = b"".join(bodies)
    done = store.complete_upload(
        "k", upload_id, listed, size_bytes=len(whole), crc32c=crc32c(whole)
    )
    assert (done.size_bytes, done.crc32c) == (len(whole), crc32c(whole))
    assert read_object(store, "k", max_bytes=len(whole))[1] == whole
