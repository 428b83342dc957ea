"""Every field of every message of the wire, as the protocol itself packs and reads it.

The layouts are the structs of `protocol`. So a field that is added to the protocol appears here,
and with it the attacks on it.
"""

from __future__ import annotations

import inspect
import re
import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields

from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes
from skyplane_gateway.protocol import frames, handshake, messages, receipt, sealing
from skyplane_gateway.protocol.chunk_manifest import (
    ChunkManifest,
    ObjectEntry,
    encode_chunk_manifest,
)
from skyplane_gateway.protocol.frames import seal_frame
from skyplane_gateway.protocol.handshake import Side
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader, MessageType
from skyplane_gateway.protocol.reasons import GoodbyeReason
from skyplane_gateway.protocol.receipt import EntryResult, Receipt, seal_receipt

_FLEET, _TRANSFER = b"f" * 8, b"t" * 16
_CHUNK = ChunkId(_FLEET, _TRANSFER, 1, 0, 1, 1)
_PREFIX_NAMES = ("type", "flags", "version", "length")
#: Name and size in bytes.
_Sized = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message.

    Attributes:
        place: its bytes in the message; from the end for what follows the payload.
    """

    kind: MessageType
    name: str
    place: slice

    def __str__(self) -> str:
        return f"{self.kind.name}-{self.name}"

    @property
    def is_outer(self) -> bool:
        """Relays read it, or it belongs to no transfer."""
        start: int = self.place.start
        return self.kind not in _SEALED or 0 <= start < messages.HEAD_BYTES[self.kind]


_SEALED = (MessageType.DATA, MessageType.RECEIPT)


def _packed(layout: struct.Struct, names: Iterable[str]) -> Iterator[_Sized]:
    """The items of a struct; raises ValueError where a name is missing."""
    items = re.findall(r"\d+s|[BHIQ]", layout.format)
    for name, item in zip(names, items, strict=True):
        yield name, struct.calcsize(f">{item}")


def _outer(layout: struct.Struct, *more: str) -> Iterator[_Sized]:
    yield from _packed(layout, (*_PREFIX_NAMES, *(f.name for f in fields(ChunkId)), *more))


def _prologue() -> Iterator[_Sized]:
    names = list(inspect.signature(sealing.pack_prologue).parameters)
    yield from _packed(sealing._PROLOGUE, names)


def _prefix() -> Iterator[_Sized]:
    yield from _packed(messages._PREFIX, _PREFIX_NAMES)


def _sample_frame() -> tuple[bytes, list[_Sized]]:
    attributes = ObjectAttributes(content_type="text/plain", metadata=(("name", "value"),))
    entry = ObjectEntry("secret-key-1", 1000, attributes, IF_ABSENT)
    manifest = encode_chunk_manifest(ChunkManifest(1000, (entry,)))
    header = FrameHeader(_CHUNK, 0, is_last=True)
    raw = seal_frame(header, 0, 1000, (bytes(1000),), 0, manifest)
    outer = messages.pack_frame_header(header, sum(map(len, raw.sealed)))
    body = ("payload_crc32c", "offset", "length of chunk", "length of manifest")
    return outer + b"".join(raw.sealed), [
        *_outer(messages._FRAME, "frame"),
        *_prologue(),
        *_packed(frames._CHECK, ("head_crc32c",)),
        *_packed(frames._FIELDS, body),
        ("manifest", len(manifest)),
        ("payload", 1000),
        ("tag", sealing.TAG_BYTES),
    ]


def _sample_receipt() -> tuple[bytes, list[_Sized]]:
    entry = EntryResult(None, '"etag"', 1)
    raw = seal_receipt(_CHUNK, Receipt(1, entries=(entry,)))
    sealed = b"".join(raw.sealed)
    outer = messages.pack_receipt_header(_CHUNK, len(sealed))
    return outer + sealed, [
        *_outer(messages._RECEIPT),
        *_prologue(),
        ("body_crc32c", receipt._CHECK_BYTES),
        ("document", len(sealed) - sealing.SEAL_BYTES - receipt._CHECK_BYTES),
        ("tag", sealing.TAG_BYTES),
    ]


def _of_body(
    data: bytes, layout: struct.Struct, names: str, text: str = ""
) -> tuple[bytes, list[_Sized]]:
    rest = len(data) - messages.PREFIX_BYTES - layout.size
    return data, [*_prefix(), *_packed(layout, names.split()), *([(text, rest)] if text else [])]


_HELLO = handshake.Hello(_FLEET, bytes(16), 0, Side.UPSTREAM, "a")
_CHALLENGE = handshake.Challenge(_FLEET, bytes(16), "r")

#: A message of each type and its fields in order.
_SAMPLES: dict[MessageType, tuple[bytes, list[_Sized]]] = {
    MessageType.HELLO: _of_body(
        handshake.pack_hello(_HELLO), handshake._HELLO, "fleet nonce route side", "node"
    ),
    MessageType.CHALLENGE: _of_body(
        handshake.pack_challenge(_CHALLENGE, bytes(32)),
        handshake._CHALLENGE,
        "fleet nonce proof",
        "node",
    ),
    MessageType.PROOF: _of_body(handshake.pack_proof(bytes(32)), handshake._PROOF, "proof"),
    MessageType.DATA: _sample_frame(),
    MessageType.RECEIPT: _sample_receipt(),
    MessageType.GOODBYE: _of_body(
        messages.pack_goodbye(GoodbyeReason.PROTOCOL_ERROR, "why"),
        messages._GOODBYE,
        "reason",
        "text",
    ),
}


def uncovered_bytes(kind: MessageType) -> int:
    """Bytes of a message of that type that belong to no field."""
    sample, sized = _SAMPLES[kind]
    return len(sample) - sum(size for _, size in sized)


def _fields_of(kind: MessageType) -> Iterator[Field]:
    names: dict[str, int] = {}
    start = 0
    for name, size in _SAMPLES[kind][1]:
        names[name] = names.get(name, 0) + 1
        unique = name if names[name] == 1 else f"{name} {names[name]}"
        if size:
            is_behind_payload = kind in _SEALED and name == "tag"
            place = slice(-size, None) if is_behind_payload else slice(start, start + size)
            yield Field(kind, unique, place)
        start += size


#: Every field that has bytes, of every type of message.
FIELDS = tuple(field for kind in MessageType for field in _fields_of(kind))


def changed(message: bytes, field: Field, change: Callable[[bytes], bytes]) -> bytes:
    """The message with other bytes in that field.

    Inside the encrypted part the sample says where the field is. A shorter message has its last
    byte of ciphertext changed instead.
    """
    start, stop, _ = field.place.indices(len(message))
    if field.kind in _SEALED and field.place.start >= 0 and not field.is_outer:
        stop = min(stop, len(message) - sealing.TAG_BYTES)
        start = min(start, stop - 1)
    return message[:start] + change(message[start:stop]) + message[stop:]
