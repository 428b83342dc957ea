"""Whole transfers through real gateways in one process, of objects of every size."""

from __future__ import annotations

import random
import uuid
from typing import Any

import pytest
from tests.gateway.service.in_process_fleet import (
    buckets,
    content,
    copy_spec,
    fill,
    memory_spec,
    route,
    uploads,
)

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.objects import ObjectAttributes, StoreSpec
from skyplane_gateway.common.source_version import marked
from skyplane_gateway.config import MIB
from skyplane_gateway.journal.document import Journal, UploadRow, rule_digest
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.protocol.frames import MAX_PAYLOAD_BYTES
from skyplane_gateway.stores import open_store

# Whole transfers through real gateways in one process.


#: Small windows make every bound bite with little data.
CHUNK = MIB


def data_set(seed: int = 7) -> dict[str, bytes]:
    rng = random.Random(seed)
    objects = {f"p/small {i:03}%2B+ü": rng.randbytes(rng.randrange(0, 3000)) for i in range(130)}
    objects |= {f"p/big-{i}": rng.randbytes(3 * MIB + i) for i in range(3)}
    objects |= {"p/empty": b"", "p/one-chunk": rng.randbytes(MIB), "p/_SUCCESS": b"done"}
    return objects


def moved(objects: dict[str, bytes]) -> dict[str, bytes]:
    return {"q/" + key.removeprefix("p/"): body for key, body in objects.items()}


@pytest.mark.parametrize(
    "paths",
    [
        [("a",)],
        [("a", "b")],
        [("a", "r", "b")],
        [("a", "r", "s", "b"), ("a", "b")],
        [("a", "r", "x"), ("b", "r", "y"), ("a", "y")],
    ],
    ids=["same-region", "direct", "relay", "two-paths", "two-sources-two-sinks"],
)
async def test_copies_everything(paths: list[tuple[str, ...]], fleet_of: Any) -> None:
    objects, source, destination = data_set(), memory_spec(), memory_spec()
    fill(source, objects)
    spec = copy_spec(
        source, destination, source_prefix="p/", destination_prefix="q/", chunk_bytes=CHUNK
    )
    routes = [route(number, *nodes) for number, nodes in enumerate(paths)]
    async with fleet_of(*routes, over_tls=True) as fleet:
        status = await fleet.run(spec)
        assert status["error"] is None
        assert status["state"] == "succeeded"
        assert status["copied"] == len(objects)
        assert status["copied_bytes"] == sum(map(len, objects.values()))
        assert content(destination) == moved(objects)
        assert uploads(destination) == []
        delivered = sum(status["delivered_bytes"].values())
        assert delivered == status["copied_bytes"]
        assert all(fleet.service(node).sink.held_bytes == 0 for node in fleet.nodes)


async def test_announcing_objects_come_last_and_only_after_success(fleet_of: Any) -> None:
    source, destination = buckets()
    announcing = {"_SUCCESS": b"", "t/_delta_log/0.json": b"2", "x.last": b"4"}
    objects = {"a": b"1", "z": b"3", **announcing}
    fill(source, objects)
    spec = copy_spec(source, destination, publish_last=("*.last",))
    async with fleet_of() as fleet:
        status = await fleet.run(spec)
        assert status["state"] == "succeeded"
        order = [row["destination"] for row in fleet.report(status)]
        assert set(order[:2]) == {"a", "z"}
        assert set(order[2:]) == set(announcing)


async def test_an_empty_source_fails_unless_allowed(fleet_of: Any) -> None:
    async with fleet_of() as fleet:
        spec = copy_spec(memory_spec(), memory_spec())
        fill(spec.source, {})
        status = await fleet.run(spec)
        assert status["error"]["code"] == "empty-source"
        allowed = copy_spec(spec.source, spec.destination, allow_empty=True)
        assert (await fleet.run(allowed))["state"] == "succeeded"


async def test_a_second_submit_joins_and_a_later_one_looks_again(fleet_of: Any) -> None:
    source, destination = buckets({f"o{i}": bytes(MIB) for i in range(20)})
    spec = copy_spec(source, destination, chunk_bytes=CHUNK)
    transfer = "12" * 16
    async with fleet_of() as fleet:
        first = await fleet.begin(transfer, spec)
        second = await fleet.submit(transfer, spec)
        assert (first["joined"], second["joined"]) == (False, True)
        assert (await fleet.ended(transfer))["copied"] == 20
        fill(source, {"late": b"late"})
        third = await fleet.begin(transfer, spec, epoch=2)
        assert (third["joined"], third["epoch"]) == (False, 2)
        assert (await fleet.ended(transfer))["copied"] == 21


async def test_long_attributes_need_more_chunks_but_all_objects_arrive(fleet_of: Any) -> None:
    source, destination = buckets()
    store = open_store(source)
    attributes = ObjectAttributes(metadata=(("note", "x" * 8000),))
    for number in range(150):
        store.put(f"o{number:03}", b"small", attributes=attributes)
    async with fleet_of() as fleet:
        status = await fleet.run(copy_spec(source, destination))
        assert status["error"] is None
        assert status["copied"] == 150
        assert open_store(destination).head("o149").attributes == attributes


# Objects of every size that is at some border arrive equal, with their attributes.


