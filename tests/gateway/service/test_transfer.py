"""Whole transfers through real gateways in one process."""

from __future__ import annotations

import random
from typing import Any

import pytest

from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.config import MIB
from skyplane_gateway.stores import open_store

#: Small windows make every bound bite with little data.
CHUNK = MIB


def data_set(seed: int = 7) -> dict[str, bytes]:
    rng = random.Random(seed)
    objects = {f"p/small {i:03}%2B+ü": rng.randbytes(rng.randrange(0, 3000)) for i in range(300)}
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
async def test_copies_everything(paths: list[tuple[str, ...]], fleet_of: Any, kit: Any) -> None:
    objects, source, destination = data_set(), kit.memory_spec(), kit.memory_spec()
    kit.fill(source, objects)
    spec = kit.copy_spec(
        source, destination, source_prefix="p/", destination_prefix="q/", chunk_bytes=CHUNK
    )
    routes = [kit.route(number, *nodes) for number, nodes in enumerate(paths)]
    async with fleet_of(*routes, over_tls=True) as fleet:
        status = await fleet.run(spec)
        assert status["error"] is None
        assert status["state"] == "succeeded"
        assert status["copied"] == len(objects)
        assert status["copied_bytes"] == sum(map(len, objects.values()))
        assert kit.content(destination) == moved(objects)
        assert kit.uploads(destination) == []
        delivered = sum(status["delivered_bytes"].values())
        assert delivered == status["copied_bytes"]
        assert all(fleet.service(node).sink.held_bytes == 0 for node in fleet.nodes)


async def test_announcing_objects_come_last_and_only_after_success(fleet_of: Any, kit: Any) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    announcing = {"_SUCCESS": b"", "t/_delta_log/0.json": b"2", "x.last": b"4"}
    objects = {"a": b"1", "z": b"3", **announcing}
    kit.fill(source, objects)
    spec = kit.copy_spec(source, destination, publish_last=("*.last",))
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        status = await fleet.run(spec)
        assert status["state"] == "succeeded"
        lead = fleet.service("a").leads.transfer(status["transfer_key"])
        order = [row["destination"] for row in lead.report.page(0)["rows"]]
        assert set(order[:2]) == {"a", "z"}
        assert set(order[2:]) == set(announcing)


async def test_an_empty_source_fails_unless_allowed(fleet_of: Any, kit: Any) -> None:
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        spec = kit.copy_spec(kit.memory_spec(), kit.memory_spec())
        kit.fill(spec.source, {})
        status = await fleet.run(spec)
        assert status["error"]["code"] == "empty-source"
        allowed = kit.copy_spec(spec.source, spec.destination, allow_empty=True)
        assert (await fleet.run(allowed))["state"] == "succeeded"


async def test_a_second_submit_joins_and_a_later_one_looks_again(fleet_of: Any, kit: Any) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {f"o{i}": bytes(MIB) for i in range(20)})
    spec = kit.copy_spec(source, destination, chunk_bytes=CHUNK)
    transfer = "12" * 16
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        await fleet.attach(transfer, source, destination)
        first = await fleet.submit(transfer, spec)
        second = await fleet.submit(transfer, spec)
        assert (first["joined"], second["joined"]) == (False, True)
        assert (await fleet.ended(transfer))["copied"] == 20
        kit.fill(source, {"late": b"late"})
        await fleet.attach(transfer, source, destination, epoch=2)
        third = await fleet.submit(transfer, spec, epoch=2)
        assert (third["joined"], third["epoch"]) == (False, 2)
        assert (await fleet.ended(transfer))["copied"] == 21


async def test_long_attributes_need_more_chunks_but_all_objects_arrive(
    fleet_of: Any, kit: Any
) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    store = open_store(source)
    attributes = ObjectAttributes(metadata=(("note", "x" * 8000),))
    for number in range(150):
        store.put(f"o{number:03}", b"small", attributes=attributes)
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        status = await fleet.run(kit.copy_spec(source, destination))
        assert status["error"] is None
        assert status["copied"] == 150
        assert open_store(destination).head("o149").attributes == attributes
