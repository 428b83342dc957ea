"""The source: reads ranges under their pin, sends them as chunks, matches the receipts.

At most `readers` chunks are read at a time, and a piece is read only when the one
before it has left for a connection that was ready: a slow path slows the reading.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, TypeVar

from skyplane_gateway.checksum import crc32c as checksum
from skyplane_gateway.chunk_orders import ChunkOrder, ChunkOutcome, RangeOrder, RangeOutcome
from skyplane_gateway.errors import (
    ChecksumMismatch,
    GatewayLost,
    InternalError,
    SkyplaneError,
    StoreError,
    StoreUnavailable,
    UnknownTransfer,
    from_dict,
)
from skyplane_gateway.objects import ObjectAttributes
from skyplane_gateway.protocol import (
    MAX_PAYLOAD_BYTES,
    ChunkFramer,
    ChunkId,
    ChunkManifest,
    EntryResult,
    ObjectEntry,
    PartEntry,
    ProtocolError,
    RawFrame,
    Receipt,
    ReceiptStatus,
    open_receipt,
)
from skyplane_gateway.selection import require_carried
from skyplane_gateway.source.batch import SmallObject, fill
from skyplane_gateway.stores.base import ObjectStore, Reader

log = logging.getLogger(__name__)

T = TypeVar("T")

SendFrame = Callable[[RawFrame], Awaitable[None]]

#: Ended sendings that are remembered, so that an order that comes again, because the
#: answer to it was lost, is not carried out again.
_REMEMBERED: Final = 8192


@dataclass(slots=True)
class _Sending:
    """A chunk under way: which ranges are in it, and their checksums once they are read.

    `not_carried` has one row per index.
    """

    order: ChunkOrder
    framer: ChunkFramer
    indexes: list[int]
    not_carried: list[tuple[str, ...]]
    crc32cs: list[int] = field(default_factory=list)
    failed: dict[int, SkyplaneError] = field(default_factory=dict)


class SourceTransfer:
    """One transfer at one source.

    Args:
        fleet, transfer: ids on the wire.
        epoch: the lead's tenure.
        store: opened with the source's credentials.
        send_frame: sends a frame down its route; raises GatewayLost.
        threads: where the store's blocking calls run.
        readers: chunks to read at the same time.
        loss_of: why the route of that number is down; None while it is not.
        is_throttled: whether a store of this gateway asks for fewer requests.
        node: the gateway's name.
    """

    def __init__(
        self,
        *,
        fleet: bytes,
        transfer: bytes,
        epoch: int,
        store: ObjectStore,
        send_frame: SendFrame,
        threads: Executor,
        readers: int,
        loss_of: Callable[[int], GatewayLost | None] = lambda number: None,
        is_throttled: Callable[[], bool] = lambda: False,
        node: str = "",
    ) -> None:
        self.epoch = epoch
        #: A lead has asked this side for something.
        self.is_used = False
        self.store = store
        self._fleet = fleet
        self._transfer = transfer
        self._send_frame = send_frame
        self._threads = threads
        self._orders: asyncio.Queue[ChunkOrder] = asyncio.Queue()
        self._loss_of = loss_of
        self._is_throttled = is_throttled
        self._node = node
        #: (chunk, attempt) of those that the store is asked for at this moment.
        self._reading: set[tuple[int, int]] = set()
        #: (chunk, attempt) -> its order, until it has an outcome or nobody waits for one.
        self._pending: dict[tuple[int, int], ChunkOrder] = {}
        self._ended: OrderedDict[tuple[int, int], None] = OrderedDict()
        self._sendings: dict[ChunkId, _Sending] = {}
        self._outcomes: deque[tuple[int, ChunkOutcome]] = deque()
        self._last = 0
        self._news = asyncio.Event()
        self._is_closed = False
        #: Chunk -> the newest attempt at it that was asked for.
        self._newest: dict[int, int] = {}
        #: Chunk -> the attempt that is read and sent now, and the task that sends it.
        self._tasks: dict[int, tuple[int, asyncio.Task[None]]] = {}
        self._workers = [asyncio.create_task(self._work()) for _ in range(readers)]

    # -- the lead's side

    def take(self, order: ChunkOrder) -> None:
        """Accept an order; one that is known already is not taken twice.

        On a route that is down it ends at once, with GatewayLost. A new attempt at a chunk
        frees the reader that is stuck in an earlier one.
        """
        self.is_used = True
        identity = (order.chunk, order.attempt)
        if identity not in self._pending and identity not in self._ended:
            self._pending[identity] = order
            loss = self._loss_of(order.route)
            if loss is not None:
                self._report(ChunkOutcome.of_failure(order, loss))
                return
            self._orders.put_nowait(order)
            self._newest[order.chunk] = max(order.attempt, self._newest.get(order.chunk, 0))
            attempt, task = self._tasks.get(order.chunk, (0, None))
            if task is not None and attempt < order.attempt:
                task.cancel()

    async def outcomes(self, after: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        """Ended chunks after sequence number `after`; waits for one up to `wait_s` seconds.

        Raises:
            UnknownTransfer: this side of the transfer was closed; there will be no more.
        """
        self.is_used = True
        while self._outcomes and self._outcomes[0][0] <= after:
            self._outcomes.popleft()
        if not self._outcomes and not self._is_closed:
            self._news.clear()
            try:
                # Not `wait_for`: before Python 3.12 it loses a cancellation that comes
                # together with the news, and whoever cancels waits for ever.
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                return after, []
        if not self._outcomes:
            raise UnknownTransfer("this source has let go of the transfer")
        return self._last, [outcome for _, outcome in self._outcomes]

    def waiting(self) -> list[tuple[int, int]]:
        """(chunk, attempt) of orders whose bytes a store that throttles has yet to give."""
        if not self._is_throttled():
            return []
        return [
            identity
            for identity, order in self._pending.items()
            if identity in self._reading or self._chunk_of(order) not in self._sendings
        ]

    # -- the data path's side

    def on_receipt(self, header: ChunkId, sealed: memoryview) -> None:
        """Match a receipt to its chunk."""
        sending = self._sendings.pop(header, None)
        if sending is None:
            return
        try:
            receipt = open_receipt(header, sealed)
        except ProtocolError as error:
            # It says nothing that can be believed: the chunk has to go again.
            outcome = ChunkOutcome.of_failure(sending.order, ChecksumMismatch(error.message))
        else:
            outcome = _outcome_of(sending, receipt)
        self._report(outcome)

    def route_is_down(self, number: int, loss: GatewayLost) -> None:
        """Everything ordered for that route has lost its way, also what waits to be read.

        What is just being read or sent stops at its next piece: the route may stand again
        by then, but what it carried of the chunk is lost.
        """
        for order in [order for order in self._pending.values() if order.route == number]:
            self._sendings.pop(self._chunk_of(order), None)
            self._report(ChunkOutcome.of_failure(order, loss))

    async def close(self) -> None:
        """Stop reading, let go of the store, and keep nobody waiting for outcomes."""
        self._is_closed = True
        self._news.set()
        for worker in self._workers:
            worker.cancel()
        await asyncio.gather(*self._workers, return_exceptions=True)
        await asyncio.get_running_loop().run_in_executor(self._threads, self.store.close)

    # -- reading and sending

    async def _work(self) -> None:
        while True:
            order = await self._orders.get()
            if order.attempt < self._newest.get(order.chunk, 0):
                self._forget(order)
            if not self._is_pending(order):
                continue
            try:
                await self._send_unless_superseded(order)
            except SkyplaneError as error:
                await self._give_up(order, error)
            except Exception as error:  # Else the lead would wait for an outcome.
                log.exception("chunk %d cannot be sent", order.chunk)
                await self._give_up(order, self._unforeseen(error, order.ranges[0].source_key))

    async def _send_unless_superseded(self, order: ChunkOrder) -> None:
        task = asyncio.create_task(self._send(order))
        self._tasks[order.chunk] = (order.attempt, task)
        try:
            await asyncio.wait({task})
            if not task.cancelled():
                task.result()
                return
            # Nobody waits for it any more, and its route may not take even a farewell.
            self._sendings.pop(self._chunk_of(order), None)
            self._forget(order)
        finally:
            task.cancel()
            if self._tasks.get(order.chunk) == (order.attempt, task):
                del self._tasks[order.chunk]

    async def _give_up(self, order: ChunkOrder, error: SkyplaneError) -> None:
        sending = self._sendings.pop(self._chunk_of(order), None)
        frame = sending.framer.abort() if sending is not None else None
        if frame is not None:
            # Half a chunk would keep its room at the sink until the transfer ends. On a
            # route that is down there is nobody to tell, and the transfer has ended.
            with suppress(GatewayLost):
                await self._send_frame(frame)
        # What a sink's store says comes in a receipt; this was said here.
        at_source = isinstance(error, StoreError)
        self._report(ChunkOutcome.of_failure(order, error, at_source=at_source))

    async def _send(self, order: ChunkOrder) -> None:
        # A lone object may be large, so it is sent while it is read; many small ones
        # are read at once, and one that cannot be read does not hold up the others.
        if len(order.ranges) == 1:
            await self._send_range(order, order.ranges[0])
        else:
            await self._send_batch(order)

    async def _send_range(self, order: ChunkOrder, wanted: RangeOrder) -> None:
        reader = await self._ask_store(order, self._open, wanted)
        try:
            _require_carried(wanted, reader)
            content: PartEntry | tuple[ObjectEntry, ...]
            if order.kind == "part":
                content = PartEntry(
                    wanted.destination_key, order.upload_id, order.part_number, wanted.offset
                )
            else:
                attributes = reader.attributes or ObjectAttributes()
                content = (
                    ObjectEntry(
                        wanted.destination_key, wanted.length, attributes, wanted.precondition
                    ),
                )
            framer = self._begin(order, content, wanted.length, [0], [reader.not_carried])
            left = wanted.length
            while not framer.is_complete:
                piece = await self._ask_store(
                    order, _read_piece, reader, min(left, MAX_PAYLOAD_BYTES)
                )
                left -= len(piece)
                await self._feed(order, framer, piece)
        finally:
            await self._in_thread(reader.close)

    async def _send_batch(self, order: ChunkOrder) -> None:
        reads = [self._in_thread(self._read_small, wanted) for wanted in order.ranges]
        batch = fill(order.ranges, await asyncio.gather(*reads))
        if not batch.entries:
            rows = tuple(_unread(batch.failed[index]) for index in sorted(batch.failed))
            self._report(ChunkOutcome(order.chunk, order.attempt, rows))
            return
        framer = self._begin(
            order, tuple(batch.entries), batch.length, batch.indexes, batch.not_carried
        )
        sending = self._sendings[self._chunk_of(order)]
        sending.failed, sending.crc32cs = batch.failed, batch.crc32cs
        for body in batch.bodies:
            await self._feed(order, framer, body)
        if not framer.is_complete:
            await self._feed(order, framer, b"")

    def _begin(
        self,
        order: ChunkOrder,
        content: PartEntry | tuple[ObjectEntry, ...],
        length: int,
        indexes: list[int],
        not_carried: list[tuple[str, ...]],
    ) -> ChunkFramer:
        self._require_pending(order)
        manifest = ChunkManifest(length, content)
        chunk = self._chunk_of(order)
        framer = ChunkFramer(chunk, manifest)
        self._sendings[chunk] = _Sending(order, framer, indexes, not_carried)
        return framer

    async def _in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, call, *arguments)

    async def _ask_store(self, order: ChunkOrder, call: Callable[..., T], *arguments: object) -> T:
        identity = (order.chunk, order.attempt)
        self._reading.add(identity)
        try:
            return await self._in_thread(call, *arguments)
        finally:
            self._reading.discard(identity)

    async def _feed(self, order: ChunkOrder, framer: ChunkFramer, piece: bytes | bytearray) -> None:
        for frame in framer.feed(piece):
            self._require_pending(order)
            await self._send_frame(frame)

    def _is_pending(self, order: ChunkOrder) -> bool:
        return self._pending.get((order.chunk, order.attempt)) is order

    def _require_pending(self, order: ChunkOrder) -> None:
        """Raises GatewayLost when the order has ended while it was being carried out."""
        if not self._is_pending(order):
            raise GatewayLost(f"chunk {order.chunk} has lost its route meanwhile")

    def _forget(self, order: ChunkOrder) -> None:
        identity = (order.chunk, order.attempt)
        if self._pending.pop(identity, None) is not None:
            self._ended[identity] = None
            while len(self._ended) > _REMEMBERED:
                self._ended.popitem(last=False)

    def _open(self, wanted: RangeOrder) -> Reader:
        return self.store.read(
            wanted.source_key, offset=wanted.offset, length=wanted.length, if_match=wanted.etag
        )

    def _read_small(self, wanted: RangeOrder) -> SmallObject | SkyplaneError:
        try:
            with self._open(wanted) as reader:
                _require_carried(wanted, reader)
                data = _read_piece(reader, wanted.length)
                attributes = reader.attributes or ObjectAttributes()
        except SkyplaneError as error:
            return error
        except Exception as error:  # Else the other objects of the chunk would fail with it.
            log.exception("%r cannot be read", wanted.source_key)
            return self._unforeseen(error, wanted.source_key)
        return SmallObject(data, checksum(data), attributes, reader.not_carried)

    def _unforeseen(self, error: Exception, key: str) -> InternalError:
        return InternalError.of(error, f"reading {key!r}", f"the source gateway {self._node}")

    def _chunk_of(self, order: ChunkOrder) -> ChunkId:
        return ChunkId(
            self._fleet, self._transfer, self.epoch, order.route, order.attempt, order.chunk
        )

    def _report(self, outcome: ChunkOutcome) -> None:
        order = self._pending.get((outcome.chunk, outcome.attempt))
        if order is None:
            return  # It has one already, or nobody waits for one.
        self._forget(order)
        if self._newest.get(outcome.chunk) == outcome.attempt:
            del self._newest[outcome.chunk]
        self._last += 1
        self._outcomes.append((self._last, outcome))
        self._news.set()


def _read_piece(reader: Reader, length: int) -> bytearray:
    """Exactly `length` bytes.

    Raises:
        StoreUnavailable: the body ended before.
    """
    piece = bytearray(length)
    view = memoryview(piece)
    while view:
        count = reader.readinto(view)
        if count == 0:
            raise StoreUnavailable("the object's body ended early; it is read again")
        view = view[count:]
    return piece


def _outcome_of(sending: _Sending, receipt: Receipt) -> ChunkOutcome:
    """The receipt's answer per range, compared with what was read here."""
    order = sending.order
    if not receipt.entries:
        error = from_dict(
            {
                "code": receipt.code,
                "message": receipt.message,
                "is_permanent": receipt.is_permanent,
            }
        )
        return ChunkOutcome.of_failure(order, error)
    crc32cs = sending.crc32cs or [sending.framer.crc32c]
    if len(receipt.entries) != len(sending.indexes):
        mismatch = ChecksumMismatch("the receipt is for another number of objects")
        return ChunkOutcome.of_failure(order, mismatch)
    rows: dict[int, RangeOutcome] = {
        index: _unread(error) for index, error in sending.failed.items()
    }
    found = zip(sending.indexes, receipt.entries, crc32cs, sending.not_carried, strict=True)
    for index, entry, crc32c, not_carried in found:
        rows[index] = _compared(entry, crc32c, not_carried)
    return ChunkOutcome(order.chunk, order.attempt, tuple(rows[i] for i in sorted(rows)))


def _unread(error: SkyplaneError) -> RangeOutcome:
    return RangeOutcome(error, at_source=isinstance(error, StoreError))


def _require_carried(wanted: RangeOrder, reader: Reader) -> None:
    if wanted.strict_metadata:
        require_carried(wanted.source_key, reader.not_carried)


def _compared(entry: EntryResult, crc32c: int, not_carried: tuple[str, ...]) -> RangeOutcome:
    if entry.status is not ReceiptStatus.DURABLE:
        return RangeOutcome(
            from_dict(
                {
                    "code": entry.code,
                    "message": entry.message,
                    "is_permanent": entry.is_permanent,
                }
            )
        )
    if entry.crc32c != crc32c:
        return RangeOutcome(ChecksumMismatch("the sink wrote other bytes than were read"))
    return RangeOutcome(None, entry.etag, crc32c, not_carried=not_carried)
