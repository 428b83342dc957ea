"""Cuts the incoming bytes into messages without copying large bodies.

Bytes arrive in a small staging buffer until the head of a message is there. The body
of a message that is not complete by then gets a buffer of its exact size, the rest of
it is received straight into that buffer, and the buffer is handed out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from skyplane_gateway.protocol.limits import MAX_HANDSHAKE
from skyplane_gateway.protocol.messages import HEAD_BYTES, PREFIX_BYTES, Prefix, read_prefix

#: Large enough that hundreds of receipts cost one system call, small enough that what
#: it copies of a frame's beginning (at most this much) stays in the L2 cache. 64
#: connections cost 4 MiB.
STAGING_BYTES: Final = 64 << 10

#: For a peer that has proven nothing: its longest message. Nothing before its first byte.
STRANGER_STAGING_BYTES: Final = MAX_HANDSHAKE

#: Called with a checked prefix before its body gets any memory, possibly several times
#: for one message; raises to refuse it.
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

    Until `trust` it takes no more than `STRANGER_STAGING_BYTES`, and none before the first
    `get_buffer`.
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
            self._staging = memoryview(bytearray(STRANGER_STAGING_BYTES))
        return self._staging[self._staged :]

    def trust(self) -> None:
        """The peer has proven itself: from now on much arrives at a time."""
        staging = memoryview(bytearray(STAGING_BYTES))
        staging[: self._staged] = self._staging[: self._staged]
        self._staging = staging

    def drop(self) -> None:
        """Forget what has arrived: nothing will be made of it any more."""
        self._prefix, self._body, self._staged = None, memoryview(b""), 0

    def updated(self, count: int) -> Iterator[Message]:
        """Take note of `count` bytes written to the buffer; the messages they complete.

        Lazy: the next message is looked at only after the one before has been dealt
        with, so that `admit` sees the state that it left.
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
