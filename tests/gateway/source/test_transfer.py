"""The source: what it reads, sends and reports."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest
from tests.gateway.source.lab import KEY, Routes, Sink, Stuck, source_of
from tests.gateway.transport.lab import until
from tests.memory_store import MemoryReader, MemoryStore, create_bucket

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import (
    MetadataNotCarried,
    StoreUnavailable,
    UnknownTransfer,
)
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, PartEntry
from skyplane_gateway.protocol.frames import MAX_PAYLOAD_BYTES, RawFrame
from skyplane_gateway.protocol.limits import MAX_FRAMES
from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.sealing import UNSEALED
from skyplane_gateway.source.bandwidth import Bandwidth
from skyplane_gateway.source.chunk_orders import ChunkOrder, RangeOrder, RangeOutcome
from skyplane_gateway.source.order_queue import OrderQueue


async def test_the_largest_chunk_goes_in_full_frames() -> None:
    with ThreadPoolExecutor(1) as threads:
        source = source_of(threads)
        length = (MAX_FRAMES - 1) * MAX_PAYLOAD_BYTES
        manifest = ChunkManifest(length, PartEntry("k", "u", 1, 0))
        framer = source._framer(ChunkId(bytes(8), KEY, 1, 0, 1, 1), manifest, UNSEALED)
        assert framer.next_bytes > MAX_PAYLOAD_BYTES - 1000
        await source.close()


async def test_a_sink_learns_that_no_rest_of_an_earlier_attempt_comes() -> None:
    create_bucket("replaced")
    store, routes = MemoryStore(StoreSpec("memory", "replaced")), Stuck()
    wanted = RangeOrder("a", store.put("a", bytes(100)).etag, 0, 100, "to/a")
    with ThreadPoolExecutor(2) as threads:
        source = source_of(threads, store, routes)
        source.take(ChunkOrder(1, 1, 0, "objects", (wanted,)))
        await routes.is_stuck.wait()
        source.take(ChunkOrder(1, 2, 0, "objects", (wanted,)))
        routes.is_free.set()
        await until(lambda: len(routes.sent) == 13)
        await source.close()
    first = [frame for frame in routes.sent if frame.header.chunk_id.attempt == 1]
    assert [(frame.header.is_last, frame.payload_bytes) for frame in first] == [
        (False, 10),
        (False, 10),
        (True, 0),
    ]


class _OneStuck(Routes):
    """Route 0 takes no frame."""

    async def send_frame(self, frame: RawFrame, turn: float = 0.0) -> None:
        if frame.header.chunk_id.route == 0:
            await asyncio.Event().wait()
        await super().send_frame(frame, turn)


async def test_a_route_that_takes_no_frame_leaves_a_reader_to_the_others() -> None:
    create_bucket("one-stuck")
    store, routes = MemoryStore(StoreSpec("memory", "one-stuck")), _OneStuck()
    wanted = RangeOrder("a", store.put("a", b"x").etag, 0, 1, "to/a")
    with ThreadPoolExecutor(4) as threads:
        source = source_of(threads, store, routes, readers=2)
        for chunk in range(1, 9):
            source.take(ChunkOrder(chunk, 1, int(chunk > 4), "objects", (wanted,)))
        await until(lambda: len(routes.sent) == 4)
        await source.close()
    assert {frame.header.chunk_id.route for frame in routes.sent} == {1}


async def ended_by(store: MemoryStore, routes: Routes, *orders: ChunkOrder) -> list[RangeOutcome]:
    """Outcomes of the ranges that end first."""
    with ThreadPoolExecutor(2) as threads:
        source = source_of(threads, store, routes)
        for order in orders:
            source.take(order)
        _, ended = await source.outcomes(0, 60.0)
        await source.close()
        return list(ended[0].ranges)


class _Tagged(MemoryStore):
    """A store whose objects have tags, as its reads tell and its listings do not."""

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> MemoryReader:
        reader = super().read(key, offset=offset, length=length, if_match=if_match)
        reader.not_carried = ("tags",)
        return reader


@pytest.mark.parametrize(("kind", "count"), [("objects", 1), ("objects", 2), ("part", 1)])
async def test_an_object_with_tags_is_refused_before_a_byte_of_it_is_sent(
    kind: Literal["objects", "part"], count: int
) -> None:
    create_bucket("tagged")
    store = _Tagged(StoreSpec("memory", "tagged"))
    ranges = tuple(
        RangeOrder(key, store.put(key, b"abc").etag, 0, 3, f"to/{key}")
        for key in ("a", "b")[:count]
    )
    routes = Routes()
    order = ChunkOrder(1, 1, 0, kind, ranges, "upload", 1, strict_metadata=True)
    outcomes = await ended_by(store, routes, order)
    for wanted, outcome in zip(ranges, outcomes, strict=True):
        assert isinstance(outcome.error, MetadataNotCarried)
        assert outcome.at_source
        assert f"'{wanted.source_key}'" in outcome.error.message
        assert "tags" in outcome.error.message
    assert routes.sent == []


class _Asked(Bandwidth):
    """Tells when bytes wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def take(self, transfer: bytes, count_bytes: int) -> None:
        self.asked.set()
        await super().take(transfer, count_bytes)


