"""Chunk orders from the lead to a source, and their outcomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from skyplane_gateway.common.errors import SkyplaneError, from_dict
from skyplane_gateway.common.kept_properties import PLAIN, KeptProperties
from skyplane_gateway.common.objects import UNCONDITIONAL, Precondition
from skyplane_gateway.common.schema import Document, as_mapping, decode

ChunkKind = Literal["objects", "part"]
#: (chunk, attempt).
AttemptId = tuple[int, int]


@dataclass(frozen=True, slots=True)
class RangeOrder:
    """One range to read: a whole object, or a part of it.

    Attributes:
        source_key, etag: the object, pinned to this version.
        offset, length: the range in bytes.
        precondition: of the write, for whole objects.
        storage_class: of the copy, as the destination names it; None for its default.
        mark: see `KeptProperties.mark_of`.
        crc32c: of the whole object, as the source's store lists it; None for parts.
    """

    source_key: str
    etag: str
    offset: int
    length: int
    destination_key: str
    precondition: Precondition = UNCONDITIONAL
    storage_class: str | None = None
    mark: tuple[str, str] | None = None
    crc32c: int | None = None


@dataclass(frozen=True, slots=True)
class ChunkOrder(Document, what="a chunk order"):
    """One chunk to read and send.

    Attributes:
        chunk, attempt: identify this sending on the wire.
        route: number of the route to use.
        kind: `objects` (one or more whole objects) or `part` (of a multipart upload).
        upload_id, part_number: for parts.
        kept: what the copies keep of their sources.
        strict_metadata: a range fails, and nothing of it is sent, when its copy would lose
            metadata.
    """

    chunk: int
    attempt: int
    route: int
    kind: ChunkKind
    ranges: tuple[RangeOrder, ...]
    upload_id: str = ""
    part_number: int = 0
    kept: KeptProperties = PLAIN
    strict_metadata: bool = False

    @property
    def id(self) -> AttemptId:
        return (self.chunk, self.attempt)

    @property
    def length(self) -> int:
        """Payload bytes."""
        return sum(part.length for part in self.ranges)


class ChunkState(NamedTuple):
    """How far one end is with a chunk that is in flight.

    Attributes:
        moved_bytes: at a source: read, and sent unless it stays here; at a sink: sent to the store.
        is_waiting: for a store that throttles or does not answer, or for bandwidth.
    """

    chunk: int
    attempt: int
    moved_bytes: int
    is_waiting: bool


class ReadNotes(NamedTuple):
    """What a source notes of an object that it reads; see `RangeOutcome`."""

    not_carried: tuple[str, ...] = ()
    compared: str = ""


@dataclass(frozen=True, slots=True)
class RangeOutcome:
    """The end of one range.

    Attributes:
        error: why the range is not at the destination; None when it is durable.
        etag: of the object or part, from the destination store.
        crc32c: of the bytes, as read at the source and confirmed by the sink.
        at_source: the error comes from the source store.
        not_carried: see `ObjectInfo.not_carried`, as the source store reported it, without what the
            copy keeps.
        compared: the checksum of the source's store that the bytes have, such as `MD5`; empty where
            it states none.
    """

    error: SkyplaneError | None
    etag: str = ""
    crc32c: int = 0
    at_source: bool = False
    not_carried: tuple[str, ...] = ()
    compared: str = ""

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RangeOutcome:
        """Raises ConfigurationInvalid for a broken document."""
        document = dict(as_mapping(data, "a range outcome"))
        error = document.get("error")
        if error is None:
            return decode(cls, document, "a range outcome")
        outcome = decode(cls, {**document, "error": None}, "a range outcome")
        return replace(outcome, error=from_dict(as_mapping(error, "a range outcome: error")))


@dataclass(frozen=True, slots=True)
class ChunkOutcome(Document, what="a chunk outcome"):
    """The end of one sending of a chunk: one outcome per range of its order."""

    chunk: int
    attempt: int
    ranges: tuple[RangeOutcome, ...]

    @classmethod
    def of_failure(cls, order: ChunkOrder, error: SkyplaneError) -> ChunkOutcome:
        """The same error, which is not of the source's store, for every range."""
        return cls(*order.id, (RangeOutcome(error),) * len(order.ranges))
