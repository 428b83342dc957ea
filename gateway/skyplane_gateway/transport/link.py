"""One data connection: an asyncio transport driven by a sans-io `Connection`."""

from __future__ import annotations

import asyncio
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
    State,
)
from skyplane_gateway.protocol.handshake import Hello
from skyplane_gateway.transport.socket_options import tune
from skyplane_gateway.transport.write_timeout import WriteWatch

#: Unsent bytes at which a link counts as not ready, and at which it does again: two
#: frames keep the socket busy while the next one is read, more would only add memory.
WRITE_HIGH_BYTES: Final = 2 << 20
WRITE_LOW_BYTES: Final = 1 << 20

#: A peer that has not proven itself by then is not one of ours.
HELLO_TIMEOUT_S: Final = 10.0

#: A peer that has been told goodbye has so long to close its end.
GOODBYE_TIMEOUT_S: Final = 4.0

#: A peer that takes nothing for so long, while bytes wait for it, is as good as gone.
WRITE_TIMEOUT_S: Final = 60.0

Buffer = bytes | bytearray | memoryview


class LinkOwner(Protocol):
    """Who is told what happens on a link. All are called on the event loop."""

    def link_greeted(self, link: Link) -> bool:
        """Whether the HELLO that came (`link.hello`) is answered now; else by `answer`."""

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
    `was_left_in_order` says that the peer ended it because it had no more use for it,
    `was_refused` that this side did because the peer broke the protocol.
    """

    def __init__(
        self, connection: Connection, owner: LinkOwner, write_timeout_s: float = WRITE_TIMEOUT_S
    ) -> None:
        self._connection = connection
        self._owner = owner
        self._write_timeout_s = write_timeout_s
        self._transport: asyncio.Transport | None = None
        self._hello_timer: asyncio.TimerHandle | None = None
        self._goodbye_timer: asyncio.TimerHandle | None = None
        self._writes = WriteWatch(
            write_timeout_s, self._unsent_bytes, lambda: self.sent_bytes, self._peer_takes_nothing
        )
        self._reason = ""
        self._is_greeted = False
        self._is_held = False
        self._is_over = False
        self._is_lost = False
        self._lost = asyncio.Event()
        self.was_left_in_order = False
        self.was_refused = False
        self.is_ready = False
        self.established: Established | None = None
        self.sent_bytes = 0
        self.received_bytes = 0

    @property
    def hello(self) -> Hello:
        """What the dialer announced; proven once `established` is there."""
        return self._connection.hello

    # -- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        if self._is_over:
            self._transport.abort()
            return
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES, low=WRITE_LOW_BYTES)
        handle = transport.get_extra_info("socket")
        if handle is not None:
            tune(handle, self._write_timeout_s)
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
        self._end()
        self._handle_events()
        return False

    def pause_writing(self) -> None:
        self.is_ready = False

    def resume_writing(self) -> None:
        if self.established is not None and not self._is_over:
            self.is_ready = True
            self._owner.link_writable(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._is_lost = True
        self._lost.set()
        self._writes.stop()
        for timer in (self._hello_timer, self._goodbye_timer):
            if timer is not None:
                timer.cancel()
        if not self._reason:
            self._reason = str(exc) if exc is not None else "the peer closed the connection"
        self._owner.link_lost(self, self._reason)

    # -- our side

    def answer(self) -> None:
        """Answer a HELLO that was held back."""
        self._is_held = False
        self._flush()

    def send_frame(self, header: FrameHeader, *sealed: Buffer) -> None:
        """Queue a frame; ask `is_ready` first."""
        self._connection.send_frame(header, *sealed)
        self._flush()

    def send_receipt(self, header: ReceiptHeader, *sealed: Buffer) -> None:
        """Queue a receipt; they are small and always accepted, if only to be lost."""
        if self._is_over:
            return
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
        self._end()
        self.answer()
        if self._transport is None or self._is_lost:
            return
        is_heard = reason is GoodbyeReason.DONE and self.established is not None
        if is_heard and self._transport.can_write_eof():
            self._await_end_of_peer(self._transport)
        else:
            self._transport.close()

    def _await_end_of_peer(self, transport: asyncio.Transport) -> None:
        """Read on, for nothing, until the peer has closed its end.

        Closing a socket with unread bytes resets the connection (RFC 1122, 4.2.2.13), and then
        the peer may never read the goodbye.
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
        """Wait until the connection is closed at both ends, or given up."""
        if self._transport is not None:
            await self._lost.wait()

    def drop(self, reason: GoodbyeReason, text: str) -> None:
        """Close without delay: frames that still wait here are of no use any more.

        Where some wait, the goodbye would come behind them, and the peer has to know now.
        """
        if self._unsent_bytes() > 0:
            self.abort(text)
        else:
            self.close(reason, text)

    def abort(self, text: str) -> None:
        """Close at once, without a word; also before it was opened."""
        self._reason = self._reason or text
        self._end()
        if self._transport is not None:
            self._transport.abort()

    def _end(self) -> None:
        """Nothing is sent here any more, whenever the loss of it will be told."""
        self._is_over = True
        self.is_ready = False

    def _hello_is_late(self) -> None:
        if self.established is None:
            self.abort(f"no complete hello within {HELLO_TIMEOUT_S:g} s")

    def _peer_takes_nothing(self) -> None:
        self.abort(f"the peer took nothing for {self._write_timeout_s:g} s")

    def _unsent_bytes(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def _flush(self) -> None:
        if self._transport is None or self._is_held:
            return
        for buffer in self._connection.data_to_send():
            self.sent_bytes += len(buffer)
            self._transport.write(buffer)
        self._writes.look()

    def _handle_events(self) -> None:
        try:
            while (event := self._connection.next_event()) is not NEED_DATA:
                self._handle(event)
        except RemoteProtocolError as error:
            self.was_refused = True
            self._end()
            self._reason = str(error)
            self._flush()
            if self._transport is not None:
                self._transport.close()
            return
        if not self._is_greeted and self._connection.state is State.AWAIT_PROOF:
            self._is_greeted = True
            self._is_held = not self._owner.link_greeted(self)
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
            self._reason = self._reason or event.text or f"it said goodbye ({event.reason.name})"
            self.was_left_in_order = event.reason is GoodbyeReason.DONE
            # It takes nothing more, so what still waits for it would only hold this up.
            self.drop(GoodbyeReason.DONE, "")
        elif isinstance(event, ConnectionClosed) and not event.is_clean:
            self._reason = self._reason or "the connection broke"
