"""The sealed body of a DATA frame.

    head crc32c u32 | payload crc32c u32 | payload offset u64 | chunk length u64
    manifest length u32 | manifest (frame 0 only) | payload

The payload has its own checksum, so the checksums of all frames combine to the chunk's
checksum. The head's checksum covers the outer header and the body before the payload: a flipped
bit in a chunk number or a key must not pass because the payload is intact.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from skyplane_gateway.common.buffers import Buffer, total_bytes
from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.protocol.errors import (
    FrameCorrupt,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
)
from skyplane_gateway.protocol.limits import MAX_MANIFEST, MAX_MESSAGE
from skyplane_gateway.protocol.messages import FRAME_HEADER_BYTES, FrameHeader, pack_frame_header
from skyplane_gateway.protocol.sealing import (
    PLAIN,
    PROLOGUE_BYTES,
    SEAL_BYTES,
    PlainOpening,
    Sealer,
    require_plain_tag,
    whole,
)

_CHECK: Final = struct.Struct(">I")
_FIELDS: Final = struct.Struct(">IQQI")
BODY_HEAD_BYTES: Final = _CHECK.size + _FIELDS.size

#: Of a sealed part: what tells where its payload belongs, without the manifest.
START_BYTES: Final = PROLOGUE_BYTES + BODY_HEAD_BYTES
#: Size of a frame without manifest and payload.
FRAME_OVERHEAD_BYTES: Final = FRAME_HEADER_BYTES + SEAL_BYTES + BODY_HEAD_BYTES
#: Payload of a full frame without a manifest.
MAX_PAYLOAD_BYTES: Final = MAX_MESSAGE - FRAME_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class RawFrame:
    """A frame ready to send: header and sealed part; payload is not copied."""

    header: FrameHeader
    sealed: tuple[Buffer, ...]
    payload_bytes: int


@dataclass(frozen=True, slots=True)
class OpenedFrame:
    """An opened frame; its head is verified, its payload is not.

    Attributes:
        offset, length_bytes: of the payload in the chunk.
        chunk_bytes: length of the whole chunk.
        payload_crc32c: expected checksum of the payload.
        manifest: the encoded chunk manifest; empty except in frame 0.
        payload: empty while it has not arrived.
    """

    header: FrameHeader
    offset: int
    length_bytes: int
    chunk_bytes: int
    payload_crc32c: int
    manifest: memoryview
    payload: memoryview


@dataclass(slots=True, eq=False)
class Claim:
    """The place of a payload that is received straight into the memory of its chunk.

    It counts as not received until `ChunkAssembler.add` has verified it.

    Attributes:
        frame: without its payload.
        view: the place; None once the chunk was given up, so that nothing writes there.
    """

    frame: OpenedFrame
    view: memoryview | None

    @property
    def sealed_bytes(self) -> int:
        """Length of the frame's sealed part."""
        frame = self.frame
        return SEAL_BYTES + BODY_HEAD_BYTES + len(frame.manifest) + frame.length_bytes


def seal_frame(
    header: FrameHeader,
    offset: int,
    chunk_bytes: int,
    payload: Sequence[Buffer],
    payload_crc32c: int,
    manifest: bytes = b"",
    sealer: Sealer = PLAIN,
) -> RawFrame:
    """Make a frame around `payload` (adjacent buffers) without copying it.

    Raises:
        LocalProtocolError: the frame is too large, or frame 0 lacks the manifest, or another
            frame has one.
    """
    if (header.frame == 0) != bool(manifest):
        raise LocalProtocolError(f"frame {header.frame}: only frame 0 has the manifest")
    payload_bytes = total_bytes(payload)
    body_bytes = BODY_HEAD_BYTES + len(manifest) + payload_bytes
    outer = pack_frame_header(header, body_bytes + SEAL_BYTES)
    try:
        fields = _FIELDS.pack(payload_crc32c, offset, chunk_bytes, len(manifest)) + manifest
    except struct.error as error:
        raise LocalProtocolError(f"frame {header.frame}: offset {offset} does not fit") from error
    check = _CHECK.pack(crc32c(fields, crc32c(outer)))
    return RawFrame(header, sealer.seal(outer, (check + fields, *payload)), payload_bytes)


