"""The listener of the control API: accepts connections, and limits those without proof.

asyncio's TLS takes 300 KiB for a connection as soon as it is accepted. Here a connection is
a bare socket until its caller speaks, and the handshake has a deadline. The number of
connections without proof is limited (see `pending_connections`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from skyplane_gateway.transport.pending_connections import PendingConnections

log = logging.getLogger(__name__)

#: Longest handshake of a caller that belongs to the fleet.
HANDSHAKE_TIMEOUT_S: Final = 20.0

#: Connections that the kernel keeps until they are accepted. A full queue costs a peer 1 s.
_BACKLOG: Final = 1024

#: Pause after an accept that failed because files or memory ran out.
_ACCEPT_RETRY_S: Final = 0.5


def bound(host: str, port: int) -> socket.socket:
    """A socket that listens on an address. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family, backlog=_BACKLOG)


class Listener:
    """Listens on a socket, mostly that of the control port.

    Args:
        listener: from `bound`, or one of another family; it is closed with this.
        context: demands a certificate, so a finished handshake proves the caller.
        make_protocol: makes the protocol of a proven connection.
        limit: most connections without proof; see `PendingConnections`.
    """

    def __init__(
        self,
        listener: socket.socket,
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        limit: int,
    ) -> None:
        self._listener = listener
        self._listener.setblocking(False)
        self._context = context
        self._make_protocol = make_protocol
        self._pending: PendingConnections[socket.socket] = PendingConnections(limit)
        #: The tasks of handshakes that are not finished.
        self._handshakes: dict[socket.socket, asyncio.Task[None]] = {}
        self._accepting = asyncio.create_task(self._accept())

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    async def close(self) -> None:
        """Accept no more connections; proven ones stay open."""
        tasks = {self._accepting, *self._handshakes.values()}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                handle, _ = await loop.sock_accept(self._listener)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                log.warning("cannot accept a connection: %s", error)
                await asyncio.sleep(_ACCEPT_RETRY_S)
                continue
            self._handshakes[handle] = loop.create_task(self._handshake(handle))
            self._evict(self._pending.connected(handle))
            # An accept that finds a connection at once does not yield to other tasks.
            await asyncio.sleep(0)

    async def _handshake(self, handle: socket.socket) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_TIMEOUT_S):
                with contextlib.ExitStack() as stack:
                    stack.callback(handle.close)
                    await _is_readable(handle)
                    stack.pop_all()
                self._evict(self._pending.speaks(handle))
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._make_protocol, handle, ssl=self._context
                )
        except OSError as error:
            log.debug("a handshake failed: %r", error)
        finally:
            self._pending.remove(handle)
            self._handshakes.pop(handle, None)

    def _evict(self, handle: socket.socket | None) -> None:
        if handle is not None and handle in self._handshakes:
            self._handshakes[handle].cancel()


async def _is_readable(handle: socket.socket) -> None:
    """Wait until the peer has sent something, or is gone."""
    loop, readable = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(handle, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(handle)
