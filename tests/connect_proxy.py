"""A small HTTP proxy that connects by CONNECT."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

_READ_BYTES: Final = 65536

#: Where a proxy connects in place of (host, port); None to refuse.
Way = Callable[[str, int], "tuple[str, int] | None"]


@dataclass
class ConnectProxy:
    """Args: `asked` has each (host, port); `heads` the heads of all requests."""

    port: int
    asked: list[tuple[str, int]] = field(default_factory=list)
    heads: list[bytes] = field(default_factory=list)

    def url(self, credentials: str = "") -> str:
        return f"http://{credentials}{'@' if credentials else ''}127.0.0.1:{self.port}"


@contextmanager
def connect_proxy(way: Way, answer: bytes = b"") -> Iterator[ConnectProxy]:
    """Runs one on the loopback interface; `answer` takes the place of all that it says."""
    listener = socket.create_server(("127.0.0.1", 0))
    proxy = ConnectProxy(listener.getsockname()[1])

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(_READ_BYTES):
                writer.write(data)
                await writer.drain()
            writer.write_eof()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        host, _, port = head.split()[1].decode().rpartition(":")
        proxy.asked.append((host, int(port)))
        proxy.heads.append(head)
        to = way(host, int(port))
        if answer or to is None:
            writer.write(answer or b"HTTP/1.1 403 Forbidden\r\n\r\n")
            await writer.drain()
        else:
            far_reader, far_writer = await asyncio.open_connection(*to)
            writer.write(b"HTTP/1.1 200 Connection established\r\nVia: 1.1 proxy\r\n\r\n")
            await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer))
            far_writer.close()
        writer.close()

    loop = asyncio.new_event_loop()
    server = loop.run_until_complete(asyncio.start_server(serve, sock=listener))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def stop() -> None:
        server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()

    try:
        yield proxy
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()
