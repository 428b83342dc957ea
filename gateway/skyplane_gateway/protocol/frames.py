"""The sealed body of a DATA frame.

    head crc32c u32 | payload crc32c u32 | payload offset u64 | chunk length u64
    manifest length u32 | manifest (frame 0 only) | payload

The payload has its own checksum, so the checksums of all frames combine to the chunk's
checksum. The head's checksum covers the outer header and the body before the payload: a flipped
bit in a chunk number or a key must not pass because the payload is intact.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.common.buffers import Buffer, total_bytes
from skyplane_gateway.common.checksum import crc32c
from skyplane_gateway.protocol.errors import FrameCorrupt, LocalProtocolError, RemoteProtocolError
from skyplane_gateway.protocol.limits import MAX_MANIFEST, MAX_MESSAGE
from skyplane_gateway.protocol.messages import FRAME_HEADER_BYTES, FrameHeader, pack_frame_header
from skyplane_gateway.protocol.sealing import PLAIN, SEAL_BYTES, Sealer

_CHECK: Final = struct.Struct(">I")
_FIELDS: Final = struct.Struct(">IQQI")
BODY_HEAD_BYTES: Final = _CHECK.size + _FIELDS.size

#: Size of a frame without manifest and payload.
FRAME_OVERHEAD_BYTES: Final = FRAME_HEADER_BYTES + SEAL_BYTES + BODY_HEAD_BYTES
#: Payload of a full frame without a manifest.
MAX_PAYLOAD_BYTES: Final = MAX_MESSAGE - FRAME_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class RawFrame:
    """A frame ready to send: header and sealed part; payload is not copied."""

    header: FrameHeader
    sealed: tuple[Buffer, ...]


@dataclass(frozen=True, slots=True)
class OpenedFrame:
    """An opened frame; its head is verified, its payload is not.

    Attributes:
        offset: of the payload in the chunk.
        chunk_bytes: length of the whole chunk.
        payload_crc32c: expected checksum of the payload.
        manifest: the encoded chunk manifest; empty except in frame 0.
    """

    header: FrameHeader
    offset: int
    chunk_bytes: int
    payload_crc32c: int
    manifest: memoryview
    payload: memoryview


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
    body_bytes = BODY_HEAD_BYTES + len(manifest) + total_bytes(payload)
    outer = pack_frame_header(header, body_bytes + SEAL_BYTES)
    try:
        fields = _FIELDS.pack(payload_crc32c, offset, chunk_bytes, len(manifest)) + manifest
    except struct.error as error:
        raise LocalProtocolError(f"frame {header.frame}: offset {offset} does not fit") from error
    check = _CHECK.pack(crc32c(fields, crc32c(outer)))
    return RawFrame(header, sealer.seal(outer, (check + fields, *payload)))


def open_frame(header: FrameHeader, sealed: memoryview, sealer: Sealer = PLAIN) -> OpenedFrame:
    """Open a frame and verify its head; `ChunkAssembler.add` verifies the payload.

    Raises:
        FrameCorrupt: the head does not have its checksum.
        RemoteProtocolError: it cannot be opened, or its lengths contradict each other.
    """
    outer = pack_frame_header(header, len(sealed))
    body = sealer.open(outer, sealed)
    if len(body) < BODY_HEAD_BYTES:
        raise RemoteProtocolError(f"frame body of {len(body)} bytes is too short")
    check: int = _CHECK.unpack_from(body)[0]
    payload_crc32c, offset, chunk_bytes, manifest_bytes = _FIELDS.unpack_from(body, _CHECK.size)
    end = BODY_HEAD_BYTES + manifest_bytes
    if manifest_bytes > MAX_MANIFEST or end > len(body):
        raise RemoteProtocolError(
            f"manifest of {manifest_bytes} bytes in a frame body of {len(body)}; "
            f"the limit is {MAX_MANIFEST}"
        )
    if check != crc32c(body[_CHECK.size : end], crc32c(outer)):
        raise FrameCorrupt(
            f"the head of frame {header.frame} of chunk {header.chunk_id.chunk} "
            "does not have its checksum"
        )
    if (header.frame == 0) != bool(manifest_bytes):
        raise RemoteProtocolError(
            f"frame {header.frame} with a manifest of {manifest_bytes} bytes; only frame 0 has one"
        )
    manifest, payload = body[BODY_HEAD_BYTES:end], body[end:]
    return OpenedFrame(header, offset, chunk_bytes, payload_crc32c, manifest, payload)
