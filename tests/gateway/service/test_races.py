"""Releases while a transfer runs, unexpected errors, what transfers leave behind, and bounds."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.gateway.service.in_process_fleet import buckets, content, copy_spec, fill, route, uploads

from skyplane_gateway.common.errors import SkyplaneError
from skyplane_gateway.common.identifiers import wire_fleet_id
from skyplane_gateway.config import MIB
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, PartEntry
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.messages import ChunkId

# Releases while a transfer runs, unexpected errors, and what transfers leave behind.


KEY = "ab" * 16


async def test_nothing_is_written_once_a_release_has_returned(fleet_of: Any, gate: Any) -> None:
    source, destination = buckets({"a": bytes(MIB)})
    async with fleet_of() as fleet:
        await fleet.begin(KEY, copy_spec(source, destination))
        await fleet.until(lambda: gate.waiting > 0)
        release = asyncio.create_task(asyncio.to_thread(fleet.client("b").release, KEY, 1))
        await fleet.until(lambda: not fleet.service("b").sink._transfers)
        assert not release.done()
        gate.open()
        await release
        written = content(destination)
        await asyncio.to_thread(fleet.client("a").cancel, KEY)
        assert content(destination) == written


async def test_a_new_lead_may_count_its_chunks_from_one_again(fleet_of: Any) -> None:
    """The sinks have released the transfer of the old lead."""

    source, destination = buckets({"a": b"1", "b": b"2"})
    spec = copy_spec(source, destination)
    async with fleet_of(ack_deadline_s=2.0) as fleet:
        for _ in range(2):
            await fleet.begin(KEY, spec)
            assert (await fleet.ended(KEY))["error"] is None
            await fleet.heard(KEY, spec)
            del fleet.service("a").leads._runs[KEY]


@pytest.mark.parametrize(("method", "size"), [("put", 10), ("put_part", 3 * MIB), ("read", 10)])
async def test_an_unforeseen_error_of_a_store_fails_its_object_alone(
    method: str,
    size: int,
    fleet_of: Any,
    wrap_stores: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """An error that no store should raise still gives its chunk an outcome."""

    def fail(original: Any, key: str, *arguments: Any, **more: Any) -> Any:
        if key == "bad":
            raise KeyError("a defect")
        return original(key, *arguments, **more)

    source, destination = buckets({"bad": bytes(size), "good": b"1"})
    wrap_stores(**{method: fail})
    async with fleet_of() as fleet:
        status = await fleet.run(copy_spec(source, destination, chunk_bytes=MIB))
        assert status["state"] == "failed"
        assert content(destination) == {"good": b"1"}
        (failure,) = status["failures"]
        assert (failure["destination"], failure["code"]) == ("bad", "internal-error")
        node = "source gateway a" if method == "read" else "sink gateway b"
        assert f"'bad': the {node} failed" in failure["reason"]
        assert "(" not in failure["reason"], "a Python repr"
        assert "KeyError: 'a defect'" in caplog.text, "no traceback in the log"
        assert uploads(destination) == []
        # Parts of the failed object that were under way still come to their end.
        await fleet.until(lambda: fleet.service("b").sink.held_bytes == 0)


async def test_an_unforeseen_error_at_the_lead_ends_its_transfer(
    fleet_of: Any,
    wrap_stores: Callable[..., None],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail(original: Any, *arguments: Any, **more: Any) -> Any:
        raise RuntimeError("a defect")

    source, destination = buckets({"a": b"1"})
    wrap_stores(list=fail)
    async with fleet_of() as fleet:
        status = await fleet.run(copy_spec(source, destination))
        assert (status["state"], status["error"]["code"]) == ("failed", "internal-error")
        assert "RuntimeError: a defect" in caplog.text, "no traceback in the log"


async def test_an_object_that_cannot_be_read_to_its_end_holds_no_room_at_the_sink(
    fleet_of: Any, wrap_stores: Callable[..., None]
) -> None:
    """Each leaves half a chunk behind; sixteen would fill the sink four times over."""

    class Breaking:
        def __init__(self, reader: Any) -> None:
            self._reader, self._left = reader, 1

        def __getattr__(self, name: str) -> Any:
            return getattr(self._reader, name)

        def readinto(self, buffer: memoryview) -> int:
            if self._left == 0:
                raise SkyplaneError("the file was changed while it was read", is_permanent=True)
            self._left -= 1
            count: int = self._reader.readinto(buffer)
            return count

    def breaking(original: Any, key: str, **more: Any) -> Any:
        reader = original(key, **more)
        return Breaking(reader) if key.startswith("bad") else reader

    source, destination = buckets()
    bad = {f"bad{i:02}": bytes(2 * MIB) for i in range(16)}
    good = {f"good{i:02}": bytes(2 * MIB) for i in range(8)}
    fill(source, {**bad, **good})
    wrap_stores(read=breaking)
    spec = copy_spec(source, destination, chunk_bytes=2 * MIB)
    async with fleet_of(route(0, "a", "r", "b")) as fleet:
        status = await fleet.run(spec)
        assert (status["copied"], status["failed"]) == (8, 16)
        assert content(destination) == good
        await fleet.until(lambda: fleet.service("b").sink.held_bytes == 0)


async def test_many_transfers_leave_no_thread_and_no_connection(fleet_of: Any) -> None:
    source, destination = buckets({f"o{i}": bytes(MIB) for i in range(4)})
    spec = copy_spec(source, destination, chunk_bytes=MIB)
    routes = [route(0, "a", "b"), route(1, "c", "b")]
    async with fleet_of(*routes) as fleet:

        async def one(number: int) -> None:
            key = f"{number:032x}"
            await fleet.begin(key, spec)
            assert (await fleet.ended(key))["error"] is None
            for node in fleet.nodes:
                await asyncio.to_thread(fleet.client(node).release, key, 1)

        for number in range(3):
            await one(number)
        gc.collect()
        tasks, threads = len(asyncio.all_tasks()), threading.active_count()
        for number in range(3, 12):
            await one(number)
        # The test's own calls leave connections for the collector to close.
        gc.collect()
        await fleet.until(lambda: len(asyncio.all_tasks()) <= tasks + 2)
        # The pools of the one event loop grow to their size, and no further.
        assert threading.active_count() <= threads + 128
        for node in fleet.nodes:
            service = fleet.service(node)
            assert service.endpoints.sources == service.endpoints.destinations == {}
            assert service.sink.held_bytes == 0
            assert len(service.sink._ended) == 0


# Every queue is bounded, and a relay does not wait for the whole of anything.


SMALL = {"assembly_mib": 4, "readers": 2, "store_threads": 2}


async def test_a_slow_sink_stops_the_source(fleet_of: Any, gate: Any) -> None:
    source, destination = buckets()
    objects = {f"o{i:02}": os.urandom(MIB) for i in range(40)}
    fill(source, objects)
    transfer = "ab" * 16
    async with fleet_of(route(0, "a", "r", "b"), **SMALL) as fleet:
        await fleet.begin(transfer, copy_spec(source, destination, chunk_bytes=MIB))
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
        assert content(destination) == objects


async def test_a_chunk_beyond_the_memory_of_the_sink_is_refused(fleet_of: Any) -> None:
    """Somebody who does not keep to the grants gets refusals, and memory stays bounded."""

    source, destination = buckets()
    transfer = bytes.fromhex("cd" * 16)
    async with fleet_of(**SMALL) as fleet:
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


async def test_a_relay_passes_a_frame_on_before_the_chunk_is_whole(fleet_of: Any) -> None:
    source, destination = buckets()
    transfer = bytes.fromhex("ef" * 16)
    async with fleet_of(route(0, "a", "r", "b"), assembly_mib=16) as fleet:
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
    fleet_of: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfer = bytes.fromhex("0f" * 16)
    async with fleet_of(route(0, "a", "r", "b", connections=1), assembly_mib=64) as fleet:
        relay, sender = fleet.service("r").router, fleet.service("a").router
        (way,) = relay._routes.values()
        (downstream,) = way.downstream_links
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
        assert len(way.waiting) == 1
        downstream.is_ready = True
        relay.link_writable(downstream)
        await sending
