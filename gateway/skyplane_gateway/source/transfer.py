"""The source: reads pinned ranges, sends them as chunks, and matches the receipts.

It reads at most `readers` chunks at a time, and a piece only when a connection has taken the
piece before it: a slow path slows the reading.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Protocol, TypeVar

from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    GatewayLost,
    GatewayUnreachable,
    SkyplaneError,
    StoreError,
    UnknownTransfer,
)
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, Member, PartEntry
from skyplane_gateway.protocol.errors import (
    FrameAltered,
    LocalProtocolError,
    NotEncrypted,
    ProtocolError,
)
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.frames import MAX_PAYLOAD_BYTES, RawFrame
from skyplane_gateway.protocol.limits import MAX_FRAMES
from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.receipt import open_receipt
from skyplane_gateway.protocol.sealing import UNSEALED, Sealing
from skyplane_gateway.source.bandwidth import Bandwidth
from skyplane_gateway.source.batch import fill, of_member
from skyplane_gateway.source.chunk_orders import ChunkOrder, ChunkOutcome, ChunkState
from skyplane_gateway.source.join import Join, JoinedTransfer, Shared, TreeRoutes
from skyplane_gateway.source.object_reader import (
    Content,
    ObjectReader,
    content_of,
    kept_of,
    read_frames,
    read_into,
)
from skyplane_gateway.source.order_queue import OrderQueue
from skyplane_gateway.source.outcomes import SentChunk, outcome_of, unread
from skyplane_gateway.stores.base import ComparingReader, ObjectStore
from skyplane_gateway.transport.router import ChunkReceiver

log = logging.getLogger(__name__)

T = TypeVar("T")

#: The orders that one chunk serves, with their transfers.
_Orders = Sequence[tuple[JoinedTransfer, ChunkOrder]]

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
        self.epoch = epoch
        #: A lead has sent a request to this side.
        self.is_used = False
        self.store = store
        self._gateway = gateway
        self._routes = gateway.routes
        self._transfer = transfer
        self._orders = OrderQueue()
        self._objects = ObjectReader(store, gateway.threads, gateway.node)
        self._sealing = sealing
        self._join = join
        #: (chunk, attempt) -> with whom it is read and sent here.
        self._shared: dict[tuple[int, int], Shared] = {}
        #: (chunk, attempt) -> the chunk by which it was sent together with others.
        self._shared_chunks: dict[tuple[int, int], ChunkId] = {}
        #: (chunk, attempt) of orders that wait for the store or for bandwidth.
        self._reading: set[tuple[int, int]] = set()
        #: (chunk, attempt) -> bytes of it that were read, and sent where it goes elsewhere.
        self._moved: Counter[tuple[int, int]] = Counter()
        #: (chunk, attempt) -> its order, until it has an outcome or a newer attempt.
        self._pending: dict[tuple[int, int], ChunkOrder] = {}
        self._ended: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._sendings: dict[ChunkId, SentChunk] = {}
        self._outcomes: deque[tuple[int, ChunkOutcome]] = deque()
        self._last = 0
        self._news = asyncio.Event()
        self._is_closed = False
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
        if self._is_closed:
            raise UnknownTransfer("this source has released the transfer")
        self.is_used = True
        identity = (order.chunk, order.attempt)
        if identity not in self._pending and identity not in self._ended:
            self._pending[identity] = order
            loss = self._routes.loss(order.route)
            if loss is not None:
                self._report(ChunkOutcome.of_failure(order, loss))
                return
            if self._join is None or not self._join.offer(self._transfer, self, order):
                self._orders.put_nowait(order)
            self._newest[order.chunk] = max(order.attempt, self._newest.get(order.chunk, 0))
            attempt, task = self._tasks.get(order.chunk, (0, None))
            shared = self._shared.get((order.chunk, attempt))
            is_shared = shared is not None and shared.is_wanted_beside(self)
            if task is not None and attempt < order.attempt and not is_shared:
                task.cancel()

    def awaits(self, order: ChunkOrder) -> bool:
        """See `JoinedTransfer`, also for `enqueue`, `fail`, `member` and `begin_together`."""
        return self._pending.get((order.chunk, order.attempt)) is order

    def enqueue(self, order: ChunkOrder, shared: Shared | None = None) -> None:
        self._shared.pop((order.chunk, order.attempt), None)
        if shared is not None:
            self._shared[order.chunk, order.attempt] = shared
        self._orders.put_nowait(order)

    def fail(self, order: ChunkOrder, error: SkyplaneError) -> None:
        self._sendings.pop(self._chunk_of(order), None)
        # Errors of the destination come in receipts.
        self._report(ChunkOutcome.of_failure(order, error, at_source=isinstance(error, StoreError)))

    async def outcomes(self, after: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        """Outcomes after sequence number `after`; waits up to `wait_s` seconds for one."""
        self.is_used = True
        while self._outcomes and self._outcomes[0][0] <= after:
            self._outcomes.popleft()
        if not self._outcomes and not self._is_closed:
            self._news.clear()
            try:
                # Before Python 3.12 `wait_for` loses a cancellation that comes together with
                # the event.
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                return after, []
        if not self._outcomes:
            raise UnknownTransfer("this source has released the transfer")
        return self._last, [outcome for _, outcome in self._outcomes]

    def chunks(self) -> list[ChunkState]:
        """The orders that have moved bytes or wait, and have no outcome yet."""
        may_wait = self._is_limited or self._gateway.is_throttled()
        rows = (
            ChunkState(*identity, self._moved[identity], may_wait and self._waits(order))
            for identity, order in self._pending.items()
        )
        return [row for row in rows if row.moved_bytes or row.is_waiting]

    def _waits(self, order: ChunkOrder) -> bool:
        is_reading = (order.chunk, order.attempt) in self._reading
        return is_reading or self._chunk_of(order) not in self._sendings

    # -- the data path's side

    def on_receipt(self, header: ChunkId, sealed: memoryview) -> None:
        """Match a receipt to its chunk."""
        sending = self._sendings.pop(header, None)
        if sending is None:
            return
        try:
            receipt = open_receipt(header, sealed, self._sealing.receipts)
        except NotEncrypted as error:
            # Perhaps the sink has lost the transfer, and so its key. But anybody can say so.
            outcome = ChunkOutcome.of_failure(sending.order, GatewayUnreachable(error.message))
        except FrameAltered as error:
            # Another path, if there is one, may not alter receipts.
            outcome = ChunkOutcome.of_failure(sending.order, GatewayLost(error.message))
        except ProtocolError as error:
            # The receipt is damaged: the chunk must be sent again.
            outcome = ChunkOutcome.of_failure(sending.order, ChecksumMismatch(error.message))
        else:
            outcome = outcome_of(sending, receipt)
        self._report(outcome)

    def route_is_down(self, number: int, loss: GatewayLost) -> None:
        """Fail all orders of that route.

        A chunk in flight stops at its next piece. The route may be up again by then, but the
        frames that it carried are lost.
        """
        for order in [order for order in self._pending.values() if order.route == number]:
            self.fail(order, loss)

    async def close(self) -> None:
        """Stop reading, close the store, and end every wait for outcomes."""
        self._is_closed = True
        self._pending.clear()
        self._news.set()
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
            sending = self._sendings.pop(self._chunk_of(order), None)
            self._forget(order)
            self._abort(None if sending is None else sending.framer)
        finally:
            task.cancel()
            if self._tasks.get(order.chunk) == (order.attempt, task):
                del self._tasks[order.chunk]

    def _give_up(self, order: ChunkOrder, error: SkyplaneError) -> None:
        sending = self._sendings.get(self._chunk_of(order))
        self._abort(None if sending is None else sending.framer)
        self.fail(order, error)

    def _abort(self, framer: ChunkFramer | None) -> None:
        """Tell sinks that no rest comes: else they hold half a chunk until the transfer ends."""
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
        shared = self._shared.get((order.chunk, order.attempt))
        if shared is None:
            await send(order, None, [(self, order)])
            return
        try:
            await send(order, shared, shared.orders)
        except BaseException as error:
            shared.fail(error if isinstance(error, SkyplaneError) else None)
            self._abort(shared.framer)
            raise
        finally:
            self._shared.pop((order.chunk, order.attempt), None)

    async def _send_range(self, order: ChunkOrder, shared: Shared | None, orders: _Orders) -> None:
        reader = await self._ask_store(order, self._objects.open, order.ranges[0])
        try:
            rows = []
            for _, one in orders:
                attributes, noted = kept_of(one, one.ranges[0], reader)
                content = content_of(one, one.ranges[0], attributes)
                rows.append((content, SentChunk(one, None, [0], [noted])))
            # Frames are what a limit paces.
            is_framed = shared is not None or self._is_limited
            sink = None if is_framed else self._routes.local_sink(order.route)
            if sink is not None:
                await self._hand_over(sink, *rows[0], reader)
                return
            framer = self._begin(order, shared, order.length, rows)
            while framer is not None and not framer.is_complete:
                await self._send_frames(
                    order, await self._ask_store(order, read_frames, reader, framer)
                )
        finally:
            await self._objects.in_thread(reader.close)

    async def _hand_over(
        self, sink: ChunkReceiver, content: Content, sending: SentChunk, reader: ComparingReader
    ) -> None:
        """Read the range into the memory of this gateway's sink."""
        order = sending.order
        self._require_pending(order)
        chunk = self._chunk_of(order)
        self._sendings[chunk] = sending
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

    async def _send_batch(self, order: ChunkOrder, shared: Shared | None, orders: _Orders) -> None:
        pairs = [[(one, wanted) for wanted in one.ranges] for _, one in orders]
        reads = [self._objects.read_small(*row) for row in zip(*pairs, strict=True)]
        found = await asyncio.gather(*reads)
        batches = [
            fill(one.ranges, [of_member(row, number) for row in found])
            for number, (_, one) in enumerate(orders)
        ]
        first = batches[0]
        is_same = all(batch.indexes == first.indexes for batch in batches)
        if shared is not None and not (first.entries and is_same):
            self._split(shared)
            return
        if not first.entries:
            outcomes = tuple(unread(first.failed[index]) for index in sorted(first.failed))
            self._report(ChunkOutcome(order.chunk, order.attempt, outcomes))
            return
        rows = [
            (
                tuple(own.entries),
                SentChunk(one, None, own.indexes, own.noted, own.crc32cs, own.failed),
            )
            for (_, one), own in zip(orders, batches, strict=True)
        ]
        framer = self._begin(order, shared, first.length, rows)
        if framer is not None:
            await self._send_frames(order, framer.feed(b"".join(first.bodies)))

    def _begin(
        self,
        order: ChunkOrder,
        shared: Shared | None,
        length: int,
        rows: Sequence[tuple[Content, SentChunk]],
    ) -> ChunkFramer | None:
        """The framer of the chunk.

        None where the manifest of a shared one is too large: each order is sent alone.
        """
        self._require_pending(order)
        begun_s = asyncio.get_running_loop().time()
        if shared is None:
            ((content, sending),) = rows
            chunk = self._chunk_of(order)
            sending.framer = self._framer(chunk, ChunkManifest(length, content), self._sealing)
            sending.begun_s = begun_s
            self._sendings[chunk] = sending
            return sending.framer
        sources = [source for source, _ in shared.orders]
        members = tuple(
            source.member(sending.order, content)
            for source, (content, sending) in zip(sources, rows, strict=True)
        )
        manifest = ChunkManifest(length, (), members)
        try:
            shared.framer = framer = self._framer(shared.chunk, manifest, shared.sealing)
        except LocalProtocolError:
            self._split(shared)
            return None
        for source, (_, sending) in zip(sources, rows, strict=True):
            sending.framer, sending.begun_s = framer, begun_s
            source.begin_together(shared.chunk, sending)
        return framer

    def _split(self, shared: Shared) -> None:
        """Send each order alone."""
        for source, one in shared.orders:
            source.enqueue(one)

    def member(self, order: ChunkOrder, content: Content) -> Member:
        numbers = self.epoch, order.chunk, order.attempt
        if isinstance(content, PartEntry):
            return Member(self._transfer.hex(), *numbers, part=content)
        return Member(self._transfer.hex(), *numbers, objects=content)

    def begin_together(self, chunk: ChunkId, sending: SentChunk) -> None:
        if self.awaits(sending.order):
            own = replace(chunk, transfer=self._transfer)
            self._shared_chunks[sending.order.chunk, sending.order.attempt] = own
            self._sendings[own] = sending

    def _framer(self, chunk: ChunkId, manifest: ChunkManifest, sealing: Sealing) -> ChunkFramer:
        fewest = 2 * manifest.length_bytes // MAX_FRAMES
        most = min(MAX_PAYLOAD_BYTES, max(self._routes.frame_bytes(chunk.route), fewest))
        return ChunkFramer(chunk, manifest, sealer=sealing.frames, max_payload_bytes=most)

    async def _ask_store(self, order: ChunkOrder, call: Callable[..., T], *arguments: object) -> T:
        return await self._waiting(order, self._objects.in_thread(call, *arguments))

    async def _waiting(self, order: ChunkOrder, step: Awaitable[T]) -> T:
        identity = (order.chunk, order.attempt)
        self._reading.add(identity)
        try:
            return await step
        finally:
            self._reading.discard(identity)

    async def _send_frames(self, order: ChunkOrder, frames: Iterable[RawFrame]) -> None:
        sending = self._sendings.get(self._chunk_of(order))
        turn = sending.begun_s if sending is not None else 0.0
        for frame in frames:
            if self._is_limited:
                take = self._gateway.bandwidth.take(self._transfer, frame.payload_bytes)
                await self._waiting(order, take)
            self._require_pending(order)
            await self._routes.send_frame(frame, turn)
            self._note(order, frame.payload_bytes)

    def _note(self, order: ChunkOrder, count: int) -> None:
        if self.awaits(order):
            self._moved[order.chunk, order.attempt] += count

    @property
    def _is_limited(self) -> bool:
        return self._gateway.bandwidth.is_limited(self._transfer)

    def _is_pending(self, order: ChunkOrder) -> bool:
        shared = self._shared.get((order.chunk, order.attempt))
        return self.awaits(order) or (shared is not None and shared.is_wanted_beside(self))

    def _require_pending(self, order: ChunkOrder) -> None:
        """Raises GatewayLost: the order has ended meanwhile."""
        if not self._is_pending(order):
            raise GatewayLost(f"chunk {order.chunk} has lost its route meanwhile")

    def _forget(self, order: ChunkOrder) -> None:
        identity = (order.chunk, order.attempt)
        self._moved.pop(identity, None)
        self._shared_chunks.pop(identity, None)
        if self._pending.pop(identity, None) is not None:
            self._ended[identity] = None
            while len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)

    def _chunk_of(self, order: ChunkOrder) -> ChunkId:
        shared = self._shared_chunks.get((order.chunk, order.attempt))
        if shared is not None:
            return shared
        fleet, transfer = self._gateway.fleet, self._transfer
        return ChunkId(fleet, transfer, self.epoch, order.route, order.attempt, order.chunk)

    def _report(self, outcome: ChunkOutcome) -> None:
        order = self._pending.get((outcome.chunk, outcome.attempt))
        if order is None:
            return  # It has an outcome already, or a newer attempt.
        self._forget(order)
        if self._newest.get(outcome.chunk) == outcome.attempt:
            del self._newest[outcome.chunk]
        self._last += 1
        self._outcomes.append((self._last, outcome))
        self._news.set()
