"""What goes wrong in a transfer comes out as a clear failure that leaves nothing open."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.faults.stranger import answering

from skyplane_gateway.common.errors import (
    GatewayLost,
)
from skyplane_gateway.config import MIB
from skyplane_gateway.protocol.frames import seal_frame
from skyplane_gateway.selection.selector import JOURNAL_FOLDER
from skyplane_gateway.stores.local.error_mapping import translate


async def vanish(fleet: Any, node: str) -> None:
    """The gateway is gone as after kill -9: nobody listens, every connection is broken."""
    gateway = fleet.gateways[node]
    gateway.keeper.cancel()
    gateway.data.close()
    gateway.service.route_is_down = lambda number, loss: None
    for route in gateway.service.router._routes.values():
        for link in route.links:
            link._transport.abort()
    gateway.service.router.close()
    await gateway.close_control()


async def test_a_full_destination_fails_the_transfer_and_a_resume_completes_it(
    fleet_of: Any, kit: Any, wrap_stores: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing can be written, the journal included, until somebody frees some space."""
    is_full, has_ended = threading.Event(), threading.Event()
    is_full.set()

    def put(original: Any, key: str, *arguments: Any, **more: Any) -> Any:
        if is_full.is_set() and JOURNAL_FOLDER not in key:
            has_ended.wait(60)
        if is_full.is_set() and (JOURNAL_FOLDER not in key or key in written):
            raise translate(OSError(errno.ENOSPC, "No space left on device"), f"writing {key}")
        written.add(key)
        return original(key, *arguments, **more)

    written: set[str] = set()

    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = {f"o{i}": bytes([i]) * 100 for i in range(6)}
    kit.fill(source, objects)
    wrap_stores(put=put)
    spec, transfer = kit.copy_spec(source, destination), "77" * 16
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        await fleet.attach(transfer, source, destination)
        await fleet.submit(transfer, spec)
        status = await fleet.ended(transfer)
        has_ended.set()
        assert (status["state"], status["error"]["is_permanent"]) == ("failed", False)
        assert "No space left" in status["error"]["message"]
        counts = [status[name] for name in ("objects", "copied", "failed", "unfinished")]
        assert counts == [6, 0, 0, 6]
        is_full.clear()
        await fleet.attach(transfer, source, destination, epoch=2)
        await fleet.submit(transfer, spec, epoch=2)
        status = await fleet.ended(transfer)
        assert (status["error"], status["copied"], status["unfinished"]) == (None, 6, 0)
        assert kit.content(destination) == objects


PATHS: dict[str, list[tuple[str, ...]]] = {
    "relay": [("a", "r", "b"), ("a", "c")],
    "source": [("a", "b"), ("c", "b")],
    "sink": [("a", "b"), ("a", "c")],
}


@pytest.mark.parametrize("role", ["source", "sink"])
async def test_a_gateway_whose_address_was_reused_counts_as_lost(
    role: str, fleet_of: Any, kit: Any, tmp_path: Path
) -> None:
    """A dead gateway whose address went to another machine was a permanent failure."""

    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = {f"o{i}": bytes([i]) * (3 * MIB) for i in range(6)}
    kit.fill(source, objects)
    transfer, lost = "77" * 16, {"source": "c", "sink": "b"}[role]
    routes = [kit.route(number, *nodes) for number, nodes in enumerate(PATHS[role])]
    with answering(("127.0.0.1", 0), tmp_path) as address:
        async with fleet_of(*routes) as fleet:
            await fleet.attach(transfer, source, destination)
            known = fleet.topology()
            elsewhere = {**known.control_addresses, lost: address}
            fleet.service("a").apply_topology(replace(known, control_addresses=elsewhere))
            await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
            status = await fleet.ended(transfer)
            assert status["error"] is None
            assert set(status[f"lost_{role}s"]) == {lost}
            assert kit.content(destination) == objects


async def test_a_connection_lost_in_mid_transfer_is_made_again(
    fleet_of: Any, kit: Any, gate: Any
) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = {f"o{i}": bytes([i]) * (3 * MIB) for i in range(6)}
    kit.fill(source, objects)
    transfer = "77" * 16
    async with fleet_of(kit.route(0, "a", "r", "b")) as fleet:
        await fleet.attach(transfer, source, destination)
        await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
        await fleet.until(lambda: gate.waiting > 0)
        for route in fleet.service("r").router._routes.values():
            for link in route.links:
                link._transport.abort()
        gate.open()
        status = await fleet.ended(transfer)
        assert status["error"] is None
        assert status["routes_down"] == {}
        assert kit.content(destination) == objects
        assert kit.uploads(destination) == []