MAX_PARTS = 10_000
PART = 7

ATTRIBUTES = ObjectAttributes(content_type="text/x-sizes", metadata=(("why", "FAULTS 27"),))


def bodies(*sizes: int) -> dict[str, bytes]:
    """Key -> bytes that no other object has."""
    return {f"size {size:09}": random.Random(size).randbytes(size) for size in sizes}


def around(*borders: int) -> set[int]:
    """Each border, and one byte on either side of it."""
    return {max(0, border + step) for border in borders for step in (-1, 0, 1)}


def attributes(spec: StoreSpec, keys: Any) -> set[ObjectAttributes]:
    """Without the marks of copies."""
    found = (open_store(spec).head(key).attributes or ObjectAttributes() for key in keys)
    return {marked(row, None) for row in found}


@pytest.mark.parametrize("nodes", [("a", "b"), ("a",)])
@pytest.mark.parametrize("chunk_bytes", [1, 1000, MAX_PAYLOAD_BYTES, 3 * MAX_PAYLOAD_BYTES // 2])
async def test_sizes_around_every_border(
    fleet_of: Any, nodes: tuple[str, ...], chunk_bytes: int
) -> None:
    """Nothing, one byte, a chunk, two, and a frame (that is what a payload fills)."""
    frame = (MAX_PAYLOAD_BYTES,) if chunk_bytes >= MAX_PAYLOAD_BYTES else ()
    objects = bodies(*around(0, chunk_bytes, 2 * chunk_bytes, *frame))

    source, destination = buckets(objects, ATTRIBUTES)
    async with fleet_of(route(0, *nodes)) as fleet:
        spec = copy_spec(source, destination, chunk_bytes=chunk_bytes)
        status = await fleet.run(spec)
    assert (status["state"], status["copied"]) == ("succeeded", len(objects))
    assert content(destination) == objects
    assert attributes(destination, objects) == {ATTRIBUTES}
    assert uploads(destination) == []


@pytest.mark.parametrize(
    ("assembly_mib", "uploads"), [(256, 1), (4, 2)], ids=["room for them", "little memory"]
)
async def test_objects_up_to_a_size_are_sent_whole_where_the_sink_has_the_memory(
    fleet_of: Any, wrap_stores: Any, assembly_mib: int, uploads: int
) -> None:
    begun: list[str] = []

    def create(original: Any, key: str, *arguments: Any) -> Any:
        begun.append(key)
        return original(key, *arguments)

    wrap_stores(create_upload=create)
    objects = bodies(1000, 2 * MIB, 2 * MIB + 1)
    source, destination = buckets(objects, ATTRIBUTES)
    async with fleet_of(assembly_mib=assembly_mib) as fleet:
        spec = copy_spec(source, destination, chunk_bytes=MIB, whole_bytes=2 * MIB)
        status = await fleet.run(spec)
    assert (status["state"], status["copied"]) == ("succeeded", len(objects))
    assert content(destination) == objects
    assert len(begun) == uploads


async def test_one_byte_more_than_ten_thousand_parts_hold_makes_the_parts_larger(
    fleet_of: Any,
) -> None:
    objects = bodies(MAX_PARTS * PART + 1)
    source, destination = buckets(objects, ATTRIBUTES)
    async with fleet_of() as fleet:
        status = await fleet.run(copy_spec(source, destination, chunk_bytes=PART))
    assert (status["state"], status["copied"]) == ("succeeded", 1)
    assert status["sendings"] < MAX_PARTS
    assert content(destination) == objects
    assert attributes(destination, objects) == {ATTRIBUTES}


async def test_an_upload_of_ten_thousand_parts_goes_on_where_it_stopped(
    fleet_of: Any, gate: Any
) -> None:
    """An epoch that ended left all parts but a few; nothing else is read or sent again."""
    objects = bodies(MAX_PARTS * PART - 1)
    ((key, body),) = objects.items()
    missing = {1, 2, 5000, MAX_PARTS}

    source, destination = buckets(objects, ATTRIBUTES)
    store, transfer = open_store(destination), uuid.uuid4().hex
    upload_id = store.create_upload(key, ATTRIBUTES)
    for number in set(range(1, MAX_PARTS + 1)) - missing:
        offset = (number - 1) * PART
        data = body[offset : offset + PART]
        store.put_part(key, upload_id, number, data, offset=offset, crc32c=crc32c(data))
    spec = copy_spec(source, destination, chunk_bytes=PART)
    etag = open_store(source).head(key).etag
    upload = UploadRow(key, upload_id, key, etag, len(body), PART)
    journal = Journal(
        transfer, 1, rule_digest(spec), PART, writer="w", begun=(key,), uploads=(upload,)
    )
    JournalFolder(store, "", transfer).write(journal, None)
    gate.open()
    async with fleet_of() as fleet:
        await fleet.begin(transfer, spec, epoch=2)
        status = await fleet.ended(transfer)
    assert (status["state"], status["copied"]) == ("succeeded", 1)
    assert status["sendings"] == len(missing)
    assert content(destination) == objects
    assert attributes(destination, objects) == {ATTRIBUTES}
    assert uploads(destination) == []
    assert gate.read_bytes == len(missing) * PART - 1
