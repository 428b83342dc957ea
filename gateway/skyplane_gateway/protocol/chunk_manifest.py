"""The chunk manifest: what a chunk is, for the sink alone. Travels in frame 0.

    chunk length u64 | kind u8 | then
    PART (1):     key | upload id | part number u32 | offset in the object u64
    OBJECTS (2):  count u16, and for each object, payloads on end in this order:
                  key | length u64 | attributes | precondition

Texts are UTF-8 with a u16 length before them. Attributes are a mask of the headers
that are there (u8), those headers, a count (u16) of metadata pairs, the pairs. A
precondition is u8 (0 none, 1 if-absent, 2 if-match), for 2 with the etag after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from skyplane_gateway.buffers import Buffer
from skyplane_gateway.objects import IF_ABSENT, UNCONDITIONAL, ObjectAttributes, Precondition
from skyplane_gateway.protocol._codec import Reader, Writer
from skyplane_gateway.protocol.errors import LocalProtocolError
from skyplane_gateway.protocol.limits import (
    MAX_ATTRIBUTES,
    MAX_ENTRIES,
    MAX_ETAG,
    MAX_KEY,
    MAX_MANIFEST,
    MAX_UPLOAD_ID,
)

#: The headers in the order of their bits, lowest first.
_HEADERS: Final = (
    "content_type",
    "content_encoding",
    "content_language",
    "content_disposition",
    "cache_control",
)
_NO_ATTRIBUTES: Final = ObjectAttributes()

#: Manifest of OBJECTS without its entries: what a batch builder starts counting from.
OBJECTS_BASE_BYTES: Final = 8 + 1 + 2


class _Kind(IntEnum):
    PART = 1
    OBJECTS = 2


class _Fence(IntEnum):
    NONE = 0
    IF_ABSENT = 1
    IF_MATCH = 2


@dataclass(frozen=True, slots=True)
class PartEntry:
    """The chunk is one part of a multipart upload.

    Attributes:
        key: the object at the destination.
        upload_id: the open upload; empty for stores that have none.
        number: the part's number, from 1.
        offset: where its first byte stands in the object, bytes.
    """

    key: str
    upload_id: str
    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One whole object of the chunk; `length_bytes` of its payload."""

    key: str
    length_bytes: int
    attributes: ObjectAttributes = _NO_ATTRIBUTES
    precondition: Precondition = UNCONDITIONAL


@dataclass(frozen=True, slots=True)
class ChunkManifest:
    """What the payload of a chunk is.

    Attributes:
        length_bytes: payload of the whole chunk.
        content: one part, or one or more whole objects whose lengths add up to that.
    """

    length_bytes: int
    content: PartEntry | tuple[ObjectEntry, ...]


def encode_manifest(manifest: ChunkManifest) -> bytes:
    """The manifest as it stands in frame 0.

    Raises:
        LocalProtocolError: a value or the whole exceeds its limit, or lengths disagree.
    """
    problem = _problem(manifest)
    if problem:
        raise LocalProtocolError(f"manifest: {problem}")
    writer = Writer("manifest", MAX_MANIFEST)
    writer.u64(manifest.length_bytes, "chunk length")
    content = manifest.content
    if isinstance(content, PartEntry):
        writer.u8(_Kind.PART, "kind")
        writer.text(content.key, MAX_KEY, "key")
        writer.text(content.upload_id, MAX_UPLOAD_ID, "upload id")
        writer.u32(content.number, "part number")
        writer.u64(content.offset, "offset")
    else:
        writer.u8(_Kind.OBJECTS, "kind")
        writer.u16(len(content), "count")
        for entry in content:
            _write_object(writer, entry)
    return writer.done()


def decode_manifest(data: Buffer) -> ChunkManifest:
    """Read a manifest; the whole of `data` must be one.

    Raises:
        RemoteProtocolError: it is not, or breaks a limit.
    """
    reader = Reader("manifest", data)
    if len(data) > MAX_MANIFEST:
        raise reader.error(f"{len(data)} bytes, the limit is {MAX_MANIFEST}")
    length_bytes = reader.u64("chunk length")
    kind = reader.u8("kind")
    content: PartEntry | tuple[ObjectEntry, ...]
    if kind == _Kind.PART:
        content = PartEntry(
            key=reader.text(MAX_KEY, "key"),
            upload_id=reader.text(MAX_UPLOAD_ID, "upload id"),
            number=reader.u32("part number"),
            offset=reader.u64("offset"),
        )
    elif kind == _Kind.OBJECTS:
        count = reader.u16("count")
        if count > MAX_ENTRIES:
            raise reader.error(f"{count} objects, the limit is {MAX_ENTRIES}")
        content = tuple(_read_object(reader) for _ in range(count))
    else:
        raise reader.error(f"kind {kind} is unknown")
    reader.end()
    manifest = ChunkManifest(length_bytes, content)
    problem = _problem(manifest)
    if problem:
        raise reader.error(problem)
    return manifest


