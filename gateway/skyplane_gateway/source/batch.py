"""Selects the small objects that fit into one chunk.

The manifest has a size limit, and only the source knows how long the attributes are. The lead
orders an object that does not fit again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
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
from skyplane_gateway.source.chunk_orders import RangeOrder, ReadNotes


@dataclass(frozen=True, slots=True)
class SmallObject:
    """An object in memory, with its metadata.

    Attributes:
        others: what else its copies get, for further transfers that share it.
    """

    data: bytes | bytearray
    crc32c: int
    attributes: ObjectAttributes
    noted: ReadNotes
    others: tuple[tuple[ObjectAttributes, ReadNotes], ...] = ()


def of_member(found: SmallObject | SkyplaneError, number: int) -> SmallObject | SkyplaneError:
    """The object as the first transfer that shares it gets it, or a further one."""
    if isinstance(found, SkyplaneError) or number == 0:
        return found
    attributes, noted = found.others[number - 1]
    return replace(found, attributes=attributes, noted=noted)


@dataclass(slots=True)
class Batch:
    """A chunk of small objects.

    Attributes:
        indexes: positions of the objects in the order.
        failed: position in the order -> why the object is not in the batch.
    """

    indexes: list[int] = field(default_factory=list)
    entries: list[ObjectEntry] = field(default_factory=list)
    bodies: list[bytes | bytearray] = field(default_factory=list)
    crc32cs: list[int] = field(default_factory=list)
    noted: list[ReadNotes] = field(default_factory=list)
    failed: dict[int, SkyplaneError] = field(default_factory=dict)

    @property
    def length(self) -> int:
        """Payload bytes."""
        return sum(map(len, self.bodies))


_NEXT_TIME: Final = "the chunk's manifest is full; the object goes in the next one"


def fill(ranges: Sequence[RangeOrder], found: Sequence[SmallObject | SkyplaneError]) -> Batch:
    """Fill a batch with the objects that were read, in order, up to the manifest's limit."""
    batch, room = Batch(), MAX_MANIFEST - OBJECTS_BASE_BYTES
    for index, (wanted, row) in enumerate(zip(ranges, found, strict=True)):
        if isinstance(row, SkyplaneError):
            batch.failed[index] = row
            continue
        entry = ObjectEntry(
            wanted.destination_key, len(row.data), row.attributes, wanted.precondition
        )
        try:
            size = object_entry_bytes(entry)
        except LocalProtocolError as error:
            batch.failed[index] = LocalProtocolError(error.message, is_permanent=True)
            continue
        if size > room:
            batch.failed[index] = Overloaded(_NEXT_TIME)
            continue
        room -= size
        batch.indexes.append(index)
        batch.entries.append(entry)
        batch.bodies.append(row.data)
        batch.crc32cs.append(row.crc32c)
        batch.noted.append(row.noted)
    return batch
