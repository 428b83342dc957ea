"""The chunk manifest: the content of a chunk, for the sink. Part of frame 0.

    chunk length u64 | kind u8 | then
    PART (1):     key | upload id | part number u32 | offset in the object u64
    OBJECTS (2):  count u16, then for each object, in the order of their payloads:
                  key | length u64 | attributes | precondition

Texts are UTF-8 after their length (u16). Attributes are a mask of the present headers (u8),
those headers, the number of metadata pairs (u16), and the pairs. With bit 6 of the mask the same
follows for the tags. A precondition is u8 (0 none, 1 if-absent, 2 if-match); the etag follows 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.common.objects import IF_ABSENT, UNCONDITIONAL, ObjectAttributes, Precondition
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
    "storage_class",
)
#: The bit of the mask after those of the headers.
_TAGS_BIT: Final = 1 << len(_HEADERS)
_NO_ATTRIBUTES: Final = ObjectAttributes()

#: Size of an OBJECTS manifest without entries.
OBJECTS_BASE_BYTES: Final = 8 + 1 + 2


class _Kind(IntEnum):
    PART = 1
    OBJECTS = 2


class _PreconditionKind(IntEnum):
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
        offset: of its first byte in the object.
    """

    key: str
    upload_id: str
    number: int
    offset: int


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """One whole object in the chunk's payload."""

    key: str
    length_bytes: int
    attributes: ObjectAttributes = _NO_ATTRIBUTES
    precondition: Precondition = UNCONDITIONAL


@dataclass(frozen=True, slots=True)
class ChunkManifest:
    """The content of a chunk.

    Attributes:
        length_bytes: payload of the whole chunk.
        content: one part, or whole objects whose lengths add up to `length_bytes`.
    """

    length_bytes: int
    content: PartEntry | tuple[ObjectEntry, ...]


def encode_chunk_manifest(manifest: ChunkManifest) -> bytes:
    """The encoded manifest, for frame 0. Raises LocalProtocolError beyond a limit."""
    problem = _problem(manifest)
    if problem:
        raise LocalProtocolError(f"chunk manifest: {problem}")
    writer = Writer("chunk manifest", MAX_MANIFEST)
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


def decode_chunk_manifest(data: Buffer) -> ChunkManifest:
    """Decode a manifest, which must fill `data`. Raises RemoteProtocolError."""
    reader = Reader("chunk manifest", data)
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


def objects_of(
    manifest: ChunkManifest, payload: memoryview
) -> Iterator[tuple[ObjectEntry, memoryview]]:
    """Each object of a chunk with its payload; empty if the chunk is a part."""
    start = 0
    for entry in manifest.content if isinstance(manifest.content, tuple) else ():
        yield entry, payload[start : start + entry.length_bytes]
        start += entry.length_bytes


def object_entry_bytes(entry: ObjectEntry) -> int:
    """Size of one object's entry. Raises LocalProtocolError when it fits no manifest."""
    writer = Writer("chunk manifest", MAX_MANIFEST)
    _write_object(writer, entry)
    return writer.position


def _problem(manifest: ChunkManifest) -> str | None:
    """The first contradiction between fields; None if there is none."""
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
    writer.u8(mask | (_TAGS_BIT if attributes.tags else 0), "attribute mask")
    for name, value in zip(_HEADERS, values, strict=True):
        if value is not None:
            writer.text(value, MAX_ATTRIBUTES, name)
    _write_pairs(writer, attributes.metadata, "metadata")
    if attributes.tags:
        _write_pairs(writer, attributes.tags, "tags")


def _write_pairs(writer: Writer, pairs: tuple[tuple[str, str], ...], what: str) -> None:
    writer.u16(len(pairs), f"{what} count")
    for name, value in pairs:
        writer.text(name, MAX_ATTRIBUTES, f"{what} name")
        writer.text(value, MAX_ATTRIBUTES, f"{what} value")


def _read_attributes(reader: Reader) -> ObjectAttributes:
    mask = reader.u8("attribute mask")
    if mask >= _TAGS_BIT << 1:
        raise reader.error(f"attribute mask {mask:#04x} has unknown bits")
    headers = {
        name: reader.text(MAX_ATTRIBUTES, name)
        for bit, name in enumerate(_HEADERS)
        if mask & (1 << bit)
    }
    metadata = _read_pairs(reader, "metadata")
    if not mask and not metadata:
        return _NO_ATTRIBUTES
    tags = _read_pairs(reader, "tags") if mask & _TAGS_BIT else ()
    if mask & _TAGS_BIT and not tags:
        raise reader.error("attributes say that there are tags, and there are none")
    return ObjectAttributes(**headers, metadata=metadata, tags=tags)


def _read_pairs(reader: Reader, what: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        (
            reader.text(MAX_ATTRIBUTES, f"{what} name"),
            reader.text(MAX_ATTRIBUTES, f"{what} value"),
        )
        for _ in range(reader.u16(f"{what} count"))
    )


def _write_precondition(writer: Writer, precondition: Precondition) -> None:
    if precondition.if_match is not None:
        writer.u8(_PreconditionKind.IF_MATCH, "precondition")
        writer.text(precondition.if_match, MAX_ETAG, "etag")
    else:
        writer.u8(
            _PreconditionKind.IF_ABSENT if precondition.if_absent else _PreconditionKind.NONE,
            "precondition",
        )


def _read_precondition(reader: Reader) -> Precondition:
    kind = reader.u8("precondition")
    if kind == _PreconditionKind.NONE:
        return UNCONDITIONAL
    if kind == _PreconditionKind.IF_ABSENT:
        return IF_ABSENT
    if kind == _PreconditionKind.IF_MATCH:
        return Precondition(if_match=reader.text(MAX_ETAG, "etag"))
    raise reader.error(f"precondition {kind} is unknown")
