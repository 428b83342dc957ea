"""The source: its long poll for outcomes, and what it says of what copies lack."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Literal

import pytest
from tests.gateway.transport.lab import until
from tests.memory_store import MemoryReader, MemoryStore, create_bucket

from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.common.errors import (
    MetadataNotCarried,
    SkyplaneError,
    StoreUnavailable,
    UnknownTransfer,
)
from skyplane_gateway.common.objects import ObjectAttributes, StoreSpec
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, Member, PartEntry
from skyplane_gateway.protocol.frames import MAX_PAYLOAD_BYTES, RawFrame
from skyplane_gateway.protocol.limits import MAX_FRAMES, MAX_MANIFEST
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader
from skyplane_gateway.protocol.sealing import UNSEALED
from skyplane_gateway.source.bandwidth import Bandwidth
from skyplane_gateway.source.chunk_orders import ChunkOrder, RangeOrder, RangeOutcome
from skyplane_gateway.source.join import JoinedTransfer, Shared
from skyplane_gateway.source.object_reader import Content
from skyplane_gateway.source.order_queue import OrderQueue
from skyplane_gateway.source.outcomes import SentChunk
from skyplane_gateway.source.transfer import SourceGateway, SourceTransfer
from skyplane_gateway.stores import ObjectStore, open_store

KEY = bytes(16)


class _Routes:
    """One local route, with that sink; nobody takes frames, but `sent` has them."""

    def __init__(self, sink: _Sink | None = None) -> None:
        self.sent: list[RawFrame] = []
        self._sink = sink

    async def send_frame(self, frame: RawFrame, turn: float = 0.0) -> None:
        self.sent.append(frame)

    def frame_bytes(self, number: int) -> int:
        return MAX_PAYLOAD_BYTES

    def loss(self, number: int) -> None: ...

    def local_sink(self, number: int) -> _Sink | None:
        return self._sink

    def fork(self, number: int) -> None: ...

    def branch(self, number: int) -> None: ...


def _source(
    threads: ThreadPoolExecutor,
    store: ObjectStore | None = None,
    routes: _Routes | None = None,
    bandwidth: Bandwidth | None = None,
    readers: int = 1,
) -> SourceTransfer:
    gateway = SourceGateway(
        node="a",
        fleet=bytes(8),
        routes=routes or _Routes(),
        threads=threads,
        readers=readers,
        is_throttled=lambda: False,
        bandwidth=bandwidth or Bandwidth(),
    )
    return SourceTransfer(gateway, KEY, 1, store or open_store(StoreSpec("memory", "any")))


@pytest.mark.parametrize("steps", range(6))
async def test_a_poll_that_is_cancelled_as_news_comes_is_cancelled(steps: int) -> None:
    with ThreadPoolExecutor(1) as threads:
        source = _source(threads)
        poll = asyncio.create_task(source.outcomes(0, 60.0))
        await asyncio.sleep(0)
        closing = asyncio.create_task(source.close())
        for _ in range(steps):
            await asyncio.sleep(0)
        if poll.cancel():
            with pytest.raises(asyncio.CancelledError):
                await poll
        else:
            assert isinstance(poll.exception(), UnknownTransfer)
        await closing


async def test_a_poll_without_news_ends_after_its_time() -> None:
    with ThreadPoolExecutor(1) as threads:
        source = _source(threads)
        assert await source.outcomes(7, 0.0) == (7, [])
        await source.close()


async def test_the_largest_chunk_goes_in_full_frames() -> None:
    with ThreadPoolExecutor(1) as threads:
        source = _source(threads)
        length = (MAX_FRAMES - 1) * MAX_PAYLOAD_BYTES
        manifest = ChunkManifest(length, PartEntry("k", "u", 1, 0))
        framer = source._framer(ChunkId(bytes(8), KEY, 1, 0, 1, 1), manifest, UNSEALED)
        assert framer.next_bytes > MAX_PAYLOAD_BYTES - 1000
        await source.close()


class _Stuck(_Routes):
    """Takes two frames of the first attempt."""

    def __init__(self) -> None:
        super().__init__()
        self.is_stuck, self.is_free = asyncio.Event(), asyncio.Event()

    async def send_frame(self, frame: RawFrame, turn: float = 0.0) -> None:
        if len(self.sent) == 2:
            self.is_stuck.set()
            await self.is_free.wait()
        await super().send_frame(frame, turn)

    def frame_bytes(self, number: int) -> int:
        return 10


async def test_a_sink_learns_that_no_rest_of_an_earlier_attempt_comes() -> None:
    create_bucket("replaced")
    store, routes = MemoryStore(StoreSpec("memory", "replaced")), _Stuck()
    wanted = RangeOrder("a", store.put("a", bytes(100)).etag, 0, 100, "to/a")
    with ThreadPoolExecutor(2) as threads:
        source = _source(threads, store, routes)
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


class _OneStuck(_Routes):
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
        source = _source(threads, store, routes, readers=2)
        for chunk in range(1, 9):
            source.take(ChunkOrder(chunk, 1, int(chunk > 4), "objects", (wanted,)))
        await until(lambda: len(routes.sent) == 4)
        await source.close()
    assert {frame.header.chunk_id.route for frame in routes.sent} == {1}


async def ended_by(store: MemoryStore, routes: _Routes, *orders: ChunkOrder) -> list[RangeOutcome]:
    """Outcomes of the ranges that end first."""
    with ThreadPoolExecutor(2) as threads:
        source = _source(threads, store, routes)
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
    routes = _Routes()
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
    bandwidth, routes = _Asked(), _Routes()
    bandwidth.limit(KEY, 1e-3)
    with ThreadPoolExecutor(1) as threads:
        source = _source(threads, store, routes, bandwidth)
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


class _Sink:
    """A sink in memory; it writes nothing."""

    def __init__(self) -> None:
        self.memory: dict[int, bytearray] = {}
        self.ended: dict[int, int] = {}
        self.dropped: list[int] = []

    def on_frame(self, header: FrameHeader, sealed: memoryview) -> None: ...

    def begin_chunk(self, chunk: ChunkId, manifest: ChunkManifest) -> memoryview | None:
        self.memory[chunk.chunk] = bytearray(manifest.length_bytes)
        return memoryview(self.memory[chunk.chunk])

    def end_chunk(self, chunk: ChunkId, crc32c: int) -> None:
        self.ended[chunk.chunk] = crc32c

    def drop_chunk(self, chunk: ChunkId) -> None:
        self.dropped.append(chunk.chunk)


class _Broken(MemoryStore):
    """The bodies of some objects break off."""

    def read(self, key: str, *, offset: int, length: int, if_match: str | None) -> MemoryReader:
        reader = super().read(key, offset=offset, length=length, if_match=if_match)
        if key == "broken":
            reader.readinto = lambda buffer: 0  # type: ignore[method-assign]
        return reader


async def test_a_range_for_the_sink_of_this_gateway_is_read_into_its_memory() -> None:
    create_bucket("local")
    store, sink = _Broken(StoreSpec("memory", "local")), _Sink()
    routes = _Routes(sink)
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


class _Member:
    """Another transfer of the group."""

    def __init__(self, *, is_waiting: bool) -> None:
        self._is_waiting = is_waiting
        self.alone: list[ChunkOrder] = []

    def awaits(self, order: ChunkOrder) -> bool:
        return self._is_waiting

    def member(self, order: ChunkOrder, content: Content) -> Member:
        assert not isinstance(content, PartEntry)
        return Member(bytes([1] * 16).hex(), 1, order.chunk, order.attempt, objects=content)

    def enqueue(self, order: ChunkOrder, shared: Shared | None = None) -> None:
        self.alone.append(order)

    def begin_together(self, chunk: ChunkId, sending: SentChunk) -> None: ...

    def fail(self, order: ChunkOrder, error: SkyplaneError) -> None: ...


@pytest.mark.parametrize("others_wait", [True, False])
async def test_a_newer_attempt_of_one_transfer_does_not_end_the_chunk_of_the_others(
    others_wait: bool,
) -> None:
    create_bucket("shared")
    store, routes = MemoryStore(StoreSpec("memory", "shared")), _Stuck()
    wanted = RangeOrder("a", store.put("a", bytes(100)).etag, 0, 100, "to/a")
    order, group = ChunkOrder(1, 1, 0, "objects", (wanted,)), bytes([7] * 16)
    with ThreadPoolExecutor(2) as threads:
        source = _source(threads, store, routes, readers=2)
        source._pending[1, 1] = order
        orders: list[tuple[JoinedTransfer, ChunkOrder]]
        orders = [(source, order), (_Member(is_waiting=others_wait), order)]
        shared = Shared(ChunkId(bytes(8), group, 0, 9, 3, 5), UNSEALED, orders)
        source.enqueue(order, shared)
        await routes.is_stuck.wait()
        source.take(ChunkOrder(1, 2, 0, "objects", (wanted,)))
        routes.is_free.set()
        await until(lambda: sum(frame.header.is_last for frame in routes.sent) == 2)
        await source.close()
    of_group = [frame for frame in routes.sent if frame.header.chunk_id.transfer == group]
    assert sum(frame.payload_bytes for frame in of_group) == (100 if others_wait else 20)
    assert of_group[-1].header.is_last


async def test_a_shared_chunk_whose_manifest_is_too_large_is_sent_once_by_each() -> None:
    create_bucket("wordy")
    store, routes = MemoryStore(StoreSpec("memory", "wordy")), _Routes()
    words = ObjectAttributes(metadata=(("word", "x" * (MAX_MANIFEST * 2 // 3)),))
    etag = store.put("a", b"abc", attributes=words).etag
    order = ChunkOrder(1, 1, 0, "objects", (RangeOrder("a", etag, 0, 3, "to/a"),))
    other = _Member(is_waiting=True)
    with ThreadPoolExecutor(2) as threads:
        source = _source(threads, store, routes, readers=2)
        source._pending[1, 1] = order
        group = ChunkId(bytes(8), bytes([7] * 16), 0, 9, 3, 5)
        source.enqueue(order, Shared(group, UNSEALED, [(source, order), (other, order)]))
        await until(lambda: bool(routes.sent))
        await source.close()
    assert [frame.header.chunk_id.transfer for frame in routes.sent] == [KEY]
    assert other.alone == [order]


async def test_a_closed_transfer_waits_for_nothing() -> None:
    with ThreadPoolExecutor(1) as threads:
        source = _source(threads, readers=0)
        order = ChunkOrder(1, 1, 0, "objects", (RangeOrder("a", "e", 0, 1, "b"),))
        source.take(order)
        assert source.awaits(order)
        await source.close()
        assert not source.awaits(order)
        with pytest.raises(UnknownTransfer):
            source.take(order)


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
