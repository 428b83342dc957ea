"""Cuts incoming bytes into messages without copying large bodies.

Bytes arrive in a small staging buffer until the head of a message is complete. If its body is
not complete by then, the body gets a buffer of its exact size, and the rest is received
straight into it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from skyplane_gateway.protocol.limits import MAX_HANDSHAKE
from skyplane_gateway.protocol.messages import HEAD_BYTES, PREFIX_BYTES, Prefix, read_prefix

#: Hundreds of receipts fit, so they cost one system call. The copied start of a frame is at
#: most this long and stays in the L2 cache. 64 connections cost 4 MiB.
STAGING_BYTES: Final = 64 << 10

#: Longest message of a peer without proof. Allocated with its first byte.
UNPROVEN_STAGING_BYTES: Final = MAX_HANDSHAKE

#: Called with a valid prefix before its body gets memory, perhaps several times for one
#: message; raises to refuse the message.
Admit = Callable[[Prefix], None]


class Message:
    """One complete message: its prefix, head (prefix included) and the body after it."""

    __slots__ = ("body", "head", "prefix")

    def __init__(self, prefix: Prefix, head: bytes, body: memoryview) -> None:
        self.prefix = prefix
        self.head = head
        self.body = body


class MessageReader:
    """Holds at most `STAGING_BYTES` and one body of an admitted size.

    Until `trust` it holds at most `UNPROVEN_STAGING_BYTES`, from the first `get_buffer` on.
    """

    def __init__(self, admit: Admit, admit_head: Callable[[Prefix, bytes], None]) -> None:
        self._admit = admit
        self._admit_head = admit_head
        self._staging = memoryview(b"")
        self._staged = 0
        self._prefix: Prefix | None = None
        self._head = b""
        self._body = memoryview(b"")
        self._received = 0

    def get_buffer(self) -> memoryview:
        """Where the next bytes belong; never empty."""
        if self._prefix is not None:
            return self._body[self._received :]
        if not self._staging:
            self._staging = memoryview(bytearray(UNPROVEN_STAGING_BYTES))
        return self._staging[self._staged :]

    def trust(self) -> None:
        """The peer has proven itself: use the large staging buffer."""
        staging = memoryview(bytearray(STAGING_BYTES))
        staging[: self._staged] = self._staging[: self._staged]
        self._staging = staging

    def drop(self) -> None:
        """Drop all bytes that have arrived."""
        self._prefix, self._body, self._staged = None, memoryview(b""), 0

    def updated(self, count: int) -> Iterator[Message]:
        """Process `count` bytes written to the buffer; yields the messages that they complete.

        Lazy: a message is checked only after the caller has handled the one before, so
        `admit` sees the new state.
        """
        if self._prefix is None:
            self._staged += count
            yield from self._unstage()
            return
        self._received += count
        if self._received == len(self._body):
            prefix, self._prefix = self._prefix, None
            body, self._body = self._body, memoryview(b"")
            yield Message(prefix, self._head, body.toreadonly())

    def _unstage(self) -> Iterator[Message]:
        start = 0
        while self._staged - start >= PREFIX_BYTES:
            prefix = read_prefix(self._staging[start : self._staged])
            self._admit(prefix)
            head_end = start + HEAD_BYTES[prefix.kind]
            if self._staged < head_end:
                break
            head = bytes(self._staging[start:head_end])
            self._admit_head(prefix, head)
            end = start + prefix.size_bytes
            if self._staged < end:
                self._begin_body(prefix, head, head_end)
                return
            yield Message(prefix, head, memoryview(bytes(self._staging[head_end:end])))
            start = end
        rest = self._staged - start
        self._staging[:rest] = self._staging[start : self._staged]
        self._staged = rest

    def _begin_body(self, prefix: Prefix, head: bytes, head_end: int) -> None:
        body = memoryview(bytearray(prefix.size_bytes - len(head)))
        count = self._staged - head_end
        body[:count] = self._staging[head_end : self._staged]
        self._prefix, self._head, self._body, self._received = prefix, head, body, count
        self._staged = 0
