"""Every queue is bounded, and a relay does not wait for the whole of anything."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from skyplane_gateway.common.identifiers import wire_fleet_id
from skyplane_gateway.config import MIB
from skyplane_gateway.protocol import ChunkFramer, ChunkId, ChunkManifest, PartEntry

SMALL = {"assembly_mib": 4, "readers": 2, "store_threads": 2}


async def test_a_slow_sink_stops_the_source(fleet_of: Any, kit: Any, gate: Any) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    objects = {f"o{i:02}": os.urandom(MIB) for i in range(40)}
    kit.fill(source, objects)
    transfer = "ab" * 16
    async with fleet_of(kit.route(0, "a", "r", "b"), **SMALL) as fleet:
        await fleet.attach(transfer, source, destination)
        await fleet.submit(transfer, kit.copy_spec(source, destination, chunk_bytes=MIB))
        await fleet.until(lambda: fleet.service("b").sink.held_bytes >= 4 * MIB)
        # Everything that could still move has had its turn when the loop is idle.
        for _ in range(200):
            await asyncio.sleep(0)
        assert gate.read_bytes <= 4 * MIB
        assert fleet.service("b").sink.held_bytes <= 4 * MIB
        gate.open()
        status = await fleet.ended(transfer)
        assert status["state"] == "succeeded"
        assert gate.read_bytes == 40 * MIB
        assert kit.content(destination) == objects


async def test_a_chunk_beyond_the_memory_of_the_sink_is_refused(fleet_of: Any, kit: Any) -> None:
    """Somebody who does not keep to the grants gets refusals, and memory stays bounded."""

    source, destination = kit.memory_spec(), kit.memory_spec()
    transfer = bytes.fromhex("cd" * 16)
    async with fleet_of(kit.route(0, "a", "b"), **SMALL) as fleet:
        await fleet.attach(transfer.hex(), source, destination)
        sender, sink = fleet.service("a").router, fleet.service("b").sink
        fleet_id = wire_fleet_id(fleet.key)
        for number in range(12):
            chunk = ChunkId(fleet_id, transfer, 1, 0, 1, number)
            entry = PartEntry("k", "no-such-upload", 1, 0)
            framer = ChunkFramer(chunk, ChunkManifest(2 * MIB, entry))
            # Only the first frame: the chunk stays incomplete and is held.
            for frame in list(framer.feed(bytes(2 * MIB)))[:1]:
                await sender.send_frame(frame)
        await fleet.until(lambda: len(sink._ended) >= 10)
        assert sink.held_bytes <= 4 * MIB


async def test_a_relay_passes_a_frame_on_before_the_chunk_is_whole(fleet_of: Any, kit: Any) -> None:
    source, destination = kit.memory_spec(), kit.memory_spec()
    transfer = bytes.fromhex("ef" * 16)
    async with fleet_of(kit.route(0, "a", "r", "b"), assembly_mib=16) as fleet:
        await fleet.attach(transfer.hex(), source, destination)
        chunk = ChunkId(wire_fleet_id(fleet.key), transfer, 1, 0, 1, 1)
        framer = ChunkFramer(chunk, ChunkManifest(8 * MIB, PartEntry("k", "u", 1, 0)))
        first = next(iter(framer.feed(bytes(2 * MIB))))
        await fleet.service("a").router.send_frame(first)
        sink = fleet.service("b").sink
        await fleet.until(lambda: sink.held_bytes > 0)
        (statistics,) = fleet.service("r").router.statistics()
        assert statistics["frames"] == 1
        assert statistics["waiting_frames"] == 0


async def test_a_relay_stops_reading_while_the_next_hop_takes_nothing(
    fleet_of: Any, kit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfer = bytes.fromhex("0f" * 16)
    async with fleet_of(kit.route(0, "a", "r", "b", connections=1), assembly_mib=64) as fleet:
        relay, sender = fleet.service("r").router, fleet.service("a").router
        (route,) = relay._routes.values()
        (downstream,) = route.downstream_links
        downstream.is_ready = False  # As if its peer had stopped reading.
        chunk = ChunkId(wire_fleet_id(fleet.key), transfer, 1, 0, 1, 1)
        framer = ChunkFramer(chunk, ChunkManifest(64 * MIB, PartEntry("k", "u", 1, 0)))

        async def send() -> None:
            for frame in framer.feed(bytes(64 * MIB)):
                await sender.send_frame(frame)

        sending = asyncio.create_task(send())
        await fleet.until(lambda: not next(iter(sender._routes.values())).ready_link())
        for _ in range(200):
            await asyncio.sleep(0)
        assert not sending.done()
        assert len(route.waiting) == 1
        downstream.is_ready = True
        relay.link_writable(downstream)
        await sending
