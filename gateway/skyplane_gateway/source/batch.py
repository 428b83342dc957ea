"""Selects the small objects that fit into one chunk.

The manifest has a size limit, and only the source knows how long the attributes are. The lead
orders an object that does not fit again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from skyplane_gateway.common.errors import Overloaded, SkyplaneError
from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.protocol.chunk_manifest import (
    OBJECTS_BASE_BYTES,
    ObjectEntry,
    object_entry_bytes,
)
from skyplane_gateway.protocol.errors import LocalProtocolError
from skyplane_gateway.protocol.limits import MAX_MANIFEST
from skyplane_gateway.source.chunk_orders import ChunkOrder, ReadNotes
from skyplane_gateway.source.outcomes import SentChunk


@dataclass(frozen=True, slots=True)
class SmallObject:
    """An object in memory, with its metadata.

    Attributes:
        kept: what its copy gets, for each transfer that shares it.
    """

    data: bytes | bytearray
    crc32c: int
    kept: Sequence[tuple[ObjectAttributes, ReadNotes]]


@dataclass(slots=True)
class Batch:
    """A chunk of small objects."""

    sending: SentChunk
    entries: list[ObjectEntry] = field(default_factory=list)
    bodies: list[bytes | bytearray] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Payload bytes."""
        return sum(map(len, self.bodies))


_NEXT_TIME: Final = "the chunk's manifest is full; the object goes in the next one"


def fill(order: ChunkOrder, found: Sequence[SmallObject | SkyplaneError], member: int) -> Batch:
    """Fill a batch with the objects that were read, in order, up to the manifest's limit.

    `member` is the place of the order among those that share them.
    """
    sending = SentChunk(order)
    batch, room = Batch(sending), MAX_MANIFEST - OBJECTS_BASE_BYTES
    for index, (wanted, row) in enumerate(zip(order.ranges, found, strict=True)):
        if isinstance(row, SkyplaneError):
            sending.failed[index] = row
            continue
        attributes, noted = row.kept[member]
        entry = ObjectEntry(wanted.destination_key, len(row.data), attributes, wanted.precondition)
        try:
            size = object_entry_bytes(entry)
        except LocalProtocolError as error:
            sending.failed[index] = LocalProtocolError(error.message, is_permanent=True)
            continue
        if size > room:
            sending.failed[index] = Overloaded(_NEXT_TIME)
            continue
        room -= size
        sending.indexes.append(index)
        batch.entries.append(entry)
        batch.bodies.append(row.data)
        sending.crc32cs.append(row.crc32c)
        sending.noted.append(noted)
    return batch
