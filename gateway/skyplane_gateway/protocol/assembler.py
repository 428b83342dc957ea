"""Assembles the frames of one chunk."""

from __future__ import annotations

from bisect import bisect_left, insort
from dataclasses import dataclass

from skyplane_gateway.common.buffers import ChunkBuffer
from skyplane_gateway.common.checksum import combined, crc32c
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, decode_chunk_manifest
from skyplane_gateway.protocol.errors import FrameCorrupt, LocalProtocolError, RemoteProtocolError
from skyplane_gateway.protocol.frames import Claim, OpenedFrame
from skyplane_gateway.protocol.limits import MAX_FRAMES
from skyplane_gateway.protocol.messages import ChunkId


@dataclass(frozen=True, slots=True)
class _Span:
    """The accepted content of one frame; a duplicate must be equal."""

    offset: int
    length_bytes: int
    crc32c: int
    is_last: bool

    @property
    def end(self) -> int:
        return self.offset + self.length_bytes


def _span_of(frame: OpenedFrame) -> _Span:
    header = frame.header
    return _Span(frame.offset, frame.length_bytes, frame.payload_crc32c, header.is_last)


class ChunkAssembler:
    """The sink's side of one sending of a chunk: takes frames in any order, also duplicates.

    A refused frame changes nothing: a valid frame with the same number is still accepted. Bytes
    of an accepted frame are never written over. Memory: the buffer, and about 400 bytes for each of
    at most `MAX_FRAMES` frames.
    """

    def __init__(self, chunk: ChunkId, length_bytes: int, buffer: ChunkBuffer) -> None:
        """`buffer` is at least as long as the chunk; it holds the payload at its beginning."""
        self._chunk = chunk
        #: None before frame 0.
        self.manifest: ChunkManifest | None = None
        self._manifest_data = b""
        self._spans: dict[int, _Span] = {}
        #: Frames that are being received into their places.
        self._claims: dict[int, Claim] = {}
        #: Start and end of all spans and claims, ascending.
        self._places: list[tuple[int, int]] = []
        self._last: int | None = None
        self._highest = -1
        self.buffer = buffer
        self._buffer = memoryview(buffer)[:length_bytes]

    # ------------------------------------------------------------------ the result

    @property
    def is_complete(self) -> bool:
        return self._last is not None and len(self._spans) == self._last + 1

    @property
    def held_bytes(self) -> int:
        """Payload memory: the chunk's length."""
        return len(self._buffer)

    @property
    def payload(self) -> memoryview:
        """The complete chunk, contiguous, read-only."""
        self._require_complete()
        return self._buffer.toreadonly()

    @property
    def crc32c(self) -> int:
        """Checksum of the complete chunk, combined from those of its frames."""
        self._require_complete()
        spans = (self._spans[number] for number in range(len(self._spans)))
        return combined((span.crc32c, span.length_bytes) for span in spans)

    # ------------------------------------------------------------------ the frames

    def claim(self, head: OpenedFrame) -> Claim | None:
        """A place for a payload that has not arrived; `add` must follow it.

        None where `add` needs the whole frame: it is a second copy, empty, or contradicts others.
        """
        number, span = head.header.frame, _span_of(head)
        is_known = number in self._spans or number in self._claims
        if is_known or head.chunk_bytes != len(self._buffer) or span.length_bytes == 0:
            return None
        try:
            self._check_place(number, span)
            self._check_free(number, span)
        except RemoteProtocolError:
            return None
        claim = self._claims[number] = Claim(head, self._buffer[span.offset : span.end])
        insort(self._places, (span.offset, span.end))
        return claim

    def withdraw(self) -> None:
        """Nothing is to be written to the buffer any more: the chunk was given up."""
        for claim in self._claims.values():
            claim.view = None
        self._claims.clear()

    def add(self, frame: OpenedFrame) -> bool:
        """Accept one opened frame; returns whether the chunk is complete.

        The payload may be in its place already, by `claim`. A copy of a frame that is still
        arriving there changes nothing.

        Raises:
            FrameCorrupt: the payload does not have its checksum.
            RemoteProtocolError: it contradicts its chunk, a limit or another frame.
            LocalProtocolError: it belongs to another chunk, attempt or epoch.
        """
        header, span = frame.header, _span_of(frame)
        if header.chunk_id != self._chunk:
            raise LocalProtocolError(f"{header} does not belong to {self._chunk}")
        is_placed = self._ends_claim(frame)
        if crc32c(frame.payload) != span.crc32c:
            raise FrameCorrupt(
                f"the payload of frame {header.frame} of chunk {self._chunk.chunk} "
                "does not have its checksum"
            )
        if frame.chunk_bytes != len(self._buffer):
            length = f"{frame.chunk_bytes} bytes, not of {len(self._buffer)}"
            raise self._contradiction(header.frame, f"is of a chunk of {length}")
        claim = self._claims.get(header.frame)
        known = self._spans.get(header.frame) if claim is None else _span_of(claim.frame)
        if known is not None:
            if known != span:
                raise self._contradiction(header.frame, f"came as {known} and as {span}")
            manifest = self._manifest_data if claim is None else claim.frame.manifest
            if header.frame == 0 and frame.manifest != manifest:
                raise self._contradiction(0, "came with two manifests")
            return self.is_complete
        self._check_place(header.frame, span)
        self._check_free(header.frame, span)
        if header.frame == 0:
            data = bytes(frame.manifest)
            found = decode_chunk_manifest(data)
            if found.length_bytes != len(self._buffer):
                raise self._contradiction(
                    0, f"has a manifest of {found.length_bytes} bytes, not of {len(self._buffer)}"
                )
            self.manifest, self._manifest_data = found, data
        if not is_placed:
            self._buffer[span.offset : span.end] = frame.payload
        insort(self._places, (span.offset, span.end))
        self._spans[header.frame] = span
        self._highest = max(self._highest, header.frame)
        if span.is_last:
            self._last = header.frame
        return self.is_complete

    def _ends_claim(self, frame: OpenedFrame) -> bool:
        """End the claim of a frame whose payload is in its place; False where it is not."""
        claim = self._claims.get(frame.header.frame)
        if claim is None or claim.view is not frame.payload:
            return False
        del self._claims[frame.header.frame]
        self._places.remove((frame.offset, frame.offset + frame.length_bytes))
        return True

    def _check_place(self, number: int, span: _Span) -> None:
        """Check that frames are adjacent in the order of their numbers, from 0 to the end.

        A frame is compared with the neighbours that have arrived.
        """
        if number >= MAX_FRAMES:
            raise self._contradiction(number, f"exceeds the limit of {MAX_FRAMES} frames")
        if span.length_bytes == 0 and not (number == 0 and span.is_last):
            raise self._contradiction(number, "is empty, but not the only frame")
        length_bytes = len(self._buffer)
        if span.end > length_bytes or span.is_last != (span.end == length_bytes):
            kind = "is the last" if span.is_last else "is not the last"
            raise self._contradiction(number, f"{kind} and ends at {span.end} of {length_bytes}")
        before, after = self._spans.get(number - 1), self._spans.get(number + 1)
        start = 0 if number == 0 else None if before is None else before.end
        if start is not None and span.offset != start:
            raise self._contradiction(number, f"starts at {span.offset}, not at {start}")
        if after is not None and span.end != after.offset:
            raise self._contradiction(number, f"ends at {span.end}, not at {after.offset}")
        if span.is_last and (self._last is not None or number < self._highest):
            raise self._contradiction(number, "is marked as the last, but is not")
        if self._last is not None and number > self._last:
            raise self._contradiction(number, f"comes after frame {self._last}, the last")

    def _check_free(self, number: int, span: _Span) -> None:
        """Check that nothing has arrived there, and nothing is arriving."""
        above = bisect_left(self._places, (span.offset, span.end))
        around = self._places[max(0, above - 1) : above + 1]
        if any(start < span.end and span.offset < end for start, end in around):
            raise self._contradiction(number, f"at {span.offset} overlaps another one")

    def _contradiction(self, number: int, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"frame {number} of chunk {self._chunk.chunk} {what}")

    def _require_complete(self) -> None:
        if not self.is_complete:
            raise LocalProtocolError(
                f"chunk {self._chunk.chunk} is not complete: {len(self._spans)} frames so far"
            )
