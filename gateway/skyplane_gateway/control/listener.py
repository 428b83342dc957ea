"""Accepts connections to the control API and hands on those that prove who they are.

asyncio's TLS takes 300 KiB for a connection from the moment it is accepted. Here a caller
is a bare socket until it speaks, has a deadline for its handshake, and makes room for
others where too many are at it (see `strangers`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Final

from skyplane_gateway.pending_connections import PendingConnections

log = logging.getLogger(__name__)

#: A caller that has not shown its certificate by then is none of ours.
PROVEN_WITHIN_S: Final = 20.0

#: The kernel keeps as many until they are accepted; a burst is not to cost a peer a second.
_BACKLOG: Final = 1024

#: Pause after an accept that failed for want of files or memory.
_ACCEPT_AGAIN_S: Final = 0.5


class Listener:
    """Listens for callers.

    Args:
        context: demands a certificate, so that a finished handshake is a proof.
        make_protocol: for a caller that has proven itself.
        limit: of callers that have not; see `PendingConnections`.

    Raises OSError when the address cannot be listened on.
    """

    def __init__(
        self,
        host: str,
        port: int,
        context: ssl.SSLContext,
        make_protocol: Callable[[], asyncio.BaseProtocol],
        limit: int,
    ) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        self._listener.setblocking(False)
        self._context = context
        self._make_protocol = make_protocol
        self._strangers: PendingConnections[socket.socket] = PendingConnections(limit)
        #: Until they have proven themselves or are gone.
        self._callers: dict[socket.socket, asyncio.Task[None]] = {}
        self._accepting = asyncio.create_task(self._accept())

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    async def close(self) -> None:
        """Let nobody in any more; those who are in stay."""
        tasks = {self._accepting, *self._callers.values()}
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
                log.warning("no caller can be let in for now: %s", error)
                await asyncio.sleep(_ACCEPT_AGAIN_S)
                continue
            self._callers[handle] = loop.create_task(self._let_in(handle))
            self._send_away(self._strangers.came(handle))
            # An accept that need not wait does not let others run.
            await asyncio.sleep(0)

    async def _let_in(self, handle: socket.socket) -> None:
        try:
            async with asyncio.timeout(PROVEN_WITHIN_S):
                with contextlib.ExitStack() as ours:
                    ours.callback(handle.close)
                    await _is_readable(handle)
                    ours.pop_all()
                self._send_away(self._strangers.spoke(handle))
                await asyncio.get_running_loop().connect_accepted_socket(
                    self._make_protocol, handle, ssl=self._context
                )
        except OSError as error:
            log.debug("a caller was not let in: %r", error)
        finally:
            self._strangers.left(handle)
            self._callers.pop(handle, None)

    def _send_away(self, handle: socket.socket | None) -> None:
        if handle is not None and handle in self._callers:
            self._callers[handle].cancel()


async def _is_readable(handle: socket.socket) -> None:
    """Wait until the peer has sent something, or is gone."""
    loop = asyncio.get_running_loop()
    heard = loop.create_future()
    loop.add_reader(handle, _settle, heard)
    try:
        await heard
    finally:
        loop.remove_reader(handle)


def _settle(heard: asyncio.Future[None]) -> None:
    if not heard.done():
        heard.set_result(None)
