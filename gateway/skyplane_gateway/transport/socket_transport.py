"""A transport of asyncio that copies nothing: frames go to the kernel from where they are.

Before Python 3.12 asyncio's own transport joins what the kernel does not take at once, which
costs more than to send it. It also returns to the event loop after each read.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any, Final, cast

from skyplane_gateway.common.buffers import Buffer

#: Buffers of one system call; a frame has three or four.
_MOST_BUFFERS: Final = 64
#: Read from one connection before others have their turn.
_READ_BYTES: Final = 2 << 20


def adopted(
    transport: asyncio.BaseTransport, protocol: asyncio.BufferedProtocol
) -> asyncio.Transport:
    """A transport that copies nothing, in place of asyncio's own, which is closed.

    A transport without a socket is returned as it is, and where no file descriptor is left.
    """
    found = cast(asyncio.Transport, transport)
    handle = found.get_extra_info("socket")
    if handle is None:
        return found
    try:
        own = SocketTransport(handle.dup(), protocol)
    except OSError:
        return found
    found.set_protocol(asyncio.Protocol())
    found.abort()  # The connection lives on in the duplicate.
    return own


class SocketTransport(asyncio.Transport):
    """Sends and receives over a connected socket, which it owns. It reads from the start.

    Buffers of `write` and `writelines` must not change until they are sent.
    """

    def __init__(self, handle: socket.socket, protocol: asyncio.BufferedProtocol) -> None:
        super().__init__()
        self._socket = handle
        self._file = handle.fileno()
        self._protocol = protocol
        self._loop = asyncio.get_running_loop()
        self._queue: deque[memoryview] = deque()
        self._queued_bytes = 0
        self._high_bytes = self._low_bytes = 0
        #: The kernel takes nothing more for now; the event loop tells when it does.
        self._is_blocked = False
        self._is_paused = False
        self._is_closing = False
        self._is_lost = False
        self._has_eof = False
        self._reads = True
        self._loop.add_reader(self._file, self._read_ready)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "socket":
            return self._socket
        asks = {"sockname": self._socket.getsockname, "peername": self._socket.getpeername}
        return asks[name]() if name in asks else default

    def is_closing(self) -> bool:
        return self._is_closing

    # -- reading

    def pause_reading(self) -> None:
        if self._reads and not self._is_closing:
            self._reads = False
            self._loop.remove_reader(self._file)

    def resume_reading(self) -> None:
        if not self._reads and not self._is_closing:
            self._reads = True
            self._loop.add_reader(self._file, self._read_ready)

    def _read_ready(self) -> None:
        left = _READ_BYTES
        try:
            while left > 0 and self._reads and not self._is_closing:
                buffer = cast(memoryview, self._protocol.get_buffer(-1))
                count = self._socket.recv_into(buffer)
                if count == 0:
                    if self._protocol.eof_received():
                        self.pause_reading()
                    else:
                        self.close()
                    return
                self._protocol.buffer_updated(count)
                if count < len(buffer):
                    return  # There was no more.
                left -= count
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lose(error)
        except Exception as error:  # noqa: BLE001 - as asyncio: told to the loop, then the end
            what = {"message": "a protocol's callback failed", "exception": error}
            self._loop.call_exception_handler({**what, "transport": self})
            self._lose(error)

    # -- writing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = high or 0
        self._low_bytes = low or 0

    def get_write_buffer_size(self) -> int:
        return self._queued_bytes

    def can_write_eof(self) -> bool:
        return True

    def write(self, data: Buffer) -> None:
        self.writelines((data,))

    def writelines(self, buffers: Iterable[Buffer]) -> None:
        if self._is_closing or self._has_eof:
            return
        for buffer in buffers:
            self._queue.append(memoryview(buffer))
            self._queued_bytes += len(buffer)
        if not self._is_blocked:
            self._send()
        if self._queued_bytes > self._high_bytes and not self._is_paused:
            self._is_paused = True
            self._protocol.pause_writing()

    def _send(self) -> None:
        """Give the kernel what it takes."""
        queue = self._queue
        try:
            while queue:
                count = self._socket.sendmsg(islice(queue, _MOST_BUFFERS))
                self._queued_bytes -= count
                while queue and count >= len(queue[0]):
                    count -= len(queue.popleft())
                if count:
                    queue[0] = queue[0][count:]
        except (BlockingIOError, InterruptedError):
            if not self._is_blocked:
                self._is_blocked = True
                self._loop.add_writer(self._file, self._write_ready)
        except OSError as error:
            self._lose(error)

    def _write_ready(self) -> None:
        self._send()
        if self._is_lost:
            return
        if not self._queue:
            self._is_blocked = False
            self._loop.remove_writer(self._file)
            if self._is_closing:
                self._lose(None)
                return
            if self._has_eof:
                self._shut_down()
        if self._is_paused and self._queued_bytes <= self._low_bytes:
            self._is_paused = False
            self._protocol.resume_writing()

    def write_eof(self) -> None:
        if not self._has_eof and not self._is_closing:
            self._has_eof = True
            if not self._queue:
                self._shut_down()

    def _shut_down(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_WR)
        except OSError as error:  # The peer has reset the connection.
            self._lose(error)

    # -- the end

    def close(self) -> None:
        if self._is_closing:
            return
        self.pause_reading()
        self._is_closing = True
        if not self._queue:
            self._lose(None)

    def abort(self) -> None:
        self._lose(None)

    def _lose(self, error: Exception | None) -> None:
        """Drop the queue, close the socket, and tell the protocol once."""
        if self._is_lost:
            return
        self.pause_reading()
        self._is_closing = self._is_lost = True
        self._queue.clear()
        self._queued_bytes = 0
        if self._is_blocked:
            self._loop.remove_writer(self._file)
        self._socket.close()
        self._loop.call_soon(self._protocol.connection_lost, error)
