"""What a source does with its orders, with a store in memory and a path that is played."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from skyplane_gateway.errors import GatewayLost
from skyplane_gateway.orders import ChunkOrder, ChunkOutcome, RangeOrder
from skyplane_gateway.protocol import (
    ChunkId,
    EntryResult,
    RawFrame,
    Receipt,
    ReceiptStatus,
    seal_receipt,
)
from skyplane_gateway.source import SourceTransfer
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import StoreSpec
from skyplane_gateway.stores.memory import create_bucket

FLEET, TRANSFER = b"fleet-01", b"T" * 16
MIB = 1 << 20


class Path:
    """The routes of a source, as a test plays them."""

    def __init__(self) -> None:
        self.sent: list[RawFrame] = []
        self.down: dict[int, str] = {}
        self.opened = asyncio.Event()
        self.opened.set()

    async def send_frame(self, frame: RawFrame) -> None:
        reason = self.down.get(frame.header.route)
        if reason:
            raise GatewayLost(reason)
        await self.opened.wait()
        self.sent.append(frame)

    def why_down(self, number: int) -> str:
        return self.down.get(number, "")

    def chunks(self) -> list[tuple[int, int]]:
        return [(frame.header.chunk, frame.header.attempt) for frame in self.sent]


class Bench:
    """One source over one object."""

    def __init__(self, body: bytes, readers: int, threads: ThreadPoolExecutor) -> None:
        bucket = uuid.uuid4().hex
        create_bucket(bucket)
        store = open_store(StoreSpec("memory", bucket))
        self.etag = store.put("k", body).etag
        self.size = len(body)
        self.path = Path()
        self.after = 0
        self.source = SourceTransfer(
            fleet=FLEET,
            transfer=TRANSFER,
            epoch=1,
            store=store,
            send_frame=self.path.send_frame,
            threads=threads,
            readers=readers,
            why_down=self.path.why_down,
        )

    def order(self, chunk: int, attempt: int = 1, route: int = 0) -> ChunkOrder:
        wanted = RangeOrder("k", self.etag, 0, self.size, "k")
        return ChunkOrder(chunk, attempt, route, "objects", (wanted,))

    def answer(self, order: ChunkOrder) -> None:
        """The sink's receipt for an order."""
        chunk = ChunkId(FLEET, TRANSFER, 1, order.route, order.attempt, order.chunk)
        entry = EntryResult(ReceiptStatus.DURABLE, etag="e", crc32c=0, size_bytes=self.size)
        raw = seal_receipt(chunk.receipt(), Receipt(1, ReceiptStatus.DURABLE, entries=(entry,)))
        self.source.on_receipt(raw.header, memoryview(b"".join(raw.sealed)))

    async def outcomes(self, wait_s: float = 10.0) -> list[ChunkOutcome]:
        self.after, found = await self.source.outcomes(self.after, wait_s)
        return found

    async def until_sent(self, frames: int) -> None:
        while len(self.path.sent) < frames:  # noqa: ASYNC110 - nobody inside tells us
            await asyncio.sleep(0.001)


@asynccontextmanager
async def bench(body: bytes = b"data", readers: int = 2) -> AsyncIterator[Bench]:
    with ThreadPoolExecutor(4) as threads:
        made = Bench(body, readers, threads)
        try:
            yield made
        finally:
            await made.source.close()


def lost(outcomes: list[ChunkOutcome]) -> list[tuple[int, int]]:
    assert all(isinstance(row.error, GatewayLost) for made in outcomes for row in made.ranges)
    return [(made.chunk, made.attempt) for made in outcomes]


def test_an_order_for_a_route_that_is_down_fails_at_once() -> None:
    async def scenario() -> None:
        async with bench() as made:
            made.path.down[0] = "r is gone"
            made.source.take(made.order(1))
            assert lost(await made.outcomes(wait_s=0.0)) == [(1, 1)]
            made.source.take(made.order(2, route=1))
            await made.until_sent(1)
            assert made.path.chunks() == [(2, 1)]

    asyncio.run(scenario())


def test_an_order_that_comes_again_is_not_taken_twice() -> None:
    """Neither while it is under way nor after it has ended."""

    async def scenario() -> None:
        async with bench() as made:
            order = made.order(1)
            for _ in range(3):
                made.source.take(order)
            await made.until_sent(1)
            made.source.take(made.order(1))
            made.answer(order)
            assert [row.chunk for row in await made.outcomes()] == [1]
            made.source.take(made.order(1))
            made.source.take(made.order(2))
            await made.until_sent(2)
            assert made.path.chunks() == [(1, 1), (2, 1)]

    asyncio.run(scenario())


def test_all_that_is_ordered_for_a_broken_route_fails_at_once_and_once() -> None:
    """What waits to be read, what is being sent, and what waits for its receipt."""

    async def scenario() -> None:
        async with bench(readers=1) as made:
            made.source.take(made.order(1))
            await made.until_sent(1)
            made.path.opened.clear()
            for chunk in range(2, 12):
                made.source.take(made.order(chunk, route=chunk % 2))
            made.source.route_is_down(0, "r is gone")
            ended = lost(await made.outcomes(wait_s=0.0))
            assert ended == [(1, 1), *((chunk, 1) for chunk in range(2, 12, 2))]
            # A receipt that comes now is for nobody; the other route goes on.
            made.answer(made.order(1))
            made.path.opened.set()
            await made.until_sent(6)
            for chunk in range(3, 12, 2):
                made.answer(made.order(chunk, route=1))
            after = await made.outcomes()
            assert [row.chunk for row in after] == list(range(3, 12, 2))

    asyncio.run(scenario())


def test_a_chunk_cut_in_two_by_a_break_is_not_finished_over_the_new_connections() -> None:
    async def scenario() -> None:
        async with bench(body=bytes(5 * MIB), readers=1) as made:
            made.path.opened.clear()
            made.source.take(made.order(1))
            while not made.source._sendings:  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            made.source.route_is_down(0, "r is gone")
            # The route stands again, before the reader has noticed anything.
            made.path.opened.set()
            assert lost(await made.outcomes()) == [(1, 1)]
            made.source.take(made.order(1, attempt=2))
            await made.until_sent(5)
            assert [row.header.frame for row in made.path.sent if row.header.attempt == 1] in (
                [],
                [0],  # It was on its way into the route when that broke.
            )

    asyncio.run(scenario())


def test_what_a_source_holds_does_not_grow_with_its_orders() -> None:
    async def scenario() -> None:
        async with bench(body=bytes(MIB), readers=3) as made:
            held = most = 0
            read = made.source._open

            def counted(wanted: RangeOrder) -> object:
                nonlocal held, most
                held += 1
                most = max(most, held)
                return read(wanted)

            made.source._open = counted  # type: ignore[method-assign, assignment]
            send = made.path.send_frame

            async def answered(frame: RawFrame) -> None:
                nonlocal held
                await send(frame)
                made.path.sent.clear()
                if frame.header.is_last:
                    held -= 1
                    made.answer(made.order(frame.header.chunk))

            made.source._send_frame = answered
            for chunk in range(1, 10_001):
                made.source.take(made.order(chunk, route=0 if chunk <= 50 else 1))
            made.path.down[1] = "gone"
            made.source.route_is_down(1, "gone")
            seen = 0
            while seen < 10_000:
                seen += len(await made.outcomes())
            assert most <= 3
            assert made.source._pending == {}
            assert made.source._sendings == {}
            assert made.source._newest == {}
            assert len(made.source._ended) <= 8192
            await made.outcomes(wait_s=0.0)
            assert len(made.source._outcomes) == 0

    asyncio.run(scenario())
