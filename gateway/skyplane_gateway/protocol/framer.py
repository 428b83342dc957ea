"""Cuts the payload of one chunk into frames."""

from __future__ import annotations

from skyplane_gateway.common.buffers import Buffer
from skyplane_gateway.common.checksum import combine, crc32c
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, encode_chunk_manifest
from skyplane_gateway.protocol.errors import LocalProtocolError
from skyplane_gateway.protocol.frames import MAX_PAYLOAD_BYTES, RawFrame, seal_frame
from skyplane_gateway.protocol.limits import MAX_FRAMES
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader
from skyplane_gateway.protocol.sealing import PLAIN, Sealer


class ChunkFramer:
    """The source's side of one sending of a chunk: cuts pieces of any size into full frames.

    It holds views of the pieces, not copies: a piece must not change until its frames are
    sent. It holds at most one frame's payload.
    """

    def __init__(
        self,
        chunk: ChunkId,
        manifest: ChunkManifest,
        *,
        sealer: Sealer = PLAIN,
        max_payload_bytes: int = MAX_PAYLOAD_BYTES,
    ) -> None:
        """Raises LocalProtocolError for a bad frame size, manifest or number of frames."""
        if not 1 <= max_payload_bytes <= MAX_PAYLOAD_BYTES:
            raise LocalProtocolError(
                f"frames of {max_payload_bytes} payload bytes; allowed are 1 to {MAX_PAYLOAD_BYTES}"
            )
        self._chunk = chunk
        self._manifest = encode_chunk_manifest(manifest)
        self._length_bytes = manifest.length_bytes
        self._sealer = sealer
        self._max_payload_bytes = max_payload_bytes
        if self._most_frames() > MAX_FRAMES:
            raise LocalProtocolError(
                f"a chunk of {manifest.length_bytes} bytes needs {self._most_frames()} frames, "
                f"the limit is {MAX_FRAMES}: cut smaller chunks"
            )
        self._number = 0
        self._offset = 0
        #: Checksum of the payload framed so far; finally of the chunk.
        self.crc32c = 0
        self._pieces: list[memoryview] = []
        self._held_bytes = 0

    @property
    def is_complete(self) -> bool:
        """All payload has been framed."""
        return self._number > 0 and self._offset == self._length_bytes

    def feed(self, piece: Buffer) -> list[RawFrame]:
        """Add payload; returns the frames that are full now.

        The last frame follows as soon as the chunk's length is reached. An empty chunk has
        one frame: feed it an empty piece.

        Raises:
            LocalProtocolError: more payload than the manifest announced.
        """
        rest = memoryview(piece)
        missing = self._length_bytes - self._offset - self._held_bytes
        if len(rest) > missing:
            raise LocalProtocolError(
                f"{len(rest)} payload bytes for chunk {self._chunk.chunk}, only {missing} missing"
            )
        frames: list[RawFrame] = []
        while not self.is_complete:
            room = self.next_bytes
            taken = rest[: room - self._held_bytes]
            rest = rest[len(taken) :]
            if taken:
                self._pieces.append(taken)
                self._held_bytes += len(taken)
            if self._held_bytes < room:
                break
            frames.append(self._frame())
        return frames

    def abort(self) -> RawFrame | None:
        """A frame that contradicts the chunk, also after its last one: the sink drops the chunk.

        None if there was no frame.
        """
        if self._number == 0:
            return None
        return seal_frame(
            FrameHeader(self._chunk, self._number, is_last=True),
            self._offset,
            self._length_bytes,
            (),
            0,
            sealer=self._sealer,
        )

    @property
    def next_bytes(self) -> int:
        """Payload of the next frame: full, or the rest of the chunk."""
        manifest_bytes = len(self._manifest) if self._number == 0 else 0
        most = min(self._max_payload_bytes, MAX_PAYLOAD_BYTES - manifest_bytes)
        return min(most, self._length_bytes - self._offset)

    def _most_frames(self) -> int:
        first = min(self._max_payload_bytes, MAX_PAYLOAD_BYTES - len(self._manifest))
        rest = max(0, self._length_bytes - first)
        return 1 + -(-rest // self._max_payload_bytes)

    def _frame(self) -> RawFrame:
        checksum = 0
        for piece in self._pieces:
            checksum = crc32c(piece, checksum)
        end = self._offset + self._held_bytes
        frame = seal_frame(
            FrameHeader(self._chunk, self._number, is_last=end == self._length_bytes),
            self._offset,
            self._length_bytes,
            self._pieces,
            checksum,
            manifest=self._manifest if self._number == 0 else b"",
            sealer=self._sealer,
        )
        self.crc32c = combine(self.crc32c, checksum, self._held_bytes)
        self._number += 1
        self._offset = end
        self._pieces = []
        self._held_bytes = 0
        return frame
