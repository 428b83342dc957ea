"""One data connection: an asyncio transport driven by a sans-io `Connection`."""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import Final, Protocol, cast

from skyplane_gateway.protocol import (
    NEED_DATA,
    Connection,
    ConnectionClosed,
    Established,
    FrameHeader,
    FrameReceived,
    GoodbyeReason,
    GoodbyeReceived,
    ReceiptHeader,
    ReceiptReceived,
    RemoteProtocolError,
)

log = logging.getLogger(__name__)

#: Unsent bytes at which a link counts as not ready, and at which it does again: two
#: frames keep the socket busy while the next one is read, more would only add memory.
WRITE_HIGH_BYTES: Final = 2 << 20
WRITE_LOW_BYTES: Final = 1 << 20

#: A peer that has not proven itself by then is not one of ours.
HELLO_TIMEOUT_S: Final = 10.0

Buffer = bytes | bytearray | memoryview


class LinkOwner(Protocol):
    """Who is told what happens on a link. All are called on the event loop."""

    def link_established(self, link: Link, event: Established) -> None: ...

    def link_frame(self, link: Link, header: FrameHeader, sealed: memoryview) -> None: ...

    def link_receipt(self, link: Link, header: ReceiptHeader, sealed: memoryview) -> None: ...

    def link_writable(self, link: Link) -> None: ...

    def link_lost(self, link: Link, reason: str) -> None:
        """Called once for every link, also for one that was never established."""


class Link(asyncio.BufferedProtocol):
    """Binds a `Connection` to a socket.

    `is_ready` says whether a frame may be sent now; it turns False while more than
    `WRITE_HIGH_BYTES` wait for the peer, and `link_writable` tells when it is over.
    `was_left_in_order` says that the peer ended it because it had no more use for it.
    """

    def __init__(self, connection: Connection, owner: LinkOwner) -> None:
        self._connection = connection
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self._reason = ""
        self._is_lost = False
        self.was_left_in_order = False
        self.is_ready = False
        self.established: Established | None = None
        self.sent_bytes = 0
        self.received_bytes = 0

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=WRITE_LOW_BYTES)
        handle = transport.get_extra_info("socket")
        if handle is not None:
            handle.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        loop = asyncio.get_running_loop()
        self._hello_timer = loop.call_later(HELLO_TIMEOUT_S, self._hello_is_late)
        self._flush()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._connection.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        self.received_bytes += nbytes
        self._connection.buffer_updated(nbytes)
        self._handle_events()

    def eof_received(self) -> bool:
        self._connection.receive_eof()
        self._handle_events()
        return False

    def pause_writing(self) -> None:
        self.is_ready = False

    def resume_writing(self) -> None:
        if self.established is not None and not self._is_lost:
            self.is_ready = True
            self._owner.link_writable(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_ready = False
        self._is_lost = True
        if self._hello_timer is not None:
            self._hello_timer.cancel()
        if not self._reason:
            self._reason = str(exc) if exc is not None else "the peer closed the connection"
        self._owner.link_lost(self, self._reason)

    # -- our side

    def send_frame(self, header: FrameHeader, *sealed: Buffer) -> None:
        """Queue a frame; ask `is_ready` first."""
        self._connection.send_frame(header, *sealed)
        self._flush()

    def send_receipt(self, header: ReceiptHeader, *sealed: Buffer) -> None:
        """Queue a receipt; they are small and always accepted."""
        self._connection.send_receipt(header, *sealed)
        self._flush()

    def pause_reading(self) -> None:
        """Stop the peer: nothing more is taken from the socket until `resume_reading`."""
        if self._transport is not None and not self._is_lost:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._is_lost:
            self._transport.resume_reading()

    def close(self, reason: GoodbyeReason = GoodbyeReason.DONE, text: str = "") -> None:
        """Say goodbye and close once what is queued has left."""
        self._reason = self._reason or text or "closed here"
        self._connection.close(reason, text)
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _hello_is_late(self) -> None:
        if self.established is None and self._transport is not None:
            self._reason = f"no complete hello within {HELLO_TIMEOUT_S:g} s"
            self._transport.abort()

    def _flush(self) -> None:
        if self._transport is None:
            return
        for buffer in self._connection.data_to_send():
            self.sent_bytes += len(buffer)
            self._transport.write(buffer)

    def _handle_events(self) -> None:
        try:
            while (event := self._connection.next_event()) is not NEED_DATA:
                self._handle(event)
        except RemoteProtocolError as error:
            log.warning("connection refused: %s", error)
            self._reason = str(error)
            self._flush()
            if self._transport is not None:
                self._transport.close()
            return
        self._flush()

    def _handle(self, event: object) -> None:
        if isinstance(event, FrameReceived):
            self._owner.link_frame(self, event.header, event.sealed)
        elif isinstance(event, ReceiptReceived):
            self._owner.link_receipt(self, event.header, event.sealed)
        elif isinstance(event, Established):
            self.established = event
            if self._hello_timer is not None:
                self._hello_timer.cancel()
            self.is_ready = True
            self._flush()
            self._owner.link_established(self, event)
        elif isinstance(event, GoodbyeReceived):
            self._reason = event.text or f"the peer said goodbye ({event.reason.name})"
            self.was_left_in_order = event.reason is GoodbyeReason.DONE
            self._connection.close()
            self._flush()
            if self._transport is not None:
                self._transport.close()
        elif isinstance(event, ConnectionClosed) and not event.is_clean:
            self._reason = self._reason or "the connection broke"