async def test_a_chunk_that_waits_for_bandwidth_is_excused() -> None:
    """Else its lead would take a slow source for a lost path."""
    create_bucket("slow")
    store = MemoryStore(StoreSpec("memory", "slow"))
    etag = store.put("k", b"abc").etag
    bandwidth, routes = _Asked(), Routes()
    bandwidth.limit(KEY, 1e-3)
    with ThreadPoolExecutor(1) as threads:
        source = source_of(threads, store, routes, bandwidth)
        orders = [
            ChunkOrder(chunk, 1, 0, "objects", (RangeOrder("k", etag, 0, 3, "to/k"),))
            for chunk in (1, 2)
        ]
        for order in orders:
            source.take(order)
        # The second waits for the one reader.
        await bandwidth.asked.wait()
        assert [row[:2] for row in source.chunks() if row.is_waiting] == [(1, 1), (2, 1)]
        assert routes.sent == []
        bandwidth.limit(KEY, None)
        assert source.chunks() == []
        await source.close()


class _Broken(MemoryStore):
    """The bodies of some objects break off."""

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> MemoryReader:
        reader = super().read(key, offset=offset, length=length, if_match=if_match)
        if key == "broken":
            reader.readinto = lambda buffer: 0  # type: ignore[method-assign]
        return reader


async def test_a_range_for_the_sink_of_this_gateway_is_read_into_its_memory() -> None:
    create_bucket("local")
    store, sink = _Broken(StoreSpec("memory", "local")), Sink()
    routes = Routes(sink)
    orders = [
        ChunkOrder(number, 1, 0, "objects", (RangeOrder(key, etag, 0, 3, key),))
        for number, key in enumerate(("whole", "broken"), start=1)
        for etag in (store.put(key, b"abc").etag,)
    ]
    (outcome,) = await ended_by(store, routes, *orders)
    assert isinstance(outcome.error, StoreUnavailable)
    assert outcome.at_source
    assert sink.memory[1] == b"abc"
    assert sink.ended == {1: crc32c(b"abc")}
    assert sink.dropped == [2]
    assert routes.sent == []


async def test_a_closed_transfer_waits_for_nothing() -> None:
    with ThreadPoolExecutor(1) as threads:
        source = source_of(threads, readers=0)
        order = ChunkOrder(1, 1, 0, "objects", (RangeOrder("a", "e", 0, 1, "b"),))
        source.take(order)
        assert source.awaits(order)
        await source.close()
        assert not source.awaits(order)
        with pytest.raises(UnknownTransfer):
            source.take(order)
        with pytest.raises(UnknownTransfer):
            await source.outcomes(0, 60.0)


async def test_more_routes_than_readers_take_turns() -> None:
    queue, taken = OrderQueue(), []
    for number in range(100):
        queue.put_nowait(ChunkOrder(number, 1, number % 10, "objects", ()))
    for _ in range(4):
        taken.append(queue.get_nowait())
    for done in range(6):
        queue.done(taken[done])
        taken.append(queue.get_nowait())
    assert {order.route for order in taken} == set(range(10))
