"""The source: reads pinned ranges, sends them as chunks, and matches the receipts.

It reads at most `readers` chunks at a time, and a piece only when a connection has taken the
piece before it: a slow path slows the reading.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol, TypeVar

from skyplane_gateway.common.errors import GatewayLost, SkyplaneError, UnknownTransfer
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, Content
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.frames import MAX_PAYLOAD_BYTES, RawFrame
from skyplane_gateway.protocol.limits import MAX_FRAMES
from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.sealing import UNSEALED, Sealing
from skyplane_gateway.source.bandwidth import Bandwidth
from skyplane_gateway.source.batch import fill
from skyplane_gateway.source.chunk_orders import AttemptId, ChunkOrder, ChunkOutcome, ChunkState
from skyplane_gateway.source.join import Join, TreeRoutes
from skyplane_gateway.source.object_reader import ObjectReader, content_of, read_frames, read_into
from skyplane_gateway.source.order_queue import OrderQueue
from skyplane_gateway.source.outcomes import OutcomeLog, SentChunk, outcome_of, unread
from skyplane_gateway.source.shared_chunk import Contents, Orders, SharedChunk
from skyplane_gateway.stores.base import ComparingReader, ObjectStore
from skyplane_gateway.transport.router import ChunkReceiver

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Ended attempts that are remembered: an order is repeated when the response to it was lost.
_REMEMBERED: Final = 8192


class Routes(TreeRoutes, Protocol):
    """The routes that begin at a gateway; see `Router`."""

    async def send_frame(self, frame: RawFrame, turn: float = 0.0) -> None: ...

    def loss(self, number: int) -> GatewayLost | None: ...

    def local_sink(self, number: int) -> ChunkReceiver | None: ...

    def frame_bytes(self, number: int) -> int: ...


@dataclass(frozen=True, slots=True)
class SourceGateway:
    """What all transfers at one source share.

    Attributes:
        fleet: its id on the wire.
        threads: where blocking calls of stores run.
        readers: chunks that each transfer reads at the same time.
        is_throttled: whether a store of this gateway asks for fewer requests.
    """

    node: str
    fleet: bytes
    routes: Routes
    threads: Executor
    readers: int
    is_throttled: Callable[[], bool]
    bandwidth: Bandwidth


class SourceTransfer:
    """One transfer at one source.

    Args:
        transfer: its id on the wire.
        sealing: encrypts frames and opens receipts.
        join: of the group of the transfer; None without.
    """

    def __init__(
        self,
        gateway: SourceGateway,
        transfer: bytes,
        epoch: int,
        store: ObjectStore,
        sealing: Sealing = UNSEALED,
        join: Join | None = None,
    ) -> None:
        self.transfer = transfer
        self.epoch = epoch
        #: A lead has sent a request to this side.
        self.is_used = False
        self.store = store
        self._gateway = gateway
        self._routes = gateway.routes
        self._orders = OrderQueue()
        self._objects = ObjectReader(store, gateway.threads, gateway.node)
        self._sealing = sealing
        self._join = join
        #: Attempt -> with whom it is read and sent here.
        self._shared: dict[AttemptId, SharedChunk] = {}
        #: Attempt -> the chunk by which it is sent.
        self._chunks: dict[AttemptId, ChunkId] = {}
        #: Attempts of orders that wait for the store or for bandwidth.
        self._reading: set[AttemptId] = set()
        #: Attempt -> bytes of it that were read, and sent where it goes elsewhere.
        self._moved: Counter[AttemptId] = Counter()
        #: Attempt -> its order, until it has an outcome or a newer attempt.
        self._pending: dict[AttemptId, ChunkOrder] = {}
        self._ended: OrderedDict[AttemptId, None] = OrderedDict()
        self._sendings: dict[ChunkId, SentChunk] = {}
        self._outcomes = OutcomeLog()
        #: Chunk -> its newest attempt.
        self._newest: dict[int, int] = {}
        #: Chunk -> the attempt in flight, and its task.
        self._tasks: dict[int, tuple[int, asyncio.Task[None]]] = {}
        #: Tell sinks of chunks that were given up, also after the end: sinks may share them.
        self._aborts: set[asyncio.Task[None]] = set()
        self._workers = [asyncio.create_task(self._work()) for _ in range(gateway.readers)]

    # -- the lead's side

    def take(self, order: ChunkOrder) -> None:
        """Accept an order, unless it is known already.

        It fails at once with GatewayLost where its route is down. A new attempt at a chunk
        cancels the earlier one, whose reader may be stuck. Raises UnknownTransfer after `close`.
        """
        if self._outcomes.is_closed:
            raise UnknownTransfer("this source has released the transfer")
        self.is_used = True
        if order.id not in self._pending and order.id not in self._ended:
            self._pending[order.id] = order
            loss = self._routes.loss(order.route)
            if loss is not None:
                self._report(ChunkOutcome.of_failure(order, loss))
                return
            if self._join is None or not self._join.offer(self.transfer, self, order):
                self._orders.put_nowait(order)
            self._newest[order.chunk] = max(order.attempt, self._newest.get(order.chunk, 0))
            attempt, task = self._tasks.get(order.chunk, (0, None))
            shared = self._shared.get((order.chunk, attempt))
            is_shared = shared is not None and shared.is_wanted_beside(self)
            if task is not None and attempt < order.attempt and not is_shared:
                task.cancel()

    def awaits(self, order: ChunkOrder) -> bool:
        """See `JoinedTransfer`, also for `enqueue`, `fail` and `begin`."""
        return self._pending.get(order.id) is order

    def enqueue(self, order: ChunkOrder, shared: SharedChunk | None = None) -> None:
        self._shared.pop(order.id, None)
        if shared is not None:
            self._shared[order.id] = shared
        self._orders.put_nowait(order)

    def fail(self, order: ChunkOrder, error: SkyplaneError) -> None:
        # Errors of the destination come in receipts.
        self._report(ChunkOutcome(*order.id, (unread(error),) * len(order.ranges)))

    async def outcomes(self, after: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        """Outcomes after sequence number `after`; waits up to `wait_s` seconds for one."""
        self.is_used = True
        return await self._outcomes.after(after, wait_s)

    def chunks(self) -> list[ChunkState]:
        """The orders that have moved bytes or wait, and have no outcome yet."""
        may_wait = self._is_limited or self._gateway.is_throttled()
        rows = (
            ChunkState(*identity, self._moved[identity], may_wait and self._waits(order))
            for identity, order in self._pending.items()
        )
        return [row for row in rows if row.moved_bytes or row.is_waiting]

    def _waits(self, order: ChunkOrder) -> bool:
        return order.id in self._reading or order.id not in self._chunks

    # -- the data path's side

    def on_receipt(self, header: ChunkId, sealed: memoryview) -> None:
        """Match a receipt to its chunk."""
        sending = self._sendings.pop(header, None)
        if sending is not None:
            self._report(outcome_of(sending, header, sealed, self._sealing.receipts))

    def route_is_down(self, number: int, loss: GatewayLost) -> None:
        """Fail all orders of that route.

        A chunk in flight stops at its next piece. The route may be up again by then, but the
        frames that it carried are lost.
        """
        for order in [order for order in self._pending.values() if order.route == number]:
            self.fail(order, loss)

    async def close(self) -> None:
        """Stop reading, close the store, and end every wait for outcomes."""
        self._outcomes.close()
        self._pending.clear()
        for task in self._workers:
            task.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        for shared in tuple(self._shared.values()):
            shared.fail(None)
        await self._objects.in_thread(self.store.close)

    # -- reading and sending

    async def _work(self) -> None:
        while True:
            order = await self._orders.get()
            try:
                if order.attempt < self._newest.get(order.chunk, 0):
                    self._forget(order)
                if self._is_pending(order):
                    await self._send_unless_superseded(order)
            except SkyplaneError as error:
                self._give_up(order, error)
            except Exception as error:  # The lead waits for an outcome.
                log.exception("chunk %d cannot be sent", order.chunk)
                self._give_up(order, self._objects.unexpected(error, order.ranges[0].source_key))
            finally:
                self._orders.done(order)

    async def _send_unless_superseded(self, order: ChunkOrder) -> None:
        task = asyncio.create_task(self._send(order))
        self._tasks[order.chunk] = (order.attempt, task)
        try:
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()
                return
            # A newer attempt has replaced it.
            self._abort(self._sending_of(order))
            self._forget(order)
        finally:
            task.cancel()
            if self._tasks.get(order.chunk) == (order.attempt, task):
                del self._tasks[order.chunk]

    def _give_up(self, order: ChunkOrder, error: SkyplaneError) -> None:
        self._abort(self._sending_of(order))
        self.fail(order, error)

    def _abort(self, sending: SentChunk | SharedChunk | None) -> None:
        """Tell sinks that no rest comes: else they hold half a chunk until the transfer ends."""
        framer = None if sending is None else sending.framer
        frame = None if framer is None else framer.abort()
        if frame is not None:
            ending = asyncio.create_task(self._send_last(frame))  # The route may be stuck.
            self._aborts.add(ending)
            ending.add_done_callback(self._aborts.discard)

    async def _send_last(self, frame: RawFrame) -> None:
        with suppress(GatewayLost):
            await self._routes.send_frame(frame)

    async def _send(self, order: ChunkOrder) -> None:
        # A single range may be large and is sent while it is read. Small objects are read
        # together, and an error of one does not delay the others.
        send = self._send_range if len(order.ranges) == 1 else self._send_batch
        shared = self._shared.get(order.id)
        if shared is None:
            await send(order, [(self, order)])
            return
        try:
            await send(order, shared.orders)
        except BaseException as error:
            shared.fail(error if isinstance(error, SkyplaneError) else None)
            self._abort(shared)
            raise
        finally:
            self._shared.pop(order.id, None)

    async def _send_range(self, order: ChunkOrder, orders: Orders) -> None:
        reader = await self._ask_store(order, self._objects.open, order.ranges[0])
        try:
            contents = []
            for source, one in orders:
                content, noted = content_of(one, reader)
                contents.append((source, content, SentChunk(one, [0], [noted])))
            # Frames are what a limit paces.
            is_framed = len(orders) > 1 or self._is_limited
            sink = None if is_framed else self._routes.local_sink(order.route)
            if sink is not None:
                await self._hand_over(sink, *contents[0][1:], reader)
                return
            framer = self._begin(order, order.length, contents)
            while framer is not None and not framer.is_complete:
                frames = await self._ask_store(order, read_frames, reader, framer)
                await self._send_frames(order, frames)
        finally:
            await self._objects.in_thread(reader.close)

    async def _hand_over(
        self, sink: ChunkReceiver, content: Content, sending: SentChunk, reader: ComparingReader
    ) -> None:
        """Read the range into the memory of this gateway's sink."""
        order = sending.order
        self._require_pending(order)
        chunk = self._chunk_of(order)
        self.begin(chunk, sending)
        buffer = sink.begin_chunk(chunk, ChunkManifest(order.length, content))
        if buffer is None:
            return  # A receipt says why.
        try:
            note = partial(self._note, order)
            sending.crc32cs = [await self._ask_store(order, read_into, reader, buffer, note)]
            self._require_pending(order)
        except BaseException:
            sink.drop_chunk(chunk)
            raise
        sink.end_chunk(chunk, sending.crc32cs[0])

    async def _send_batch(self, order: ChunkOrder, orders: Orders) -> None:
        pairs = [[(one, wanted) for wanted in one.ranges] for _, one in orders]
        reads = [self._objects.read_small(*row) for row in zip(*pairs, strict=True)]
        found = await asyncio.gather(*reads)
        batches = [fill(one, found, number) for number, (_, one) in enumerate(orders)]
        first = batches[0]
        is_same = all(own.sending.indexes == first.sending.indexes for own in batches)
        shared = self._shared.get(order.id)
        if shared is not None and not (first.entries and is_same):
            shared.split()
            return
        if not first.entries:
            self._report(ChunkOutcome(*order.id, tuple(map(unread, first.sending.failed.values()))))
            return
        contents = [
            (source, tuple(own.entries), own.sending)
            for (source, _), own in zip(orders, batches, strict=True)
        ]
        framer = self._begin(order, first.length, contents)
        if framer is not None:
            await self._send_frames(order, framer.feed(b"".join(first.bodies)))

    def _begin(self, order: ChunkOrder, length: int, contents: Contents) -> ChunkFramer | None:
        """The framer of the chunk; None where the orders of a shared one are sent alone."""
        self._require_pending(order)
        if (shared := self._shared.get(order.id)) is not None:
            return shared.begin(length, contents, self._framer)
        ((_, content, sending),) = contents
        chunk = self._chunk_of(order)
        sending.framer = self._framer(chunk, ChunkManifest(length, content), self._sealing)
        self.begin(chunk, sending)
        return sending.framer

    def begin(self, chunk: ChunkId, sending: SentChunk) -> None:
        sending.begun_s = asyncio.get_running_loop().time()
        self._chunks[sending.order.id] = chunk
        self._sendings[chunk] = sending

    def _framer(self, chunk: ChunkId, manifest: ChunkManifest, sealing: Sealing) -> ChunkFramer:
        fewest = 2 * manifest.length_bytes // MAX_FRAMES
        most = min(MAX_PAYLOAD_BYTES, max(self._routes.frame_bytes(chunk.route), fewest))
        return ChunkFramer(chunk, manifest, sealer=sealing.frames, max_payload_bytes=most)

    async def _ask_store(self, order: ChunkOrder, call: Callable[..., T], *arguments: object) -> T:
        return await self._waiting(order, self._objects.in_thread(call, *arguments))

    async def _waiting(self, order: ChunkOrder, step: Awaitable[T]) -> T:
        self._reading.add(order.id)
        try:
            return await step
        finally:
            self._reading.discard(order.id)

    async def _send_frames(self, order: ChunkOrder, frames: Iterable[RawFrame]) -> None:
        sending = self._sending_of(order)
        turn = sending.begun_s if sending is not None else 0.0
        for frame in frames:
            if self._is_limited:
                take = self._gateway.bandwidth.take(self.transfer, frame.payload_bytes)
                await self._waiting(order, take)
            self._require_pending(order)
            await self._routes.send_frame(frame, turn)
            self._note(order, frame.payload_bytes)

    def _note(self, order: ChunkOrder, count: int) -> None:
        if self.awaits(order):
            self._moved[order.id] += count

    @property
    def _is_limited(self) -> bool:
        return self._gateway.bandwidth.is_limited(self.transfer)

    def _is_pending(self, order: ChunkOrder) -> bool:
        shared = self._shared.get(order.id)
        return self.awaits(order) or (shared is not None and shared.is_wanted_beside(self))

    def _require_pending(self, order: ChunkOrder) -> None:
        """Raises GatewayLost: the order has ended meanwhile."""
        if not self._is_pending(order):
            raise GatewayLost(f"chunk {order.chunk} has lost its route meanwhile")

    def _forget(self, order: ChunkOrder) -> None:
        self._moved.pop(order.id, None)
        if (chunk := self._chunks.pop(order.id, None)) is not None:
            self._sendings.pop(chunk, None)
        if self._pending.pop(order.id, None) is not None:
            self._ended[order.id] = None
            while len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)

    def _sending_of(self, order: ChunkOrder) -> SentChunk | None:
        chunk = self._chunks.get(order.id)
        return None if chunk is None else self._sendings.get(chunk)

    def _chunk_of(self, order: ChunkOrder) -> ChunkId:
        """By which it is sent alone."""
        fleet, transfer = self._gateway.fleet, self.transfer
        return ChunkId(fleet, transfer, self.epoch, order.route, order.attempt, order.chunk)

    def _report(self, outcome: ChunkOutcome) -> None:
        order = self._pending.get((outcome.chunk, outcome.attempt))
        if order is None:
            return  # It has an outcome already, or a newer attempt.
        self._forget(order)
        if self._newest.get(outcome.chunk) == outcome.attempt:
            del self._newest[outcome.chunk]
        self._outcomes.add(outcome)
