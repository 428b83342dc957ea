"""Cuts incoming bytes into messages without copying large bodies.

Bytes arrive in a small staging buffer until the head of a message is complete. If its body is
not complete by then, the rest is received straight into a buffer of the body's exact size, or
the payload of a frame into its place in the chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.common.buffers import unwritten
from skyplane_gateway.protocol.frames import START_BYTES, Claim
from skyplane_gateway.protocol.limits import MAX_HANDSHAKE
from skyplane_gateway.protocol.messages import (
    HEAD_BYTES,
    PREFIX_BYTES,
    FrameHeader,
    Header,
    MessageType,
    Prefix,
    read_prefix,
)
from skyplane_gateway.protocol.sealing import TAG_BYTES

#: Hundreds of receipts fit, so they cost one system call. 64 connections cost 4 MiB.
STAGING_BYTES: Final = 64 << 10

#: Read at a time where frames arrive: the staged part of a payload has to be copied.
FRAME_STAGING_BYTES: Final = 8 << 10

#: Longest message of a peer without proof. Allocated with its first byte.
UNPROVEN_STAGING_BYTES: Final = MAX_HANDSHAKE

#: Called with a valid prefix before its body gets memory, perhaps several times for one
#: message; raises to refuse the message.
Admit = Callable[[Prefix], None]

#: Reads the head of a message, prefix included, when it has arrived; raises to refuse the message.
AdmitHead = Callable[[Prefix, memoryview], Header]

#: From the head of a frame, what has arrived behind it, and the length of its sealed part, to the
#: place of its payload. None: the frame is received whole.
ClaimPlace = Callable[[FrameHeader, memoryview, int], Claim | None]


@dataclass(slots=True, eq=False)
class Message:
    """One complete message: its type, the header of a frame or receipt, and the body after it.

    The body is only the tag where the payload is in its `claim`.
    """

    kind: MessageType
    header: Header
    body: memoryview
    claim: Claim | None = None


class MessageReader:
    """Holds at most `STAGING_BYTES` and one body of an admitted size.

    Until `trust` it holds at most `UNPROVEN_STAGING_BYTES`, from the first `get_buffer` on.
    """

    def __init__(self, admit: Admit, admit_head: AdmitHead, claim_place: ClaimPlace) -> None:
        self._admit = admit
        self._admit_head = admit_head
        self._claim_place = claim_place
        self._staging = memoryview(b"")
        self._staged = 0
        self._prefix: Prefix | None = None
        self._header: Header = None
        self._body = memoryview(b"")
        self._claim: Claim | None = None
        self._body_bytes = 0
        self._received = 0

    def get_buffer(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        if self._prefix is not None and self._received < self._body_bytes:
            return self._place()[self._received :]
        if not self._staging:
            self._staging = memoryview(bytearray(UNPROVEN_STAGING_BYTES))
        return self._staging[self._staged :]

    def trust(self, *, sends_frames: bool) -> None:
        """The peer has proven itself: use the large staging buffer."""
        large = FRAME_STAGING_BYTES if sends_frames else STAGING_BYTES
        staging = memoryview(bytearray(large))
        staging[: self._staged] = self._staging[: self._staged]
        self._staging = staging

    def drop(self) -> None:
        """Drop all bytes that have arrived."""
        self._prefix, self._body, self._claim = None, memoryview(b""), None
        self._staged = 0

    def updated(self, count: int) -> Iterator[Message]:
        """Process `count` bytes written to the buffer; yields the messages that they complete.

        Lazy: a message is checked only after the caller has handled the one before, so
        `admit` sees the new state.
        """
        if self._prefix is not None and self._received < self._body_bytes:
            self._received += count
            if self._received < self._body_bytes:
                return
        else:
            self._staged += count
        if self._prefix is None:
            yield from self._unstage(0)
        elif self._claim is None:
            yield self._whole(self._prefix, self._body.toreadonly())
        elif self._staged >= TAG_BYTES:
            message = self._whole(self._prefix, memoryview(bytes(self._staging[:TAG_BYTES])))
            if message.claim is None or message.claim.view is not None:
                yield message
            yield from self._unstage(TAG_BYTES)

    def _whole(self, prefix: Prefix, body: memoryview) -> Message:
        message = Message(prefix.kind, self._header, body, self._claim)
        self._prefix, self._body, self._claim = None, memoryview(b""), None
        return message

    def _unstage(self, start: int) -> Iterator[Message]:
        while self._staged - start >= PREFIX_BYTES:
            prefix = read_prefix(self._staging[start : self._staged])
            self._admit(prefix)
            head_end = start + HEAD_BYTES[prefix.kind]
            if self._staged < head_end:
                break
            header = self._admit_head(prefix, self._staging[start:head_end])
            end = start + prefix.size_bytes
            if self._staged < end:
                if isinstance(header, FrameHeader) and self._staged < min(
                    end, head_end + START_BYTES
                ):
                    break
                self._begin_body(prefix, header, head_end, end - head_end)
                return
            body = memoryview(bytes(self._staging[head_end:end]))
            yield Message(prefix.kind, header, body)
            start = end
        self._keep(start)

    def _keep(self, start: int) -> None:
        """Keep the staged bytes from there on."""
        rest = self._staged - start
        self._staging[:rest] = self._staging[start : self._staged]
        self._staged = rest

    def _begin_body(self, prefix: Prefix, header: Header, start: int, body_bytes: int) -> None:
        staged = self._staging[start : self._staged]
        claim = None
        if isinstance(header, FrameHeader):
            claim = self._claim_place(header, staged, body_bytes)
        self._claim = claim
        self._body_bytes = body_bytes if claim is None else claim.frame.length_bytes
        body = self._place()
        if claim is not None:
            staged = staged[body_bytes - TAG_BYTES - len(body) :]
        count = min(len(staged), len(body))
        body[:count] = staged[:count]
        self._prefix, self._header, self._received = prefix, header, count
        # The rest is of the tag.
        self._keep(self._staged - (len(staged) - count))

    def _place(self) -> memoryview:
        """Where the body goes; of a payload whose chunk was given up, memory to drop it.

        The claim alone holds the memory of a chunk, so it is free once the chunk is given up.
        """
        if self._claim is not None and self._claim.view is not None:
            return self._claim.view
        if not self._body:
            self._body = memoryview(unwritten(self._body_bytes))
        return self._body
