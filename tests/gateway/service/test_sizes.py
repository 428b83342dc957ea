"""Objects of every size that is at some border arrive equal, with their attributes."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.objects import ObjectAttributes, StoreSpec
from skyplane_gateway.common.source_version import marked
from skyplane_gateway.journal.document import Journal, UploadRow, rule_digest
from skyplane_gateway.journal.store import JournalFolder
from skyplane_gateway.protocol import MAX_PAYLOAD_BYTES
from skyplane_gateway.stores import open_store

MAX_PARTS = 10_000
MIB = 1 << 20
PART = 7

ATTRIBUTES = ObjectAttributes(content_type="text/x-sizes", metadata=(("why", "FAULTS 27"),))


def bodies(*sizes: int) -> dict[str, bytes]:
    """Key -> bytes that no other object has."""
    return {f"size {size:09}": random.Random(size).randbytes(size) for size in sizes}


def around(*borders: int) -> set[int]:
    """Each border, and one byte on either side of it."""
    return {max(0, border + step) for border in borders for step in (-1, 0, 1)}


def fill(spec: StoreSpec, objects: dict[str, bytes]) -> None:
    for key, body in objects.items():
        open_store(spec).put(key, body, attributes=ATTRIBUTES)


def attributes(spec: StoreSpec, keys: Any) -> set[ObjectAttributes]:
    """Without the marks of copies."""
    found = (open_store(spec).head(key).attributes or ObjectAttributes() for key in keys)
    return {marked(row, None) for row in found}


@pytest.mark.parametrize("nodes", [("a", "b"), ("a",)])
@pytest.mark.parametrize("chunk_bytes", [1, 1000, MAX_PAYLOAD_BYTES, 3 * MAX_PAYLOAD_BYTES // 2])
async def test_sizes_around_every_border(
    fleet_of: Any, kit: Any, nodes: tuple[str, ...], chunk_bytes: int
) -> None:
    """Nothing, one byte, a chunk, two, and a frame (that is what a payload fills)."""
    frame = (MAX_PAYLOAD_BYTES,) if chunk_bytes >= MAX_PAYLOAD_BYTES else ()
    objects = bodies(*around(0, chunk_bytes, 2 * chunk_bytes, *frame))

    source, destination = kit.memory_spec(), kit.memory_spec()
    fill(source, objects)
    async with fleet_of(kit.route(0, *nodes)) as fleet:
        spec = kit.copy_spec(source, destination, chunk_bytes=chunk_bytes)
        status = await fleet.run(spec)
    assert (status["state"], status["copied"]) == ("succeeded", len(objects))
    assert kit.content(destination) == objects
    assert attributes(destination, objects) == {ATTRIBUTES}
    assert kit.uploads(destination) == []


@pytest.mark.parametrize(
    ("assembly_mib", "uploads"), [(256, 1), (4, 2)], ids=["room for them", "little memory"]
)
async def test_objects_up_to_a_size_are_sent_whole_where_the_sink_has_the_memory(
    fleet_of: Any, kit: Any, wrap_stores: Any, assembly_mib: int, uploads: int
) -> None:
    begun: list[str] = []

    def create(original: Any, key: str, *arguments: Any) -> Any:
        begun.append(key)
        return original(key, *arguments)

    wrap_stores(create_upload=create)
    objects = bodies(1000, 2 * MIB, 2 * MIB + 1)
    source, destination = kit.memory_spec(), kit.memory_spec()
    fill(source, objects)
    async with fleet_of(kit.route(0, "a", "b"), assembly_mib=assembly_mib) as fleet:
        spec = kit.copy_spec(source, destination, chunk_bytes=MIB, whole_bytes=2 * MIB)
        status = await fleet.run(spec)
    assert (status["state"], status["copied"]) == ("succeeded", len(objects))
    assert kit.content(destination) == objects
    assert len(begun) == uploads


async def test_one_byte_more_than_ten_thousand_parts_hold_makes_the_parts_larger(
    fleet_of: Any, kit: Any
) -> None:
    objects = bodies(MAX_PARTS * PART + 1)
    source, destination = kit.memory_spec(), kit.memory_spec()
    fill(source, objects)
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        status = await fleet.run(kit.copy_spec(source, destination, chunk_bytes=PART))
    assert (status["state"], status["copied"]) == ("succeeded", 1)
    assert status["sendings"] < MAX_PARTS
    assert kit.content(destination) == objects
    assert attributes(destination, objects) == {ATTRIBUTES}


async def test_an_upload_of_ten_thousand_parts_goes_on_where_it_stopped(
    fleet_of: Any, kit: Any, gate: Any
) -> None:
    """An epoch that ended left all parts but a few; nothing else is read or sent again."""
    objects = bodies(MAX_PARTS * PART - 1)
    ((key, body),) = objects.items()
    missing = {1, 2, 5000, MAX_PARTS}

    source, destination = kit.memory_spec(), kit.memory_spec()
    fill(source, objects)
    store, transfer = open_store(destination), uuid.uuid4().hex
    upload_id = store.create_upload(key, ATTRIBUTES)
    for number in set(range(1, MAX_PARTS + 1)) - missing:
        offset = (number - 1) * PART
        data = body[offset : offset + PART]
        store.put_part(key, upload_id, number, data, offset=offset, crc32c=crc32c(data))
    spec = kit.copy_spec(source, destination, chunk_bytes=PART)
    etag = open_store(source).head(key).etag
    upload = UploadRow(key, upload_id, key, etag, len(body), PART)
    journal = Journal(
        transfer, 1, rule_digest(spec), PART, writer="w", begun=(key,), uploads=(upload,)
    )
    JournalFolder(store, "", transfer).write(journal, None)
    gate.open()
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        await fleet.attach(transfer, source, destination, epoch=2)
        await fleet.submit(transfer, spec, epoch=2)
        status = await fleet.ended(transfer)
    assert (status["state"], status["copied"]) == ("succeeded", 1)
    assert status["sendings"] == len(missing)
    assert kit.content(destination) == objects
    assert attributes(destination, objects) == {ATTRIBUTES}
    assert kit.uploads(destination) == []
    assert gate.read_bytes == len(missing) * PART - 1
