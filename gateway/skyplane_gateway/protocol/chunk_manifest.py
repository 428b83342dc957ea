"""The chunk manifest: the content of a chunk, for the sink. Part of frame 0, as JSON.

    {"length_bytes": 9, "part": {"key", "upload_id", "number", "offset"}}
    {"length_bytes": 9, "objects": [{"key", "length_bytes", "attributes", "precondition"}, ...]}
    {"length_bytes": 9, "members": [{"transfer", "epoch", "chunk", "attempt", "part"}, ...]}

Objects are in the order of their payloads. Attributes and precondition may be absent. Members have
a part or objects of the same payload each.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.common.objects import UNCONDITIONAL, ObjectAttributes, Precondition
from skyplane_gateway.common.schema import encode
from skyplane_gateway.protocol._fields import pack_json, unpack_json
from skyplane_gateway.protocol.errors import LocalProtocolError, RemoteProtocolError
from skyplane_gateway.protocol.limits import MAX_ENTRIES, MAX_MANIFEST

_WHAT: Final = "chunk manifest"
_NO_ATTRIBUTES: Final = ObjectAttributes()

#: Most bytes of a manifest without its objects.
OBJECTS_BASE_BYTES: Final = 64


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

    def document(self) -> dict[str, Any]:
        """Short: there is one for each small object."""
        found: dict[str, Any] = {"key": self.key, "length_bytes": self.length_bytes}
        if self.attributes != _NO_ATTRIBUTES:
            rows = self.attributes.to_dict().items()
            found["attributes"] = {name: row for name, row in rows if row is not None}
        if self.precondition != UNCONDITIONAL:
            found["precondition"] = encode(self.precondition)
        return found


#: One part, or whole objects.
Content = PartEntry | tuple[ObjectEntry, ...]


@dataclass(frozen=True, slots=True)
class Member:
    """One of the transfers that share the payload of a chunk.

    Attributes:
        transfer: its id on the wire, hex.
        epoch, chunk, attempt: of its lead, which knows the chunk by them.
        part, objects: what the payload is at its destination; see `content`.
    """

    transfer: str
    epoch: int
    chunk: int
    attempt: int
    part: PartEntry | None = None
    objects: tuple[ObjectEntry, ...] = ()

    @property
    def content(self) -> Content:
        return self.part or self.objects

    def document(self) -> dict[str, Any]:
        numbers = {"epoch": self.epoch, "chunk": self.chunk, "attempt": self.attempt}
        return {"transfer": self.transfer, **numbers, **_content_document(self.content)}


@dataclass(frozen=True, slots=True)
class ChunkManifest:
    """The content of a chunk.

    Attributes:
        length_bytes: payload of the whole chunk.
        content: one part, or whole objects whose lengths add up to `length_bytes`; none of a chunk
            with members.
        members: of a chunk for several sinks.
    """

    length_bytes: int
    content: Content
    members: tuple[Member, ...] = ()

    def of_member(self, transfer: bytes) -> Member | None:
        return next((one for one in self.members if one.transfer == transfer.hex()), None)


@dataclass(frozen=True, slots=True)
class _Document:
    length_bytes: int
    part: PartEntry | None = None
    objects: tuple[ObjectEntry, ...] = ()
    members: tuple[Member, ...] = ()


def encode_chunk_manifest(manifest: ChunkManifest) -> bytes:
    """The encoded manifest, for frame 0. Raises LocalProtocolError beyond a limit."""
    problem = _problem(manifest)
    if problem:
        raise LocalProtocolError(f"{_WHAT}: {problem}")
    document: dict[str, Any] = {"length_bytes": manifest.length_bytes}
    if manifest.members:
        document["members"] = [one.document() for one in manifest.members]
    else:
        document |= _content_document(manifest.content)
    return pack_json(_WHAT, document, MAX_MANIFEST)


def _content_document(content: Content) -> dict[str, Any]:
    if isinstance(content, PartEntry):
        return {"part": encode(content)}
    return {"objects": [entry.document() for entry in content]}


def decode_chunk_manifest(data: Buffer) -> ChunkManifest:
    """Decode a manifest, which must fill `data`. Raises RemoteProtocolError."""
    document = unpack_json(_Document, _WHAT, data, MAX_MANIFEST)
    each: tuple[_Document | Member, ...] = (document, *document.members)
    if any(one.part is not None and one.objects for one in each):
        raise RemoteProtocolError(f"{_WHAT}: a part and objects in one chunk")
    content = document.part or document.objects
    manifest = ChunkManifest(document.length_bytes, content, document.members)
    problem = _problem(manifest)
    if problem:
        raise RemoteProtocolError(f"{_WHAT}: {problem}")
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
    most = MAX_MANIFEST - OBJECTS_BASE_BYTES - 1
    return len(pack_json(f"manifest of {entry.key!r}", entry.document(), most)) + 1


def _problem(manifest: ChunkManifest) -> str | None:
    """The first contradiction between fields; None if there is none."""
    content = manifest.content
    if manifest.members:
        if content or len({one.transfer for one in manifest.members}) < len(manifest.members):
            return "content beside its members, or a member twice"
        each = (ChunkManifest(manifest.length_bytes, one.content) for one in manifest.members)
        return next((problem for one in each if (problem := _problem(one))), None)
    if isinstance(content, PartEntry):
        if content.number < 1:
            return f"part number {content.number}; parts count from 1"
        if content.offset < 0 or manifest.length_bytes < 0:
            return f"{manifest.length_bytes} bytes at {content.offset}"
        return None if content.key else "an empty key"
    if not 1 <= len(content) <= MAX_ENTRIES:
        return f"{len(content)} objects; a batch has 1 to {MAX_ENTRIES}"
    if not all(entry.key for entry in content):
        return "an empty key"
    total = sum(entry.length_bytes for entry in content)
    if total != manifest.length_bytes or any(entry.length_bytes < 0 for entry in content):
        return f"objects of {total} bytes in a chunk of {manifest.length_bytes}"
    return None
