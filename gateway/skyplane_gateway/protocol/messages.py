"""The prefix and the outer headers of messages: all that a relay reads.

    prefix   type u8 | flags u8 | version u16 | length u32         (8 bytes)

`length` is the size after the prefix. These four fields, and the numbers of HELLO, CHALLENGE
and GOODBYE, are the same in every version of the wire. So two versions can always recognise
each other.

Packing raises LocalProtocolError for a field that does not fit or a message beyond its limit;
reading raises RemoteProtocolError.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.protocol._fields import pack_fields, unpack_fields
from skyplane_gateway.protocol.errors import (
    LocalProtocolError,
    RemoteProtocolError,
    WireVersionMismatch,
)
from skyplane_gateway.protocol.limits import (
    FLEET_BYTES,
    MAX_GOODBYE_TEXT,
    MAX_HANDSHAKE,
    MAX_MESSAGE,
    MAX_RECEIPT,
    TRANSFER_BYTES,
    WIRE_VERSION,
)
from skyplane_gateway.protocol.reasons import GoodbyeReason


class MessageType(IntEnum):
    """First byte of a message."""

    HELLO = 1
    CHALLENGE = 2
    PROOF = 3
    DATA = 4
    RECEIPT = 5
    GOODBYE = 6


#: Flag of DATA: no frame of this chunk has a higher number.
FLAG_LAST: Final = 0x01

_PREFIX: Final = struct.Struct(">BBHI")
_FRAME: Final = struct.Struct(f">BBHI{FLEET_BYTES}s{TRANSFER_BYTES}sIHHQI")
_RECEIPT: Final = struct.Struct(f">BBHI{FLEET_BYTES}s{TRANSFER_BYTES}sIHHQ")
_GOODBYE: Final = struct.Struct(">H")

PREFIX_BYTES: Final = _PREFIX.size
FRAME_HEADER_BYTES: Final = _FRAME.size
RECEIPT_HEADER_BYTES: Final = _RECEIPT.size
#: The epoch in the outer header, of DATA and of RECEIPT.
_EPOCH: Final = slice(
    PREFIX_BYTES + FLEET_BYTES + TRANSFER_BYTES, PREFIX_BYTES + FLEET_BYTES + TRANSFER_BYTES + 4
)

#: Size of a message's head, by type: the bytes before its body.
HEAD_BYTES: Final = {
    kind: {MessageType.DATA: FRAME_HEADER_BYTES, MessageType.RECEIPT: RECEIPT_HEADER_BYTES}.get(
        kind, PREFIX_BYTES
    )
    for kind in MessageType
}

#: Largest message of each type, prefix included.
MAX_BYTES: Final = {
    kind: {MessageType.DATA: MAX_MESSAGE, MessageType.RECEIPT: MAX_RECEIPT}.get(kind, MAX_HANDSHAKE)
    for kind in MessageType
}

_FLAGS: Final = {kind: FLAG_LAST if kind is MessageType.DATA else 0 for kind in MessageType}
_TYPES: Final = {int(kind): kind for kind in MessageType}


@dataclass(frozen=True, slots=True)
class Prefix:
    """The first eight bytes of a message. `size_bytes` is the size of the whole message."""

    kind: MessageType
    flags: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ChunkId:
    """Identity of one sending of a chunk; the outer header of its RECEIPT.

    `attempt` counts the sendings of the chunk, so late frames of an earlier attempt never mix
    with later ones. `epoch` belongs to the lead that cut the chunk. Leads number their chunks
    independently, so it keeps the chunks of two leads apart.
    """

    fleet: bytes
    transfer: bytes
    epoch: int
    route: int
    attempt: int
    chunk: int


@dataclass(frozen=True, slots=True)
class FrameHeader:
    """Outer header of DATA, visible to relays.

    `frame` counts from 0 within the chunk; `is_last` marks the highest.
    """

    chunk_id: ChunkId
    frame: int
    is_last: bool


#: Outer header of a message: of DATA, of RECEIPT, or of another that has none.
Header = FrameHeader | ChunkId | None


def read_prefix(data: memoryview) -> Prefix:
    """Decode and check the first eight bytes.

    Raises:
        WireVersionMismatch: the peer has another version.
        RemoteProtocolError: unknown type or flag, or a length outside the type's limits.
    """
    number, flags, version, length = _PREFIX.unpack_from(data)
    kind = _TYPES.get(number)
    if kind is None:
        raise RemoteProtocolError(f"message type {number} is unknown; is this a gateway?")
    if version != WIRE_VERSION:
        raise WireVersionMismatch(
            f"this gateway speaks wire version {WIRE_VERSION}, the peer {version}; "
            "bring both to the same release"
        )
    if flags & ~_FLAGS[kind]:
        raise RemoteProtocolError(f"{kind.name} with unknown flags {flags:#04x}")
    size = PREFIX_BYTES + length
    if not HEAD_BYTES[kind] <= size <= MAX_BYTES[kind]:
        raise RemoteProtocolError(
            f"{kind.name} of {size} bytes; it has {HEAD_BYTES[kind]} to {MAX_BYTES[kind]}"
        )
    return Prefix(kind, flags, size)


def pack_prefix(kind: MessageType, length: int) -> bytes:
    """The prefix of a message with `length` bytes after it."""
    _check_length(kind, length)
    return _PREFIX.pack(kind, 0, WIRE_VERSION, length)


def pack_frame_header(header: FrameHeader, sealed_bytes: int) -> bytes:
    """The outer 52 bytes of a frame whose sealed part has `sealed_bytes`."""
    flags = FLAG_LAST if header.is_last else 0
    return _pack_header(
        _FRAME, MessageType.DATA, flags, header.chunk_id, sealed_bytes, header.frame
    )


def unpack_frame_header(data: Buffer) -> FrameHeader:
    """Read the outer 52 bytes, whose prefix has been checked."""
    _, flags, _, _, *identity, frame = _FRAME.unpack_from(data)
    return FrameHeader(ChunkId(*identity), frame, bool(flags & FLAG_LAST))


def pack_receipt_header(header: ChunkId, sealed_bytes: int) -> bytes:
    """The outer 48 bytes of a receipt whose sealed part has `sealed_bytes`."""
    return _pack_header(_RECEIPT, MessageType.RECEIPT, 0, header, sealed_bytes)


def unpack_receipt_header(data: Buffer) -> ChunkId:
    """Read the outer 48 bytes, whose prefix has been checked."""
    return ChunkId(*_RECEIPT.unpack_from(data)[4:])


def epoch_field(outer: bytes) -> bytes:
    """The four bytes of the epoch in a packed outer header."""
    return outer[_EPOCH]


def pack_goodbye(reason: GoodbyeReason, text: str) -> bytes:
    """A whole GOODBYE. `text` is for people and is cut to its limit.

    Cutting, not refusing: a long explanation must not keep a connection from closing.
    """
    cut = text.encode(errors="replace")[:MAX_GOODBYE_TEXT].decode(errors="ignore")
    body = pack_fields("GOODBYE", _GOODBYE, (reason,), cut, MAX_GOODBYE_TEXT)
    return pack_prefix(MessageType.GOODBYE, len(body)) + body


def unpack_goodbye(body: Buffer) -> tuple[GoodbyeReason, str]:
    """Read what follows the prefix of a GOODBYE."""
    (number,), text = unpack_fields("GOODBYE", _GOODBYE, body, MAX_GOODBYE_TEXT)
    try:
        return GoodbyeReason(number), text
    except ValueError as error:
        raise RemoteProtocolError(f"GOODBYE: reason {number} is unknown") from error


def _pack_header(
    layout: struct.Struct,
    kind: MessageType,
    flags: int,
    chunk: ChunkId,
    sealed_bytes: int,
    *frame: int,
) -> bytes:
    length = layout.size + sealed_bytes - PREFIX_BYTES
    _check_length(kind, length)
    # struct pads and cuts byte strings in silence; an identity must be exact.
    if len(chunk.fleet) != FLEET_BYTES or len(chunk.transfer) != TRANSFER_BYTES:
        raise LocalProtocolError(
            f"fleet and transfer ids have {len(chunk.fleet)} and {len(chunk.transfer)} bytes; "
            f"they must have {FLEET_BYTES} and {TRANSFER_BYTES}"
        )
    identity = (chunk.fleet, chunk.transfer, chunk.epoch, chunk.route, chunk.attempt, chunk.chunk)
    try:
        return layout.pack(kind, flags, WIRE_VERSION, length, *identity, *frame)
    except struct.error as error:
        raise LocalProtocolError(f"a number of {chunk} or of its frame does not fit") from error


def _check_length(kind: MessageType, length: int) -> None:
    if PREFIX_BYTES + length > MAX_BYTES[kind]:
        raise LocalProtocolError(
            f"{kind.name} of {PREFIX_BYTES + length} bytes; the limit is {MAX_BYTES[kind]}"
        )