def object_entry_bytes(entry: ObjectEntry) -> int:
    """What one object adds to a manifest, so that a batch can be filled to its limit.

    Raises:
        LocalProtocolError: the entry fits no manifest.
    """
    writer = Writer("manifest", MAX_MANIFEST)
    _write_object(writer, entry)
    return writer.position


def _problem(manifest: ChunkManifest) -> str | None:
    """What the fields say about each other, for both directions alike."""
    content = manifest.content
    if isinstance(content, PartEntry):
        if content.number < 1:
            return f"part number {content.number}; parts count from 1"
        return None if content.key else "an empty key"
    if not 1 <= len(content) <= MAX_ENTRIES:
        return f"{len(content)} objects; a batch has 1 to {MAX_ENTRIES}"
    if not all(entry.key for entry in content):
        return "an empty key"
    total = sum(entry.length_bytes for entry in content)
    if total != manifest.length_bytes:
        return f"objects of {total} bytes in a chunk of {manifest.length_bytes}"
    return None


def _write_object(writer: Writer, entry: ObjectEntry) -> None:
    writer.text(entry.key, MAX_KEY, "key")
    writer.u64(entry.length_bytes, "length")
    start = writer.position
    _write_attributes(writer, entry.attributes)
    if writer.position - start > MAX_ATTRIBUTES:
        raise LocalProtocolError(
            f"the attributes of {entry.key!r} take {writer.position - start} bytes, "
            f"the limit is {MAX_ATTRIBUTES}"
        )
    _write_precondition(writer, entry.precondition)


def _read_object(reader: Reader) -> ObjectEntry:
    key = reader.text(MAX_KEY, "key")
    length_bytes = reader.u64("length")
    start = reader.position
    attributes = _read_attributes(reader)
    if reader.position - start > MAX_ATTRIBUTES:
        raise reader.error(
            f"attributes of {reader.position - start} bytes, the limit is {MAX_ATTRIBUTES}"
        )
    return ObjectEntry(key, length_bytes, attributes, _read_precondition(reader))


def _write_attributes(writer: Writer, attributes: ObjectAttributes) -> None:
    if attributes == _NO_ATTRIBUTES:
        writer.u8(0, "attribute mask")
        writer.u16(0, "metadata count")
        return
    values = [getattr(attributes, name) for name in _HEADERS]
    mask = sum(1 << bit for bit, value in enumerate(values) if value is not None)
    writer.u8(mask, "attribute mask")
    for name, value in zip(_HEADERS, values, strict=True):
        if value is not None:
            writer.text(value, MAX_ATTRIBUTES, name)
    writer.u16(len(attributes.metadata), "metadata count")
    for name, value in attributes.metadata:
        writer.text(name, MAX_ATTRIBUTES, "metadata name")
        writer.text(value, MAX_ATTRIBUTES, "metadata value")


def _read_attributes(reader: Reader) -> ObjectAttributes:
    mask = reader.u8("attribute mask")
    if mask >> len(_HEADERS):
        raise reader.error(f"attribute mask {mask:#04x} has unknown bits")
    headers = {
        name: reader.text(MAX_ATTRIBUTES, name)
        for bit, name in enumerate(_HEADERS)
        if mask & (1 << bit)
    }
    count = reader.u16("metadata count")
    if not mask and not count:
        return _NO_ATTRIBUTES
    metadata = tuple(
        (
            reader.text(MAX_ATTRIBUTES, "metadata name"),
            reader.text(MAX_ATTRIBUTES, "metadata value"),
        )
        for _ in range(count)
    )
    return ObjectAttributes(**headers, metadata=metadata)


def _write_precondition(writer: Writer, fence: Precondition) -> None:
    if fence.if_match is not None:
        writer.u8(_Fence.IF_MATCH, "precondition")
        writer.text(fence.if_match, MAX_ETAG, "etag")
    else:
        writer.u8(_Fence.IF_ABSENT if fence.if_absent else _Fence.NONE, "precondition")


def _read_precondition(reader: Reader) -> Precondition:
    kind = reader.u8("precondition")
    if kind == _Fence.NONE:
        return UNCONDITIONAL
    if kind == _Fence.IF_ABSENT:
        return IF_ABSENT
    if kind == _Fence.IF_MATCH:
        return Precondition(if_match=reader.text(MAX_ETAG, "etag"))
    raise reader.error(f"precondition {kind} is unknown")
