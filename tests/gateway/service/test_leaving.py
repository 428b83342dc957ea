"""Gateways that are told to end by their machine (SIGTERM, a spot notice) in mid-transfer."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from skyplane_gateway.common.errors import GatewayDraining, StoreUnavailable, UnknownTransfer
from skyplane_gateway.config import MIB, AttachOrder
from skyplane_gateway.transfer_sides import TransferSides

CHUNK = MIB
KEY = "57" * 16
BODIES = {f"large{n}": bytes([n]) * (5 * MIB) for n in range(4)} | {
    f"small{n}": bytes([n]) * 100 for n in range(20)
}


async def leave(fleet: Any, node: str) -> None:
    """As SIGTERM does."""
    fleet.service(node).request_leave("SIGTERM")
    await fleet.gateways[node].close()


async def begin(fleet: Any, kit: Any, gate: Any) -> tuple[Any, Any]:
    """A transfer with its writes under way: destination and what it copies."""
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, BODIES)
    await fleet.attach(KEY, source, destination)
    spec = kit.copy_spec(source, destination, chunk_bytes=CHUNK)
    await fleet.submit(KEY, spec)
    await fleet.until(lambda: gate.waiting >= 4)
    await fleet.until(
        lambda: set(kit.uploads(destination)) == kit.named_uploads(destination) != set()
    )
    return destination, spec


async def test_a_leaving_lead_is_draining_and_another_source_resumes(
    fleet_of: Any, kit: Any, gate: Any
) -> None:
    routes = (kit.route(0, "a", "b"), kit.route(1, "c", "b"))
    async with fleet_of(*routes, over_tls=True) as fleet:
        destination, spec = await begin(fleet, kit, gate)
        fleet.service("a").request_leave("SIGTERM")
        for call in (
            lambda: fleet.client("a").transfer_status(KEY),
            fleet.client("a").status,
        ):
            with pytest.raises(GatewayDraining, match="SIGTERM"):
                await asyncio.to_thread(call)
        gate.open()
        await fleet.gateways["a"].close()
        assert kit.named_uploads(destination) == set(kit.uploads(destination)) != set()

        next_lead, sink = fleet.client("c"), fleet.client("b")
        for client, order in (
            (next_lead, AttachOrder(2, "source", spec.source)),
            (sink, AttachOrder(2, "sink", spec.destination)),
        ):
            await asyncio.to_thread(client.attach, KEY, order)
        await asyncio.to_thread(next_lead.submit, KEY, epoch=2, spec=spec)
        lead = fleet.service("c").leads.transfer(KEY)
        await fleet.until(lambda: lead.status()["state"] != "running")
        assert lead.status()["state"] == "succeeded"
    assert kit.content(destination) == BODIES


async def test_a_leaving_gateway_does_not_wait_for_a_hanging_store(
    fleet_of: Any, kit: Any, gate: Any
) -> None:
    """A store that does not answer must not hold it up: the machine is gone soon."""

    routes = (kit.route(0, "a", "b"), kit.route(1, "a", "d"))
    async with fleet_of(*routes, over_tls=True) as fleet:
        destination, _ = await begin(fleet, kit, gate)
        service = fleet.service("d")
        service.request_leave("SIGTERM")
        await service.leave(within_s=0.1)
        gate.open()
        assert (await fleet.ended(KEY))["state"] == "succeeded"
    assert kit.content(destination) == BODIES


async def test_a_gateway_that_ends_during_a_submit_begins_no_transfer(
    fleet_of: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would stop it: it would end as cancelled, and take its journal along."""
    asked, answer = asyncio.Event(), asyncio.Event()
    store_verb = TransferSides.store_verb

    async def answers_late(
        endpoints: TransferSides, key: str, epoch: int, verb: str, arguments: Any
    ) -> Any:
        asked.set()
        await answer.wait()
        return await store_verb(endpoints, key, epoch, verb, arguments)

    async with fleet_of(kit.route(0, "a", "b"), over_tls=True) as fleet:
        source, destination = kit.memory_spec(), kit.memory_spec()
        kit.fill(source, {"k": b"v"})
        await fleet.attach(KEY, source, destination)
        monkeypatch.setattr(TransferSides, "store_verb", answers_late)
        submitting = asyncio.create_task(fleet.submit(KEY, kit.copy_spec(source, destination)))
        await asked.wait()
        fleet.service("a").request_leave("SIGTERM")
        await fleet.service("a").leave()
        answer.set()
        with pytest.raises(GatewayDraining, match="takes no"):
            await submitting
        with pytest.raises(UnknownTransfer):
            fleet.service("a").leads.transfer(KEY)


async def test_an_upload_that_a_leaving_sink_may_have_begun_is_aborted(
    fleet_of: Any, kit: Any, wrap_stores: Any
) -> None:
    begun: list[str] = []
    go_on = threading.Event()

    def lose_first_answer(original: Any, key: str, *arguments: Any) -> str:
        upload_id: str = original(key, *arguments)
        begun.append(upload_id)
        if len(begun) == 1:
            go_on.wait(60)
            raise StoreUnavailable("the connection broke before the answer")
        return upload_id

    wrap_stores(create_upload=lose_first_answer)
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"large": b"x" * (5 * MIB)})
    async with fleet_of(kit.route(0, "a", "b"), kit.route(1, "a", "d"), over_tls=True) as fleet:
        await fleet.attach(KEY, source, destination)
        await fleet.submit(KEY, kit.copy_spec(source, destination, chunk_bytes=CHUNK))
        await fleet.until(lambda: len(begun) == 1)
        (doomed,) = (n for n in ("b", "d") if fleet.service(n).endpoints.verb_threads._calls)
        leaving = asyncio.create_task(leave(fleet, doomed))
        await asyncio.sleep(0)
        go_on.set()
        await leaving
        assert (await fleet.ended(KEY))["state"] == "succeeded"
    assert kit.uploads(destination) == []