async def test_without_any_path_left_the_transfer_fails_clearly(
    fleet_of: Any, kit: Any, gate: Any
) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    kit.fill(source, {f"o{i}": bytes(3 * MIB) for i in range(6)})
    transfer = "77" * 16
    routes = kit.route(0, "a", "r", "b")
    async with fleet_of(routes, over_tls=True, ack_deadline_s=0.5) as fleet:
        await fleet.attach(transfer, source, destination)
        await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
        await fleet.until(lambda: gate.waiting > 0)
        await vanish(fleet, "r")
        gate.open()
        status = await fleet.ended(transfer)
        assert status["state"] == "failed"
        assert status["error"]["code"] == "gateway-lost"
        assert not status["error"]["is_permanent"]
        assert "a -> r -> b" in status["error"]["message"]
        assert list(status["routes_down"]) == ["0"]
        # Open uploads are kept, and the journal names them, for a resume.
        assert status["open_uploads"] == []
        assert set(kit.uploads(destination)) <= kit.named_uploads(destination)
        with pytest.raises(GatewayLost, match="no path is up"):
            await fleet.submit(transfer, kit.copy_spec(source, destination), epoch=2)
        for node in ("a", "b"):
            await asyncio.to_thread(fleet.client(node).cancel, transfer)
        assert (kit.uploads(destination), kit.journals(destination)) == ([], [])


async def test_a_submit_is_taken_while_one_path_is_up(fleet_of: Any, kit: Any) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = {f"o{i}": bytes([i]) * MIB for i in range(6)}
    kit.fill(source, objects)
    routes = [kit.route(0, "a", "r", "b"), kit.route(1, "a", "c")]
    async with fleet_of(*routes, over_tls=True) as fleet:
        transfer = "78" * 16
        await fleet.attach(transfer, source, destination)
        for lost in ("r", "b"):
            await vanish(fleet, lost)
        await fleet.until(lambda: fleet.service("a").router.loss(0))
        await fleet.submit(transfer, kit.copy_spec(source, destination))
        status = await fleet.ended(transfer)
        assert status["error"] is None
        assert status["delivered_bytes"] == {"0": 0, "1": 6 * MIB}
        assert kit.content(destination) == objects


async def test_12_a_byte_flipped_before_framing_is_read_again_and_counted(
    fleet_of: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its checksum was taken before; only the object it hits takes another attempt."""
    is_flipped = False

    def flipping(header: Any, offset: int, payload: Any, *checks: Any, **more: Any) -> Any:
        nonlocal is_flipped
        body = b"".join(payload)
        if b"hit" in body and not is_flipped:
            is_flipped = True
            payload = [body.replace(b"hit", b"hid")]
        return seal_frame(header, offset, payload, *checks, **more)

    monkeypatch.setattr("skyplane_gateway.protocol.framer.seal_frame", flipping)

    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = {"hit": b"hit" * MIB, "other": b"o" * (3 * MIB)}
    kit.fill(source, objects)
    async with fleet_of(kit.route(0, "a", "b")) as fleet:
        status = await fleet.run(kit.copy_spec(source, destination, chunk_bytes=4 * MIB))
        assert (status["state"], status["error"]) == ("succeeded", None)
        rows = fleet.service("a").leads.transfer(status["transfer_key"]).report.page(0)["rows"]
    assert is_flipped
    assert {row["source"]: row["attempts"] for row in rows} == {"hit": 2, "other": 1}
    assert kit.content(destination) == objects
    assert kit.uploads(destination) == []


def test_a_fleet_that_ends_in_good_order_warns_of_nothing(
    fleet_of: Any, kit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "r", "b"), over_tls=True) as fleet:
            await fleet.gateways["a"].close()
            await fleet.until(lambda: fleet.service("b").router.loss(0))
            assert "a is ending" in str(fleet.service("b").router.loss(0))

    asyncio.run(scenario())
    assert [record.message for record in caplog.records if record.levelname == "WARNING"] == []


def test_a_gateway_that_is_lost_is_warned_of(
    fleet_of: Any, kit: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def is_warned() -> bool:
        warned = [record.message for record in caplog.records if record.levelname == "WARNING"]
        return any("the connection to a broke" in message for message in warned)

    async def scenario() -> None:
        async with fleet_of(kit.route(0, "a", "r", "b")) as fleet:
            (route,) = fleet.service("r").router._routes.values()
            for link in route.upstream_links:
                link._transport.abort()
            # Not for the loss itself: the path is built again within milliseconds.
            await fleet.until(is_warned)

    asyncio.run(scenario())
