"""One data connection: binds a sans-io `Connection` to an asyncio transport."""

from __future__ import annotations

import asyncio
import fcntl
import socket
import struct
import sys
from contextlib import suppress
from functools import partial
from typing import Final, Protocol

from skyplane_gateway.common.buffers import Buffer, total_bytes
from skyplane_gateway.protocol.connection import Connection
from skyplane_gateway.protocol.errors import RemoteProtocolError
from skyplane_gateway.protocol.events import (
    NEED_DATA,
    ConnectionClosed,
    Established,
    FramePlaced,
    FrameReceived,
    GoodbyeReceived,
    ReceiptReceived,
)
from skyplane_gateway.protocol.frames import Claim
from skyplane_gateway.protocol.handshake import Hello
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader
from skyplane_gateway.protocol.reasons import GoodbyeReason
from skyplane_gateway.protocol.states import State
from skyplane_gateway.transport.socket_transport import adopted
from skyplane_gateway.transport.write_timeout import WriteTimeout

#: A link is not ready above the first number of unsent bytes, and ready again below the
#: second. Two frames keep the socket busy; more would only add memory.
WRITE_HIGH_BYTES: Final = 2 << 20
WRITE_LOW_BYTES: Final = 1 << 20

#: The same on a long line before its rate was measured: 64 connections may share 100 Mbit/s.
FIRST_QUEUE_BYTES: Final = 64 << 10

#: Longest handshake of a peer that belongs to the fleet.
HELLO_TIMEOUT_S: Final = 10.0

#: Longest wait for the peer to close its end after our GOODBYE.
GOODBYE_TIMEOUT_S: Final = 4.0

#: A peer that takes nothing for this long, while bytes wait for it, counts as lost.
WRITE_TIMEOUT_S: Final = 60.0

#: Silence before the first keepalive probe, and the interval between probes.
_KEEPALIVE_AFTER_S: Final = 20
_KEEPALIVE_EVERY_S: Final = 10
_KEEPALIVE_TRIES: Final = 4

#: SIOCOUTQNSD of linux/sockios.h: bytes in the send queue that were not sent for the first time.
_NOT_SENT: Final = 0x894B

#: Round trip of the handshake from which a line is long.
_LONG_LINE_US: Final = 5000

#: Socket option: the kernel takes no more bytes while so many were not sent yet.
_NOT_SENT_LIMIT: Final[int | None] = getattr(socket, "TCP_NOTSENT_LOWAT", None)


class LinkOwner(Protocol):
    """Admits links and notices their loss. All methods run on the event loop."""

    def hello_received(self, link: Link) -> bool:
        """Whether to answer the HELLO (`link.hello`) now; else `answer_hello` does it later."""

    def link_established(self, link: Link, event: Established) -> None: ...

    def link_lost(self, link: Link, reason: str) -> None:
        """Called once for every opened link, also when it was never established."""


class LinkTraffic(Protocol):
    """Takes what arrives on links. All methods run on the event loop."""

    def frame_received(self, link: Link, header: FrameHeader, sealed: memoryview) -> None: ...

    def claim_place(
        self, link: Link, header: FrameHeader, start: memoryview, sealed_bytes: int
    ) -> Claim | None:
        """Where the payload goes of a frame that begins so; see `ClaimPlace`."""

    def frame_placed(self, link: Link, claim: Claim, tag: memoryview) -> None: ...

    def receipt_received(self, link: Link, header: ChunkId, sealed: memoryview) -> None: ...

    def link_writable(self, link: Link) -> None: ...


