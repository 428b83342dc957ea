"""Lines of a given rate between gateways that are processes of this machine.

Each ordered pair of gateways has a proxy, and those of an edge share its rate. The gateways dial
the proxies because `ControlClient.put_topology` names them in place of the gateways.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Final

import pytest

from skyplane_gateway.config import Topology
from skyplane_gateway.control.client import ControlClient

#: Region tags -> what the edge carries, Gbit/s.
Rates = Mapping[tuple[str, str], float]

#: Read at a time, and held in front of a line.
_PIECE_BYTES: Final = 16 << 10
_BUFFER_BYTES: Final = 16 << 10


class Lines:
    """The proxies, on an event loop of their own thread.

    Attributes:
        carried_bytes: by edge, in its direction.
    """

    def __init__(self, rates: Rates) -> None:
        self._rates = rates
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="lines", daemon=True)
        #: Edge -> when its line is free again, by the loop's clock.
        self._free_s: dict[tuple[str, str], float] = {}
        #: (from, to, its address) -> the port of the proxy.
        self._ports: dict[tuple[str, str, tuple[str, int]], int] = {}
        self._servers: list[asyncio.Server] = []
        self.carried_bytes: Counter[tuple[str, str]] = Counter()

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _close(self) -> None:
        for server in self._servers:
            server.close()
        own = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not own]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def seen_by(self, node: str, topology: Topology) -> Topology:
        """The topology with the proxies that lead from a gateway to the others."""
        addresses = {
            peer: address if peer == node else ("127.0.0.1", self._port(node, peer, address))
            for peer, address in topology.data_addresses.items()
        }
        return replace(topology, data_addresses=addresses)

    def _port(self, node: str, peer: str, address: tuple[str, int]) -> int:
        key = node, peer, address
        if key not in self._ports:
            opening = asyncio.run_coroutine_threadsafe(self._open(*key), self._loop)
            self._ports[key] = opening.result()
        return self._ports[key]

    async def _open(self, node: str, peer: str, address: tuple[str, int]) -> int:
        edge = node.partition("/")[0], peer.partition("/")[0]

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                upstream = await asyncio.open_connection(*address, limit=_BUFFER_BYTES)
                await asyncio.gather(
                    self._carry(reader, upstream[1], edge), self._carry(upstream[0], writer)
                )
            writer.close()

        listener = socket.socket()
        # Accepted connections inherit it: a line holds little, and what is sent has nearly arrived.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
        listener.bind(("127.0.0.1", 0))
        server = await asyncio.start_server(serve, sock=listener, limit=_BUFFER_BYTES)
        self._servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        edge: tuple[str, str] | None = None,
    ) -> None:
        writer.transport.set_write_buffer_limits(high=_BUFFER_BYTES)
        try:
            while piece := await reader.read(_PIECE_BYTES):
                if edge is not None:
                    self.carried_bytes[edge] += len(piece)
                if edge is not None and edge in self._rates:
                    await self._take_turn(edge, len(piece))
                writer.write(piece)
                await writer.drain()
        finally:
            writer.close()

    async def _take_turn(self, edge: tuple[str, str], size_bytes: int) -> None:
        """Wait until the line has carried so much; it idles where nobody waits."""
        now_s = self._loop.time()
        free_s = max(now_s, self._free_s.get(edge, 0.0)) + size_bytes * 8 / self._rates[edge] / 1e9
        self._free_s[edge] = free_s
        await asyncio.sleep(free_s - now_s)


@contextmanager
def between_gateways(rates: Rates, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lines]:
    """Edges without a rate are as fast as this machine."""
    lines = Lines(rates)
    put_topology = ControlClient.put_topology

    def put_shaped(client: ControlClient, topology: Topology) -> None:
        of_address = {address: node for node, address in topology.control_addresses.items()}
        node = of_address[client.host, client.port]
        put_topology(client, lines.seen_by(node, topology))

    monkeypatch.setattr(ControlClient, "put_topology", put_shaped)
    lines.start()
    try:
        yield lines
    finally:
        lines.stop()
