"""What is too slow to ask of any other store."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator

import pytest

from skyplane_gateway.checksum import crc32c
from skyplane_gateway.errors import PreconditionFailed, StoreError
from skyplane_gateway.objects import PartInfo
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


def store_parts(store: ObjectStore, upload_id: str, bodies: list[bytes]) -> list[PartInfo]:
    offsets, end = [], 0
    for body in bodies:
        offsets.append(end)
        end += len(body)
    order = list(range(len(bodies)))
    random.Random(1).shuffle(order)
    return [
        store.put_part(
            "k",
            upload_id,
            index + 1,
            bodies[index],
            offset=offsets[index],
            crc32c=crc32c(bodies[index]),
        )
        for index in order
    ]


def test_a_version_that_was_replaced_is_not_deleted(store: ObjectStore) -> None:
    seen = store.put("k", b"1").etag
    store.put("k", b"2")
    with pytest.raises(PreconditionFailed):
        store.delete("k", if_match=seen)
    store.delete("k", if_match=store.head("k").etag)
    assert list(store.list("")) == []
    store.delete("k", if_match=seen)


@pytest.mark.parametrize("last", [b"", b"x", b"xyz"], ids=["at", "one-past", "two-short"])
def test_ten_thousand_parts_in_any_order(store: ObjectStore, last: bytes) -> None:
    bodies = [number.to_bytes(3, "big") for number in range(PARTS - 1)] + ([last] if last else [])
    upload_id = store.create_upload("k")
    stored = store_parts(store, upload_id, bodies)
    listed = store.list_parts("k", upload_id)
    assert [part.number for part in listed] == list(range(1, len(bodies) + 1))
    assert [part.crc32c for part in listed] == [crc32c(body) for body in bodies]
    assert sorted(stored, key=lambda part: part.number) == list(listed)
    whole = b"".join(bodies)
    done = store.complete_upload(
        "k", upload_id, listed, size_bytes=len(whole), crc32c=crc32c(whole)
    )
    assert (done.size_bytes, done.crc32c) == (len(whole), crc32c(whole))
    assert read_object(store, "k", max_bytes=len(whole))[1] == whole


def test_one_part_of_ten_thousand_is_missing(store: ObjectStore) -> None:
    bodies = [number.to_bytes(3, "big") for number in range(PARTS)]
    upload_id = store.create_upload("k")
    store_parts(store, upload_id, bodies)
    listed = list(store.list_parts("k", upload_id))
    del listed[PARTS // 2]
    with pytest.raises(StoreError, match="bytes"):
        store.complete_upload("k", upload_id, listed, size_bytes=3 * PARTS)
