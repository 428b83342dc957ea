"""What becomes of the orders at a source: receipts compared with what was read, for the lead."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from skyplane_gateway.common.errors import (
    ChecksumMismatch,
    GatewayLost,
    GatewayUnreachable,
    SkyplaneError,
    StoreError,
    UnknownTransfer,
    from_dict,
)
from skyplane_gateway.protocol.errors import FrameAltered, NotEncrypted, ProtocolError
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.messages import ChunkId
from skyplane_gateway.protocol.receipt import EntryResult, open_receipt
from skyplane_gateway.protocol.sealing import Sealer
from skyplane_gateway.source.chunk_orders import ChunkOrder, ChunkOutcome, RangeOutcome, ReadNotes


@dataclass(slots=True)
class SentChunk:
    """A chunk in flight.

    Attributes:
        indexes: the ranges of the order that are in the chunk.
        noted, crc32cs: per index.
        failed: range of the order -> why it is not in the chunk.
        framer: None for a chunk that is handed over in memory.
        begun_s: when its first frame was cut, on the event loop's clock.
    """

    order: ChunkOrder
    indexes: list[int] = field(default_factory=list)
    noted: list[ReadNotes] = field(default_factory=list)
    crc32cs: list[int] = field(default_factory=list)
    failed: dict[int, SkyplaneError] = field(default_factory=dict)
    framer: ChunkFramer | None = None
    begun_s: float = 0.0


class OutcomeLog:
    """The outcomes that the lead of a transfer has not taken; each has a number."""

    def __init__(self) -> None:
        self._rows: deque[tuple[int, ChunkOutcome]] = deque()
        self._last = 0
        self._news = asyncio.Event()
        self.is_closed = False

    def add(self, outcome: ChunkOutcome) -> None:
        self._last += 1
        self._rows.append((self._last, outcome))
        self._news.set()

    def close(self) -> None:
        """End every wait for outcomes."""
        self.is_closed = True
        self._news.set()

    async def after(self, number: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        """Outcomes after that number, and the last number; waits up to `wait_s` for one.

        Raises UnknownTransfer after `close`.
        """
        while self._rows and self._rows[0][0] <= number:
            self._rows.popleft()
        if not self._rows and not self.is_closed:
            self._news.clear()
            try:
                # Before Python 3.12 `wait_for` loses a cancellation that comes together with
                # the event.
                async with asyncio.timeout(wait_s):
                    await self._news.wait()
            except TimeoutError:
                return number, []
        if not self._rows:
            raise UnknownTransfer("this source has released the transfer")
        return self._last, [outcome for _, outcome in self._rows]


def outcome_of(
    sending: SentChunk, header: ChunkId, sealed: memoryview, sealer: Sealer
) -> ChunkOutcome:
    """The outcome of each range, by the receipt and by what was read here."""
    order = sending.order
    try:
        receipt = open_receipt(header, sealed, sealer)
    except NotEncrypted as error:
        # Perhaps the sink has lost the transfer, and so its key. But anybody can say so.
        return ChunkOutcome.of_failure(order, GatewayUnreachable(error.message))
    except FrameAltered as error:
        # Another path, if there is one, may not alter receipts.
        return ChunkOutcome.of_failure(order, GatewayLost(error.message))
    except ProtocolError as error:
        # The receipt is damaged: the chunk must be sent again.
        return ChunkOutcome.of_failure(order, ChecksumMismatch(error.message))
    if not receipt.entries:
        return ChunkOutcome.of_failure(order, from_dict(receipt.error or {}))
    framer = sending.framer
    crc32cs = sending.crc32cs or ([framer.crc32c] if framer is not None else [])
    if len(receipt.entries) != len(sending.indexes):
        mismatch = ChecksumMismatch("the receipt is for another number of objects")
        return ChunkOutcome.of_failure(order, mismatch)
    rows = {index: unread(error) for index, error in sending.failed.items()}
    found = zip(sending.indexes, receipt.entries, crc32cs, sending.noted, strict=True)
    for index, entry, crc32c, noted in found:
        rows[index] = _compared(entry, crc32c, noted)
    return ChunkOutcome(*order.id, tuple(rows[i] for i in sorted(rows)))


def unread(error: SkyplaneError) -> RangeOutcome:
    """The outcome of a range that could not be read."""
    return RangeOutcome(error, at_source=isinstance(error, StoreError))


def _compared(entry: EntryResult, crc32c: int, noted: ReadNotes) -> RangeOutcome:
    if entry.error is not None:
        return RangeOutcome(from_dict(entry.error))
    if entry.crc32c != crc32c:
        return RangeOutcome(ChecksumMismatch("the sink wrote other bytes than were read"))
    return RangeOutcome(None, entry.etag, crc32c, False, *noted)