class Link(asyncio.BufferedProtocol):
    """The asyncio protocol of one data connection.

    Attributes:
        is_ready: a frame may be sent now. False while more than `WRITE_HIGH_BYTES` wait;
            `link_writable` follows.
        peer_is_done: the peer ended the connection with GOODBYE DONE.
        peer_broke_protocol: this side ended it for that reason.
        established: None until the handshake is over.
    """

    def __init__(
        self,
        connection: Connection,
        owner: LinkOwner,
        traffic: LinkTraffic,
        write_timeout_s: float = WRITE_TIMEOUT_S,
    ) -> None:
        self._connection = connection
        connection.claim_place = partial(traffic.claim_place, self)
        self._owner = owner
        self._traffic = traffic
        self._write_timeout_s = write_timeout_s
        self._transport: asyncio.Transport | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self._goodbye_timer: asyncio.TimerHandle | None = None
        self._write_timeout = WriteTimeout(
            write_timeout_s, self._unsent_bytes, lambda: self.sent_bytes, self._write_timed_out
        )
        self._has_hello = False
        self._is_hello_held = False
        self._is_over = False
        self._lost = asyncio.Event()
        #: Set once the connection is established or lost.
        self.settled = asyncio.Event()
        self.end_reason = ""
        self.peer_is_done = False
        self.peer_broke_protocol = False
        self.is_ready = False
        self.established: Established | None = None
        self.sent_bytes = 0

    @property
    def hello(self) -> Hello:
        """The dialer's HELLO; proven once `established` is set."""
        return self._connection.hello

    # -- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = adopted(transport, self)
        if self._is_over:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=WRITE_LOW_BYTES)
        handle = self._transport.get_extra_info("socket")
        if handle is not None:
            set_options(handle, self._write_timeout_s)
            if is_long_line(handle):
                self.limit_queue(FIRST_QUEUE_BYTES)
        loop = asyncio.get_running_loop()
        self._hello_timer = loop.call_later(HELLO_TIMEOUT_S, self._hello_timed_out)
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self._connection.buffer_updated(nbytes)
        self._handle_events()

    def eof_received(self) -> bool:
        self._connection.receive_eof()
        self._end()
        self._handle_events()
        return False

    def pause_writing(self) -> None:
        self.is_ready = False

    def resume_writing(self) -> None:
        if self.established is not None and not self._is_over:
            self.is_ready = True
            self._traffic.link_writable(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._lost.set()
        self.settled.set()
        self._write_timeout.stop()
        for timer in (self._hello_timer, self._goodbye_timer):
            if timer is not None:
                timer.cancel()
        if not self.end_reason:
            self.end_reason = str(exc) if exc is not None else "the peer closed the connection"
        self._owner.link_lost(self, self.end_reason)

    # -- called by the gateway

    def answer_hello(self) -> None:
        """Answer the HELLO that the owner held back."""
        self._is_hello_held = False
        self._flush()

    def send_frame(self, header: FrameHeader, *sealed: Buffer) -> None:
        """Queue a frame; ask `is_ready` first."""
        self._connection.send_frame(header, *sealed)
        self._flush()

    def send_receipt(self, header: ChunkId, *sealed: Buffer) -> None:
        """Queue a receipt; dropped when the link is over."""
        if self._is_over:
            return
        self._connection.send_receipt(header, *sealed)
        self._flush()

    def pause_reading(self) -> None:
        """Read nothing from the socket until `resume_reading`."""
        if self._transport is not None and not self._lost.is_set():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._lost.is_set():
            self._transport.resume_reading()

    def close(self, reason: GoodbyeReason = GoodbyeReason.DONE, text: str = "") -> None:
        """Send GOODBYE, and close once all queued bytes have left."""
        self.end_reason = self.end_reason or text or "closed here"
        self._connection.close(reason, text)
        self._end()
        self.answer_hello()
        if self._transport is None or self._lost.is_set():
            return
        waits_for_peer = reason is GoodbyeReason.DONE and self.established is not None
        if waits_for_peer and self._transport.can_write_eof():
            self._await_end_of_peer(self._transport)
        else:
            self._transport.close()

    def _await_end_of_peer(self, transport: asyncio.Transport) -> None:
        """Read and discard until the peer has closed its end.

        Closing a socket with unread bytes resets the connection (RFC 1122, 4.2.2.13). The
        peer may then never read the GOODBYE.
        """
        if self._goodbye_timer is not None:
            return
        transport.resume_reading()
        try:
            transport.write_eof()
        except OSError:  # The peer has reset the connection.
            transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._goodbye_timer = loop.call_later(GOODBYE_TIMEOUT_S, transport.abort)

    async def wait_lost(self) -> None:
        """Wait until the connection is closed at both ends, or aborted."""
        if self._transport is not None:
            await self._lost.wait()

    def drop(self, reason: GoodbyeReason, text: str) -> None:
        """Close without delay, and discard queued frames.

        A GOODBYE behind queued frames would arrive too late, so an abort replaces it.
        """
        if self._unsent_bytes() > 0:
            self.abort(text)
        else:
            self.close(reason, text)

    def abort(self, text: str) -> None:
        """Close at once and send nothing; also before the connection is open."""
        self.end_reason = self.end_reason or text
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        """Send nothing more; `link_lost` may follow much later."""
        self._is_over = True
        self.is_ready = False

    def _hello_timed_out(self) -> None:
        if self.established is None:
            self.abort(f"no complete hello within {HELLO_TIMEOUT_S:g} s")

    def _write_timed_out(self) -> None:
        self.abort(f"the peer took nothing for {self._write_timeout_s:g} s")

    def _unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def unsent_bytes(self) -> int:
        """Bytes that wait here for the network, those in the kernel included."""
        if self._transport is None:
            return 0
        return self._unsent_bytes() + not_sent_bytes(self._transport.get_extra_info("socket"))

    def limit_queue(self, frame_bytes: int) -> None:
        """Let one frame of that size and a new one wait here at most, and two in the kernel.

        What waits on a slow connection comes late, while others could carry it.
        """
        if self._transport is None or self._lost.is_set():
            return
        self._transport.set_write_buffer_limits(high=frame_bytes, low=0)
        handle, option = self._transport.get_extra_info("socket"), _NOT_SENT_LIMIT
        if handle is not None and option is not None:
            with suppress(OSError):  # It was lost in this turn of the event loop.
                handle.setsockopt(socket.IPPROTO_TCP, option, 2 * frame_bytes)

    def _flush(self) -> None:
        if self._transport is None or self._is_hello_held:
            return
        buffers = self._connection.data_to_send()
        if buffers:
            self.sent_bytes += total_bytes(buffers)
            self._transport.writelines(buffers)
            self._write_timeout.written()

    def _handle_events(self) -> None:
        try:
            while (event := self._connection.next_event()) is not NEED_DATA:
                self._handle(event)
        except RemoteProtocolError as error:
            self.peer_broke_protocol = True
            self._end()
            self.end_reason = str(error)
            self._flush()
            if self._transport is not None:
                self._transport.close()
            return
        if not self._has_hello and self._connection.state is State.AWAIT_PROOF:
            self._has_hello = True
            self._is_hello_held = not self._owner.hello_received(self)
        self._flush()

    def _handle(self, event: object) -> None:
        if isinstance(event, FrameReceived):
            self._traffic.frame_received(self, event.header, event.sealed)
        elif isinstance(event, FramePlaced):
            self._traffic.frame_placed(self, event.claim, event.tag)
        elif isinstance(event, ReceiptReceived):
            self._traffic.receipt_received(self, event.header, event.sealed)
        elif isinstance(event, Established):
            self.established = event
            if self._hello_timer is not None:
                self._hello_timer.cancel()
            self.is_ready = True
            self._flush()
            self.settled.set()
            self._owner.link_established(self, event)
        elif isinstance(event, GoodbyeReceived):
            self.end_reason = (
                self.end_reason or event.text or f"it sent GOODBYE ({event.reason.name})"
            )
            self.peer_is_done = event.reason is GoodbyeReason.DONE
            # The peer takes nothing more, so queued frames would only delay the end.
            self.drop(GoodbyeReason.DONE, "")
        elif isinstance(event, ConnectionClosed) and not event.is_clean:
            self.end_reason = self.end_reason or "the connection broke"


def set_options(handle: socket.socket, write_timeout_s: float) -> None:
    """Sent bytes may go unacknowledged for at most `write_timeout_s` (RFC 5482).

    Otherwise the kernel takes 15 minutes to notice a neighbour that vanished (its machine, or one
    direction of the network), and never notices it while nothing is sent.
    """
    # Not every system has these options; the link's own write timeout works everywhere.
    options = {
        "TCP_NODELAY": 1,
        "TCP_KEEPIDLE": _KEEPALIVE_AFTER_S,
        "TCP_KEEPINTVL": _KEEPALIVE_EVERY_S,
        "TCP_KEEPCNT": _KEEPALIVE_TRIES,
        "TCP_USER_TIMEOUT": max(1, round(write_timeout_s * 1000)),
    }
    with suppress(OSError):  # A kernel without BBR, or that does not let us.
        if is_long_line(handle):
            # Other controls send less after each lost packet, and need many round trips to recover.
            # On a short line these take no time, and the pacing of BBR would only cost processor
            # time.
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, b"bbr")
    with suppress(OSError):  # The peer has closed it already: macOS answers EINVAL.
        handle.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name in options.keys() & vars(socket).keys():
            handle.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), options[name])


def is_long_line(handle: socket.socket) -> bool:
    """Whether an answer takes so long that the rate of a connection depends on its window."""
    if not sys.platform.startswith("linux"):
        return False
    with suppress(OSError):  # No TCP.
        answer = handle.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        return bool(struct.unpack_from("I", answer, 68)[0] >= _LONG_LINE_US)
    return False


def not_sent_bytes(handle: socket.socket | None) -> int:
    """Bytes in the kernel that were not sent yet; 0 where the system does not say.

    Args:
        handle: None of a connection without a socket.
    """
    if handle is None or not sys.platform.startswith("linux"):
        return 0
    try:
        (count,) = struct.unpack("i", fcntl.ioctl(handle.fileno(), _NOT_SENT, bytes(4)))
    except (OSError, ValueError):  # It is closed.
        return 0
    return int(count)
