"""Whole transfers through real gateways in one process."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest

from skyplane_gateway.config import MIB
from skyplane_gateway.errors import StaleEpoch
from skyplane_gateway.objects import ObjectAttributes
from skyplane_gateway.stores import open_store

#: Small windows make every bound bite with little data.
SMALL = {"assembly_mib": 8, "readers": 3, "store_threads": 4}
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
def test_copies_everything(paths: list[tuple[str, ...]], fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        objects, source, destination = data_set(), kit.memory_spec(), kit.memory_spec()
        kit.fill(source, objects)
        spec = kit.copy_spec(
            source, destination, source_prefix="p/", destination_prefix="q/", chunk_bytes=CHUNK
        )
        routes = [kit.route(number, *nodes) for number, nodes in enumerate(paths)]
        async with fleet_of(*routes, **SMALL) as fleet:
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

    asyncio.run(scenario())


def test_shares_follow_the_plan(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {f"o{i:02}": bytes(MIB) for i in range(40)})
        spec = kit.copy_spec(source, destination, chunk_bytes=CHUNK)
        routes = [kit.route(0, "a", "b", share_gbps=3.0), kit.route(1, "a", "r", "b")]
        async with fleet_of(*routes, **SMALL) as fleet:
            status = await fleet.run(spec)
            shares = status["delivered_bytes"]
            # Three quarters, within two chunks.
            assert abs(shares["0"] - 30 * MIB) <= 2 * MIB, shares

    asyncio.run(scenario())


def test_a_relay_carries_what_its_route_carries(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {f"o{i}": bytes(MIB) for i in range(4)})
        async with fleet_of(kit.route(0, "a", "r", "b"), **SMALL) as fleet:
            await fleet.run(kit.copy_spec(source, destination, chunk_bytes=CHUNK))
            (statistics,) = fleet.service("r").router.statistics()
            assert statistics["role"] == "relay"
            assert statistics["frame_bytes"] > 4 * MIB

    asyncio.run(scenario())


def test_announcing_objects_come_last_and_only_after_success(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
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

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("rule", "copied", "skipped", "failed"),
    [
        ("replace", 2, 0, 0),
        ("skip", 1, 1, 0),
        ("fail", 1, 0, 1),
        ("replace-if-different", 1, 1, 0),
    ],
)
def test_conflict_rules(
    rule: str, copied: int, skipped: int, failed: int, fleet_of: Any, kit: Any
) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"new": b"new", "there": b"same"})
        kit.fill(destination, {"there": b"same"})
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            status = await fleet.run(kit.copy_spec(source, destination, conflict=rule))
            assert (status["copied"], status["skipped"], status["failed"]) == (
                copied,
                skipped,
                failed,
            )
            assert status["state"] == ("failed" if failed else "succeeded")
            assert kit.content(destination) == {"new": b"new", "there": b"same"}

    asyncio.run(scenario())


def test_an_empty_source_fails_unless_allowed(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            spec = kit.copy_spec(kit.memory_spec(), kit.memory_spec())
            kit.fill(spec.source, {})
            status = await fleet.run(spec)
            assert status["error"]["code"] == "empty-source"
            allowed = kit.copy_spec(spec.source, spec.destination, allow_empty=True)
            assert (await fleet.run(allowed))["state"] == "succeeded"

    asyncio.run(scenario())


def test_a_second_submit_joins_and_a_later_one_looks_again(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {f"o{i}": bytes(MIB) for i in range(20)})
        spec = kit.copy_spec(source, destination, chunk_bytes=CHUNK)
        transfer = "12" * 16
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
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

    asyncio.run(scenario())


def test_an_older_epoch_is_refused(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"a": b"1"})
        transfer = "34" * 16
        async with fleet_of(kit.route(0, "a", "b")) as fleet:
            await fleet.attach(transfer, source, destination, epoch=2)
            with pytest.raises(StaleEpoch):
                await fleet.attach(transfer, source, destination, epoch=1)
            with pytest.raises(StaleEpoch):
                await fleet.submit(transfer, kit.copy_spec(source, destination), epoch=1)

    asyncio.run(scenario())


def test_cancel_leaves_no_open_upload(fleet_of: Any, kit: Any, gate: Callable[..., Any]) -> None:
    async def scenario() -> None:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {f"o{i}": bytes(3 * MIB) for i in range(4)})
        spec = kit.copy_spec(source, destination, chunk_bytes=CHUNK)
        transfer = "56" * 16
        held = gate(destination)
        async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
            await fleet.attach(transfer, source, destination)
            await fleet.submit(transfer, spec)
            await fleet.until(lambda: held.waiting > 0)
            assert kit.uploads(destination) != []
            cancelled = asyncio.create_task(asyncio.to_thread(fleet.client("a").cancel, transfer))
            await fleet.until(
                lambda: fleet.service("a").leads.transfer(transfer).state == "cancelled"
            )
            held.open()
            await cancelled
            await asyncio.to_thread(fleet.client("b").cancel, transfer)
            assert (await fleet.ended(transfer))["state"] == "cancelled"
            assert kit.uploads(destination) == []

    asyncio.run(scenario())


def test_long_attributes_need_more_chunks_but_all_objects_arrive(fleet_of: Any, kit: Any) -> None:
    async def scenario() -> None:
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

    asyncio.run(scenario())
