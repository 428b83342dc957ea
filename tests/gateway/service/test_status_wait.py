"""Polls that wait for the end of a transfer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skyplane_gateway.common.errors import GatewayDraining

KEY = "5a" * 16


async def begin(fleet: Any, kit: Any, gate: Any) -> None:
    """A transfer of one object whose write waits."""
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"a": b"x"})
    await fleet.attach(KEY, source, destination)
    await fleet.submit(KEY, kit.copy_spec(source, destination))
    await fleet.until(lambda: gate.waiting == 1)


def poll(fleet: Any, wait_s: float) -> asyncio.Task[dict[str, Any]]:
    client = fleet.client("a")
    return asyncio.create_task(asyncio.to_thread(client.transfer_status, KEY, wait_s=wait_s))


async def test_a_poll_waits_for_the_end(fleet_of: Any, kit: Any, gate: Any) -> None:
    async with fleet_of(kit.route(1, "a", "b"), over_tls=True) as fleet:
        await begin(fleet, kit, gate)
        lead = fleet.service("a").leads.transfer(KEY)
        waiting, patient = poll(fleet, 60.0), asyncio.create_task(lead.wait_for_end(3600.0))
        gate.open()
        document = await waiting
        await patient
        assert (document["state"], document["copied"], document["waited"]) == ("succeeded", 1, True)
        assert (await poll(fleet, 60.0))["state"] == "succeeded", "an end is reported at once"


async def test_a_poll_answers_while_the_transfer_runs(fleet_of: Any, kit: Any, gate: Any) -> None:
    async with fleet_of(kit.route(1, "a", "b")) as fleet:
        await begin(fleet, kit, gate)
        states = [await poll(fleet, wait_s) for wait_s in (0.01, 0.0)]
        assert [(row["state"], row["waited"]) for row in states] == [
            ("running", True),
            ("running", False),
        ]
        gate.open()
        await fleet.ended(KEY)


async def test_a_poll_that_waits_hears_that_its_lead_leaves(
    fleet_of: Any, kit: Any, gate: Any
) -> None:
    async with fleet_of(kit.route(1, "a", "b"), over_tls=True) as fleet:
        await begin(fleet, kit, gate)
        lease = fleet.service("a").lease
        lease.renew(1.0)
        waiting = poll(fleet, 60.0)
        await fleet.until(lambda: lease.remaining_s > 1.0)
        fleet.service("a").request_leave("SIGTERM")
        gate.open()
        await fleet.gateways["a"].close()
        with pytest.raises(GatewayDraining, match="SIGTERM"):
            await waiting
