"""What becomes of a chunk that a source has sent: its receipt compared with what was read."""

from __future__ import annotations

from dataclasses import dataclass, field

from skyplane_gateway.common.errors import ChecksumMismatch, SkyplaneError, StoreError, from_dict
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.receipt import EntryResult, Receipt
from skyplane_gateway.source.chunk_orders import ChunkOrder, ChunkOutcome, RangeOutcome, ReadNotes


@dataclass(slots=True)
class SentChunk:
    """A chunk in flight.

    Attributes:
        indexes: the ranges of the order that are in the chunk.
        framer: None for a chunk that is handed over in memory.
        noted, crc32cs: per index.
        failed: range of the order -> why it is not in the chunk.
        begun_s: when its first frame was cut, on the event loop's clock.
    """

    order: ChunkOrder
    framer: ChunkFramer | None
    indexes: list[int]
    noted: list[ReadNotes]
    crc32cs: list[int] = field(default_factory=list)
    failed: dict[int, SkyplaneError] = field(default_factory=dict)
    begun_s: float = 0.0


def outcome_of(sending: SentChunk, receipt: Receipt) -> ChunkOutcome:
    """The outcome of each range, by the receipt and by what was read here."""
    order = sending.order
    if not receipt.entries:
        return ChunkOutcome.of_failure(order, from_dict(receipt.error or {}))
    framer = sending.framer
    crc32cs = sending.crc32cs or ([framer.crc32c] if framer is not None else [])
    if len(receipt.entries) != len(sending.indexes):
        mismatch = ChecksumMismatch("the receipt is for another number of objects")
        return ChunkOutcome.of_failure(order, mismatch)
    rows: dict[int, RangeOutcome] = {
        index: unread(error) for index, error in sending.failed.items()
    }
    found = zip(sending.indexes, receipt.entries, crc32cs, sending.noted, strict=True)
    for index, entry, crc32c, noted in found:
        rows[index] = _compared(entry, crc32c, noted)
    return ChunkOutcome(order.chunk, order.attempt, tuple(rows[i] for i in sorted(rows)))


def unread(error: SkyplaneError) -> RangeOutcome:
    """The outcome of a range that could not be read."""
    return RangeOutcome(error, at_source=isinstance(error, StoreError))


def _compared(entry: EntryResult, crc32c: int, noted: ReadNotes) -> RangeOutcome:
    if entry.error is not None:
        return RangeOutcome(from_dict(entry.error))
    if entry.crc32c != crc32c:
        return RangeOutcome(ChecksumMismatch("the sink wrote other bytes than were read"))
    return RangeOutcome(None, entry.etag, crc32c, False, *noted)
