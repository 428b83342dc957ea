"""An upload of ten thousand parts, the most that S3 takes: many pages, and three levels of joins.

Servers need minutes for so many requests, so they carry the marker `soak`. moto is told to take
parts of any size. versitygw takes no parts below 5 MiB, which would be 50 GB.
"""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import pytest

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.objects import PartInfo
from skyplane_gateway.stores.base import read_object

PARTS: Final = 10_000
AT_ONCE: Final = 16


@pytest.fixture
def small_parts(harness: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)
    return harness


def soak(store: str) -> Any:
    return pytest.param(store, b"x", marks=pytest.mark.soak, id=store)


@pytest.mark.parametrize(
    ("harness", "last"),
    [
        pytest.param("memory", b"x", id="memory-short"),
        pytest.param("memory", b"xyz", id="memory-full"),
        pytest.param("file", b"x", id="file", marks=pytest.mark.long),
        *map(soak, ["azure", "gcs", "s3"]),
    ],
    indirect=["harness"],
)
def test_ten_thousand_parts_in_any_order(small_parts: Any, last: bytes) -> None:
    store = small_parts.shared
    bodies = [number.to_bytes(3, "big") for number in range(PARTS - 1)] + [last]
    upload_id = store.create_upload("k")
    order = list(range(PARTS))
    random.Random(1).shuffle(order)

    def put(index: int) -> PartInfo:
        body = bodies[index]
        part: PartInfo = store.put_part(
            "k", upload_id, index + 1, body, offset=3 * index, crc32c=crc32c(body)
        )
        return part

    with ThreadPoolExecutor(AT_ONCE) as pool:
        stored = sorted(pool.map(put, order), key=lambda part: part.number)
    listed = store.list_parts("k", upload_id)
    assert [(part.number, part.etag) for part in listed] == [
        (number, part.etag) for number, part in enumerate(stored, start=1)
    ]
    if "checksums" not in small_parts.lacks:
        assert [part.crc32c for part in listed] == [crc32c(body) for body in bodies]
    whole = b"".join(bodies)
    done = store.complete_upload(
        "k", upload_id, stored, size_bytes=len(whole), crc32c=crc32c(whole)
    )
    assert done.size_bytes == len(whole)
    if store.capabilities.trusts_checksum:
        assert done.crc32c == crc32c(whole)
    assert read_object(store, "k", max_bytes=len(whole))[1] == whole
    assert [row.key for row in store.list("")] == ["k"]
    assert list(store.list_uploads("")) == []
