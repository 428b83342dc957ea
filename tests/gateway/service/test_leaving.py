"""Gateways that are told to end by their machine (SIGTERM, a spot notice) in mid-transfer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from skyplane_gateway.config import MIB
from skyplane_gateway.endpoints import Endpoints
from skyplane_gateway.errors import GatewayDraining, StoreUnavailable, UnknownTransfer
from skyplane_gateway.stores import open_store

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
            lead = fleet.service("c").leads.transfer(KEY)
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
            error = fleet.service("a").leads.transfer(KEY).status()["error"]
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


def test_a_transfer_is_not_begun_by_a_gateway_that_was_told_to_end_meanwhile(
    fleet_of: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would stop it: it would end as cancelled, and take its journal along."""
    asked, answer = asyncio.Event(), asyncio.Event()
    store_verb = Endpoints.store_verb

    async def answers_late(
        endpoints: Endpoints, key: str, epoch: int, verb: str, arguments: Any
    ) -> Any:
        asked.set()
        await answer.wait()
        return await store_verb(endpoints, key, epoch, verb, arguments)

    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "b"), **SETTINGS) as fleet:
            source, destination = kit.memory_spec(), kit.memory_spec()
            kit.fill(source, {"k": b"v"})
            await fleet.attach(KEY, source, destination)
            monkeypatch.setattr(Endpoints, "store_verb", answers_late)
            submitting = asyncio.create_task(fleet.submit(KEY, kit.copy_spec(source, destination)))
            await asked.wait()
            fleet.service("a").request_leave("SIGTERM")
            await fleet.service("a").leave()
            answer.set()
            with pytest.raises(GatewayDraining, match="takes no"):
                await submitting
            with pytest.raises(UnknownTransfer):
                fleet.service("a").leads.transfer(KEY)

    asyncio.run(scenario())


class _Lost:
    def __init__(self) -> None:
        self.at_sink: int | None = None
        self.go_on = threading.Event()


class _LosesTheFirstAnswer:
    """A store of one sink: it begins an upload, and nobody hears of that."""

    def __init__(self, store: Any, lost: _Lost, number: int) -> None:
        self._store = store
        self._lost = lost
        self._number = number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def create_upload(self, *arguments: Any, **more: Any) -> Any:
        made = self._store.create_upload(*arguments, **more)
        if self._lost.at_sink is None:
            self._lost.at_sink = self._number
            self._lost.go_on.wait(60)
            raise StoreUnavailable("the connection broke before the answer")
        return made


def test_an_upload_that_a_leaving_sink_may_have_begun_is_looked_for(
    fleet_of: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {"large": b"x" * (5 * MIB)})
    lost = _Lost()
    opened: list[_LosesTheFirstAnswer] = []

    def open_watched(spec: Any, credentials: Any = None) -> Any:
        store = open_store(spec, credentials)
        if spec != destination:
            return store
        opened.append(_LosesTheFirstAnswer(store, lost, len(opened)))
        return opened[-1]

    monkeypatch.setattr("skyplane_gateway.endpoints.open_store", open_watched)

    async def scenario() -> None:
        routes = (kit.route(0, "a", "b"), kit.route(1, "a", "d"))
        async with fleet_of(*routes, **SETTINGS) as fleet:
            await fleet.attach(KEY, source, destination)
            await fleet.submit(KEY, kit.copy_spec(source, destination, chunk_bytes=CHUNK))
            await fleet.until(lambda: lost.at_sink is not None)
            doomed = fleet.topology().sinks[lost.at_sink]
            leaving = asyncio.create_task(leave(fleet, doomed))
            await asyncio.sleep(0)
            lost.go_on.set()
            await leaving
            assert (await fleet.ended(KEY))["state"] == "succeeded"
        assert kit.uploads(destination) == []

    asyncio.run(scenario())
