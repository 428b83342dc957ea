"""One connection in memory: two transports and a pipe each way."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from tests.simulation.world import Process, World

from skyplane_gateway.protocol.messages import PREFIX_BYTES, read_prefix

if TYPE_CHECKING:
    from tests.simulation.network import Weather

#: Bytes that travel as one event, and that the two kernels hold at most.
SEGMENT_BYTES: Final = 64 << 10
WINDOW_BYTES: Final = 256 << 10

Buffer = bytes | bytearray | memoryview


class Meddler(Protocol):
    """What a damaged or malicious machine does to the bytes that pass it."""

    def __call__(self, data: bytes) -> bytes | None:
        """What arrives in place of `data`; None breaks the connection."""


class MessageBorders:
    """Where in a stream of the wire protocol a message ends."""

    def __init__(self) -> None:
        self._prefix = bytearray()
        self._left = 0

    @property
    def rest_bytes(self) -> int:
        """Bytes to the end of the message that has begun, as far as that is known."""
        return PREFIX_BYTES - len(self._prefix) if self._prefix else self._left

    def feed(self, data: bytes) -> None:
        while data:
            if self._left == 0:
                missing = PREFIX_BYTES - len(self._prefix)
                self._prefix += data[:missing]
                data = data[missing:]
                if len(self._prefix) == PREFIX_BYTES:
                    prefix = read_prefix(memoryview(bytes(self._prefix)))
                    self._left = prefix.size_bytes - PREFIX_BYTES
                    self._prefix.clear()
                continue
            count = min(self._left, len(data))
            self._left -= count
            data = data[count:]


class Pipe:
    """One direction of a connection."""

    def __init__(
        self,
        world: World,
        weather: Weather,
        origin: SimTransport,
        target: SimTransport,
        forget: Callable[[Pipe], None],
    ) -> None:
        self.world = world
        self.origin = origin
        self.target = target
        self._meddler: Meddler | None = None
        self._messages = MessageBorders()
        self.sent_bytes = 0
        self._weather = weather
        self._forget = forget
        self._buffer: deque[memoryview] = deque()
        self.buffered_bytes = 0
        self._travelling_bytes = 0
        self._free_at = 0.0
        self._last_arrival = 0.0
        self._arrived: deque[bytes | None] = deque()
        self._on_way: deque[bytes | None] = deque()
        self._ends = False
        self._has_ended = False
        self.is_broken = False

    @property
    def hosts(self) -> tuple[str, str]:
        return self.origin.process.host, self.target.process.host

    # -- the sender's side

    def write(self, data: Buffer) -> None:
        # Not copied, so that a test finds a caller that changes a buffer after the call.
        view = memoryview(data).cast("B")
        self._buffer.append(view)
        self.buffered_bytes += len(view)
        self._pump()

    def end(self) -> None:
        """Send the end of the stream after the buffered bytes."""
        self._ends = True
        self._pump()

    def _pump(self) -> None:
        while self._buffer and self._travelling_bytes < WINDOW_BYTES and not self.is_broken:
            self._travel(self._take())
        self.origin.buffer_changed(self.buffered_bytes)
        if self._ends and not self._buffer and not self._has_ended and not self.is_broken:
            self._has_ended = True
            self._travel(None)
            self.origin.flushed()

    def _take(self) -> bytes:
        pieces, size = [], 0
        while self._buffer and size < SEGMENT_BYTES:
            view = self._buffer.popleft()
            room = SEGMENT_BYTES - size
            if len(view) > room:
                self._buffer.appendleft(view[room:])
                view = view[:room]
            pieces.append(view)
            size += len(view)
        self.buffered_bytes -= size
        return b"".join(pieces)

    def _travel(self, segment: bytes | None) -> None:
        size = 0 if segment is None else len(segment)
        self.sent_bytes += size
        self._travelling_bytes += size
        now = self.world.now
        self._free_at = max(now, self._free_at) + size / self._weather.bytes_per_s
        arrival = max(self._free_at + self._weather.latency_s, self._last_arrival)
        self._last_arrival = arrival
        self._on_way.append(segment)
        self.world.at(arrival, self._arrive, None)

    # -- on the way

    def _arrive(self) -> None:
        if self.is_broken:
            return
        if self._weather.is_cut:
            self._weather.waiting.append(self._arrive)
            return
        segment = self._on_way.popleft()
        if segment is not None:
            changed = self._meddled(segment)
            if changed is None:
                self.reset("Connection reset by peer")
                return
            self._travelling_bytes += len(changed) - len(segment)
            segment = changed
        self._arrived.append(segment)
        self.world.after(0.0, self.deliver, self.target.process)

    @property
    def is_clogged(self) -> bool:
        """Bytes are on their way that will take long, since the way was slow."""
        return self._free_at > self.world.now + 1.0

    @property
    def is_meddled_with(self) -> bool:
        return self._meddler is not None

    def meddle(self, meddler: Meddler) -> None:
        """Let `meddler` see all that arrives from the next message on."""
        self._meddler = meddler

    def _meddled(self, segment: bytes) -> bytes | None:
        if self._meddler is None:
            self._messages.feed(segment)
            return segment
        before = b""
        while segment and (rest := self._messages.rest_bytes):
            self._messages.feed(segment[:rest])
            before += segment[:rest]
            segment = segment[rest:]
        if not segment:
            return before
        changed = self._meddler(segment)
        return None if changed is None else before + changed

    # -- the receiver's side

    def deliver(self) -> None:
        """Hand over what has arrived, while the receiver reads."""
        target = self.target
        while self._arrived and not self.is_broken:
            if target.is_lost or target.is_closing():
                if self._arrived.popleft() is not None:
                    self.reset("Connection reset by peer")
                continue
            if not target.reads or not target.has_begun:
                return
            segment = self._arrived.popleft()
            if segment is None:
                target.take_end()
            else:
                target.take(segment)
                self._travelling_bytes -= len(segment)
                self._pump()

    def reset(self, reason: str) -> None:
        """Break the connection; both ends are told."""
        for transport in (self.origin, self.target):
            transport.pipe.break_off()
            transport.lose(ConnectionResetError(104, reason))

    def break_off(self) -> None:
        """Nothing more flows in this direction."""
        if not self.is_broken:
            self.is_broken = True
            self._buffer.clear()
            self.buffered_bytes = 0
            self._forget(self)


class SimTransport(asyncio.Transport):
    """One end of a connection, as asyncio's socket transports are."""

    pipe: Pipe

    def __init__(self, process: Process, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.process = process
        self._protocol: Any = protocol
        self._is_closing = False
        self.is_lost = False
        self.reads = True
        self.has_begun = False
        self._is_writing_paused = False
        self._high, self._low = 64 << 10, 16 << 10
        #: The most that was ever buffered here.
        self.most_buffered_bytes = 0

    def begin(self) -> None:
        if self.is_lost:
            return
        self._protocol.connection_made(self)
        self.has_begun = True
        self._peer_pipe.deliver()

    @property
    def _peer_pipe(self) -> Pipe:
        return self.pipe.target.pipe

    # -- asyncio's side

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_protocol(self) -> asyncio.BaseProtocol:
        protocol: asyncio.BaseProtocol = self._protocol
        return protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def can_write_eof(self) -> bool:
        return False  # What has been sent arrives here, also when the sender closes at once.

    def close(self) -> None:
        if not self._is_closing and not self.is_lost:
            self._is_closing = True
            self.pipe.end()

    def abort(self) -> None:
        if not self.is_lost:
            self.pipe.reset("Connection reset by peer")

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        if not self.reads:
            self.reads = True
            self.process.loop.call_soon(self._peer_pipe.deliver)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 << 10 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_size(self) -> int:
        return self.pipe.buffered_bytes

    def write(self, data: Buffer) -> None:
        if not self.is_lost and not self._is_closing and data:
            self.pipe.write(data)
            self.most_buffered_bytes = max(self.most_buffered_bytes, self.pipe.buffered_bytes)

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        for buffer in buffers:
            self.write(buffer)

    # -- the pipe's side

    def buffer_changed(self, size: int) -> None:
        if size > self._high and not self._is_writing_paused:
            self._is_writing_paused = True
            self._protocol.pause_writing()
        elif size <= self._low and self._is_writing_paused:
            self._is_writing_paused = False
            self.process.loop.call_soon(self._resume_writing)

    def _resume_writing(self) -> None:
        if not self.is_lost:
            self._protocol.resume_writing()

    def flushed(self) -> None:
        """All that was written before `close` has left."""
        if self._is_closing:
            self.lose(None)

    def take(self, segment: bytes) -> None:
        try:
            self._take(segment)
        except Exception as error:  # noqa: BLE001 - as asyncio: told to the loop, then the end
            context = {"message": "the protocol's callback failed", "exception": error}
            self.process.loop.call_exception_handler(context)
            self.abort()

    def _take(self, segment: bytes) -> None:
        rest = memoryview(segment)
        while rest and not self.is_lost:
            buffer = self._protocol.get_buffer(len(rest))
            count = min(len(buffer), len(rest))
            buffer[:count] = rest[:count]
            rest = rest[count:]
            self._protocol.buffer_updated(count)

    def take_end(self) -> None:
        if not self._protocol.eof_received():
            self.close()

    def lose(self, error: Exception | None) -> None:
        """Tell the protocol, once, that the connection is over."""
        if not self.is_lost:
            self.is_lost = True
            self.process.loop.call_soon(self._protocol.connection_lost, error)
            if error is None:
                self._forget_when_both_lost()

    def _forget_when_both_lost(self) -> None:
        if self.pipe.target.is_lost:
            self.pipe.break_off()
            self._peer_pipe.break_off()