#: Where the payload of a frame goes, by its head; None for memory of its own.
Place = Callable[[OpenedFrame], memoryview | None]


def open_frame(
    header: FrameHeader, sealed: memoryview, sealer: Sealer = PLAIN, place: Place = lambda _: None
) -> OpenedFrame:
    """Open a frame and verify its head; `ChunkAssembler.add` verifies the payload.

    Args:
        place: not authentic is what it is told of an encrypted frame. What is in the place counts
            for nothing where this raises.

    Raises:
        FrameCorrupt: the head does not have its checksum.
        RemoteProtocolError: it cannot be opened, or its lengths contradict each other.
    """
    outer = pack_frame_header(header, len(sealed))
    opening = sealer.open(outer, sealed)
    try:
        head = _read_head(header, outer, opening.left_bytes, opening.take)
    except ProtocolError:
        whole(opening)  # Bytes that are not authentic have no meaning.
        raise
    payload = place(head)
    if payload is None:
        payload = opening.take(opening.left_bytes)
    else:
        opening.take_into(payload)
    opening.finish()
    return replace(head, payload=payload)


def end_frame(claim: Claim, tag: memoryview) -> OpenedFrame:
    """The frame of a claim whose payload has arrived.

    Raises:
        RemoteProtocolError: the tag behind it is not that of a plain frame.
    """
    require_plain_tag(tag)
    if claim.view is None:
        raise LocalProtocolError("a payload was received for a chunk that was given up")
    return replace(claim.frame, payload=claim.view)


def begin_frame(header: FrameHeader, start: memoryview, sealed_bytes: int) -> OpenedFrame | None:
    """The verified head of a plain frame of which only the start has arrived.

    None where there is too little of it, where it is encrypted, or something is wrong with it:
    `open_frame` tells once it is complete.
    """
    if len(start) < START_BYTES or any(start[:PROLOGUE_BYTES]):
        return None
    # A copy: the data is soon written over.
    rest = PlainOpening(memoryview(bytes(start[PROLOGUE_BYTES:])))
    try:
        outer = pack_frame_header(header, sealed_bytes)
        return _read_head(header, outer, sealed_bytes - SEAL_BYTES, rest.take)
    except ProtocolError:
        return None


def _read_head(
    header: FrameHeader, outer: bytes, body_bytes: int, take: Callable[[int], memoryview]
) -> OpenedFrame:
    """The frame without its payload."""
    if body_bytes < BODY_HEAD_BYTES:
        raise RemoteProtocolError(f"frame body of {body_bytes} bytes is too short")
    fixed = take(BODY_HEAD_BYTES)
    check: int = _CHECK.unpack_from(fixed)[0]
    payload_crc32c, offset, chunk_bytes, manifest_bytes = _FIELDS.unpack_from(fixed, _CHECK.size)
    length_bytes = body_bytes - BODY_HEAD_BYTES - manifest_bytes
    if manifest_bytes > MAX_MANIFEST or length_bytes < 0:
        raise RemoteProtocolError(
            f"manifest of {manifest_bytes} bytes in a frame body of {body_bytes}; "
            f"the limit is {MAX_MANIFEST}"
        )
    manifest = take(manifest_bytes)
    if check != crc32c(manifest, crc32c(fixed[_CHECK.size :], crc32c(outer))):
        raise FrameCorrupt(
            f"the head of frame {header.frame} of chunk {header.chunk_id.chunk} "
            "does not have its checksum"
        )
    if (header.frame == 0) != bool(manifest_bytes):
        raise RemoteProtocolError(
            f"frame {header.frame} with a manifest of {manifest_bytes} bytes; only frame 0 has one"
        )
    return OpenedFrame(
        header, offset, length_bytes, chunk_bytes, payload_crc32c, manifest, memoryview(b"")
    )
