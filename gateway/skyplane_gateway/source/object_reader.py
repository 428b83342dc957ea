"""Reads pinned ranges from the source store, whole or piece by piece."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import Final, TypeVar

from skyplane_gateway.common.checksum import crc32c as checksum
from skyplane_gateway.common.errors import InternalError, SkyplaneError, StoreUnavailable
from skyplane_gateway.common.kept_properties import holdable_tags, in_headers, with_values
from skyplane_gateway.common.objects import MIB, ObjectAttributes
from skyplane_gateway.common.source_version import marked
from skyplane_gateway.protocol.chunk_manifest import Content, ObjectEntry, PartEntry
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.frames import RawFrame
from skyplane_gateway.selection.metadata_check import require_carried
from skyplane_gateway.source.batch import SmallObject
from skyplane_gateway.source.chunk_orders import ChunkOrder, RangeOrder, ReadNotes
from skyplane_gateway.stores.async_requests import WholeObject
from skyplane_gateway.stores.base import ComparingReader, ObjectStore, Reader, read_exactly
from skyplane_gateway.stores.checksums import Stated, compare
from skyplane_gateway.stores.content_types import lost_attributes
from skyplane_gateway.stores.wrappers.retrying import try_read

log = logging.getLogger(__name__)

T = TypeVar("T")

#: An MD5 of more would hold up the event loop.
_ON_LOOP_BYTES: Final = 64 << 10

#: Frames that a reader holds before they are sent.
FRAMES_AT_ONCE: Final = 4

#: Orders of the same range.
WantedBy = tuple[tuple[ChunkOrder, RangeOrder], ...]


class ObjectReader:
    """Reads for one transfer.

    Args:
        threads: where the store's blocking calls run.
        node: this gateway, for messages.
    """

    def __init__(self, store: ObjectStore, threads: Executor, node: str) -> None:
        self._store = store
        self._threads = threads
        self._node = node

    async def in_thread(self, call: Callable[..., T], *arguments: object) -> T:
        """Run a blocking call of the store."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, call, *arguments)

    def open(self, wanted: RangeOrder) -> ComparingReader:
        """Open the range in its pinned version; blocks. A whole object is compared with what its
        store states of it."""
        reader = self._store.read(
            wanted.source_key, offset=wanted.offset, length=wanted.length, if_match=wanted.etag
        )
        stated = stated_of(wanted, reader)
        return ComparingReader(reader, wanted.source_key, wanted.length, stated)

    async def read_small(
        self, *wanted_by: tuple[ChunkOrder, RangeOrder]
    ) -> SmallObject | SkyplaneError:
        """A small object, or why it cannot be read; for one transfer, or some that share it."""
        wanted = wanted_by[0][1]
        found = await try_read(
            self._store, wanted.source_key, length=wanted.length, if_match=wanted.etag
        )
        if found is None:
            return await self.in_thread(self._read_in_thread, wanted_by)
        if wanted.length > _ON_LOOP_BYTES:
            return await self.in_thread(_compared, wanted_by, found)
        return _compared(wanted_by, found)

    def _read_in_thread(self, wanted_by: WantedBy) -> SmallObject | SkyplaneError:
        wanted = wanted_by[0][1]
        try:
            with self.open(wanted) as reader:
                kept = [kept_of(*one, reader) for one in wanted_by]
                data = read_exactly(reader, wanted.length)
        except SkyplaneError as error:
            return error
        except Exception as error:  # The other objects of the chunk must not fail with it.
            log.exception("%r cannot be read", wanted.source_key)
            return self.unexpected(error, wanted.source_key)
        return SmallObject(data, checksum(data), kept)

    def unexpected(self, error: Exception, key: str) -> InternalError:
        """The error to report for one that no store should raise."""
        return InternalError.of(error, f"reading {key!r}", f"the source gateway {self._node}")


def _compared(wanted_by: WantedBy, found: WholeObject) -> SmallObject | SkyplaneError:
    wanted = wanted_by[0][1]
    try:
        kept = [kept_of(*one, found) for one in wanted_by]
        compare(wanted.source_key, found.data, stated_of(wanted, found))
    except SkyplaneError as error:
        return error
    return SmallObject(found.data, checksum(found.data), kept)


def read_into(reader: ComparingReader, buffer: memoryview, note: Callable[[int], None]) -> int:
    """Fill the buffer with the whole body, and return its CRC32C; blocks.

    Each piece is summed once, while the processor's cache still holds it; `note` is called with its
    number of bytes. Raises StoreUnavailable if the body ends before.
    """
    found = 0
    while buffer:
        count = reader.readinto(buffer[:MIB])
        if count == 0:
            raise StoreUnavailable("the object's body ended early; read it again")
        summed = reader.comparison.crc32c
        found = checksum(buffer[:count], found) if summed is None else summed
        buffer = buffer[count:]
        note(count)
    return found


def read_frames(reader: Reader, framer: ChunkFramer) -> list[RawFrame]:
    """Read and seal the next frames of a chunk; blocks.

    Each is summed and encrypted while the processor's cache still holds it. Several take one change
    of threads.
    """
    frames: list[RawFrame] = []
    for _ in range(FRAMES_AT_ONCE):
        frames += framer.feed(read_exactly(reader, framer.next_bytes))
        if framer.is_complete:
            break
    return frames


def kept_of(
    order: ChunkOrder, wanted: RangeOrder, reader: Reader | WholeObject
) -> tuple[ObjectAttributes, ReadNotes]:
    """The attributes that the copy gets, and what its result says of it.

    Raises MetadataNotCarried where the order is strict and the copy would lack some.
    """
    found, lacks = reader.attributes or ObjectAttributes(), reader.not_carried
    attributes = marked(with_values(found, order.kept.sets), wanted.mark)
    tags = holdable_tags(order.kept.tags_for, attributes.tags)
    if tags != attributes.tags or wanted.storage_class is not None:
        attributes = replace(attributes, tags=tags, storage_class=wanted.storage_class)
    kept = {"tags": tags, "storage-class": wanted.storage_class}
    lacks = tuple(name for name in lacks if not kept.get(name))
    if order.kept.omits_non_ascii:
        attributes, lost = in_headers(attributes)
        lacks += lost
    if not order.kept.attributes:
        lacks += lost_attributes(found, wanted.destination_key)
    if order.strict_metadata:
        require_carried(wanted.source_key, lacks)
    stated = stated_of(wanted, reader)
    return attributes, ReadNotes(lacks, "" if stated is None else stated.algorithm)


def stated_of(wanted: RangeOrder, reader: Reader | WholeObject) -> Stated | None:
    """What the source's store states of a whole object, in the listing or in its answer."""
    return Stated.crc32c(wanted.crc32c) or reader.stated


def content_of(order: ChunkOrder, reader: Reader) -> tuple[Content, ReadNotes]:
    """What the one range of the order is at the destination, and what its result says of it."""
    (wanted,) = order.ranges
    attributes, noted = kept_of(order, wanted, reader)
    key = wanted.destination_key
    if order.kind == "part":
        return PartEntry(key, order.upload_id, order.part_number, wanted.offset), noted
    return (ObjectEntry(key, wanted.length, attributes, wanted.precondition),), noted
