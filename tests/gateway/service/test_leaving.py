"""Gateways that are told to end by their machine (SIGTERM, a spot notice) in mid-transfer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from skyplane_gateway.config import MIB
from skyplane_gateway.errors import GatewayDraining

CHUNK = MIB
SETTINGS = {"assembly_mib": 8, "readers": 3, "store_threads": 4}
KEY = "57" * 16
BODIES = {f"large{n}": bytes([n]) * (5 * MIB) for n in range(4)} | {
    f"small{n}": bytes([n]) * 100 for n in range(20)
}


async def leave(fleet: Any, node: str) -> None:
    """As SIGTERM does."""
    fleet.service(node).request_leave("SIGTERM")
    await fleet.gateways[node].close()


async def begin(fleet: Any, kit: Any, gate: Callable[..., Any]) -> tuple[Any, Any, Any]:
    """A transfer with its writes under way: destination, what it copies, what holds it."""
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, BODIES)
    held = gate(destination)
    await fleet.attach(KEY, source, destination)
    spec = kit.copy_spec(source, destination, chunk_bytes=CHUNK)
    await fleet.submit(KEY, spec)
    await fleet.until(lambda: held.waiting >= 4)
    await fleet.until(
        lambda: set(kit.uploads(destination)) == kit.named_uploads(destination) != set()
    )
    return destination, spec, held


@pytest.mark.parametrize("doomed", ["c", "d", "r"])
def test_one_that_leaves_beside_another_path_costs_nothing(
    doomed: str, fleet_of: Any, kit: Any, gate: Callable[..., Any]
) -> None:
    """A source, a sink or a relay; the lead stays."""

    async def scenario() -> None:
        routes = (kit.route(0, "a", "b"), kit.route(1, "c", "d"), kit.route(2, "a", "r", "d"))
        async with fleet_of(*routes, **SETTINGS) as fleet:
            destination, _, held = await begin(fleet, kit, gate)
            leaving = asyncio.create_task(leave(fleet, doomed))
            await asyncio.sleep(0)
            held.open()
            await leaving
            status = await fleet.ended(KEY)
            assert (status["state"], status["error"]) == ("succeeded", None)
            assert (status["copied"], status["failed"]) == (len(BODIES), 0)
        assert kit.content(destination) == BODIES

    asyncio.run(scenario())


@pytest.mark.parametrize("doomed", ["r", "b"])
def test_the_only_one_of_its_role_breaks_the_fleet_at_once_and_not_for_good(
    doomed: str, fleet_of: Any, kit: Any, gate: Callable[..., Any]
) -> None:
    """Whoever polls brings the fleet up again; nobody waits for a path that will not come."""

    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "r", "b"), **SETTINGS) as fleet:
            destination, _, held = await begin(fleet, kit, gate)
            leaving = asyncio.create_task(leave(fleet, doomed))
            await asyncio.sleep(0)
            held.open()
            await leaving
            # No deadline is shorter than 30 s.
            async with asyncio.timeout(15):
                status = await fleet.ended(KEY)
            assert status["state"] == "failed"
            assert status["error"]["code"] == "gateway-lost"
            assert not status["error"]["is_permanent"]
            assert status["failed"] == 0
            assert kit.journals(destination) != []
            assert kit.uploads(destination) != []
            assert set(kit.uploads(destination)) <= kit.named_uploads(destination)

    asyncio.run(scenario())


def test_a_lead_that_leaves_says_so_and_another_source_goes_on(
    fleet_of: Any, kit: Any, gate: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        routes = (kit.route(0, "a", "b"), kit.route(1, "c", "b"))
        async with fleet_of(*routes, **SETTINGS) as fleet:
            destination, spec, held = await begin(fleet, kit, gate)
            fleet.service("a").request_leave("SIGTERM")
            for call in (
                lambda: fleet.client("a").transfer_status(KEY),
                fleet.client("a").status,
            ):
                with pytest.raises(GatewayDraining, match="SIGTERM"):
                    await asyncio.to_thread(call)
            held.open()
            await fleet.gateways["a"].close()
            assert kit.named_uploads(destination) == set(kit.uploads(destination)) != set()

            next_lead, sink = fleet.client("c"), fleet.client("b")
            for client, side, store in (
                (next_lead, "source", spec.source),
                (sink, "sink", spec.destination),
            ):
                await asyncio.to_thread(
                    client.attach, KEY, epoch=2, side=side, store=store, credentials=None
                )
            await asyncio.to_thread(next_lead.submit, KEY, epoch=2, spec=spec)
            lead = fleet.service("c").lead(KEY)
            await fleet.until(lambda: lead.status()["state"] != "running")
            assert lead.status()["state"] == "succeeded"
        assert kit.content(destination) == BODIES

    asyncio.run(scenario())


def test_when_all_leave_at_once_what_a_resume_needs_stays(
    fleet_of: Any, kit: Any, gate: Callable[..., Any]
) -> None:
    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "r", "b"), **SETTINGS) as fleet:
            destination, _, held = await begin(fleet, kit, gate)
            leaving = [asyncio.create_task(leave(fleet, node)) for node in ("b", "r", "a")]
            await asyncio.sleep(0)
            held.open()
            async with asyncio.timeout(25):
                await asyncio.gather(*leaving)
            error = fleet.service("a").lead(KEY).status()["error"]
            assert not error["is_permanent"]
            assert set(kit.uploads(destination)) <= kit.named_uploads(destination)
            assert kit.uploads(destination) != []

    asyncio.run(scenario())


def test_what_cannot_be_finished_is_left(fleet_of: Any, kit: Any, gate: Callable[..., Any]) -> None:
    """A store that does not answer must not hold it up: the machine is gone soon."""

    async def scenario() -> None:
        routes = (kit.route(0, "a", "b"), kit.route(1, "a", "d"))
        async with fleet_of(*routes, **SETTINGS) as fleet:
            destination, _, held = await begin(fleet, kit, gate)
            service = fleet.service("d")
            service.request_leave("SIGTERM")
            await service.leave(within_s=0.1)
            held.open()
            assert (await fleet.ended(KEY))["state"] == "succeeded"
        assert kit.content(destination) == BODIES

    asyncio.run(scenario())
