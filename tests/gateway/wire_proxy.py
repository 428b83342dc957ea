"""An attacker on the data connections of a fleet: between two gateways, or in a relay's place.

It cuts both streams of each connection into messages and hands every message to an attack. The
attack may forward, alter, drop, repeat, delay, move or forge messages, on any connection.

Between two gateways it has no key. In a relay's place it has the relay's HELLO keys. In neither
place it has the key of a transfer.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.gateway.protocol.lab import give

from skyplane_gateway.config import Route
from skyplane_gateway.protocol.connection import Connection, Identity
from skyplane_gateway.protocol.handshake import Side
from skyplane_gateway.protocol.messages import (
    HEAD_BYTES,
    PREFIX_BYTES,
    MessageType,
    read_prefix,
)

HOST = "127.0.0.1"

#: Bytes of a dialer's nonce that name the connections which were dialed together.
_INCARNATION_BYTES = 9

#: (upstream gateway, downstream gateway).
Hop = tuple[str, str]

#: Handles one message in place of the network.
Attack = Callable[["Message"], None]

_HANDSHAKE = (MessageType.HELLO, MessageType.CHALLENGE, MessageType.PROOF)


@dataclass(frozen=True, slots=True)
class Message:
    """One whole message that a gateway has sent.

    Attributes:
        pipe: the direction of the connection that it came by.
        number: of its type on its hop, from 0.
    """

    pipe: Pipe
    kind: MessageType
    data: bytes
    number: int

    @property
    def head(self) -> bytes:
        """The part before the body; of DATA and RECEIPT the outer header."""
        return self.data[: HEAD_BYTES[self.kind]]

    @property
    def body(self) -> bytes:
        return self.data[HEAD_BYTES[self.kind] :]

    def forward(self) -> None:
        self.pipe.send(self.data)


def honest(message: Message) -> None:
    message.forward()


class Pipe:
    """One direction of one connection."""

    def __init__(self, connection: ProxiedConnection, receiver: End) -> None:
        self.connection = connection
        self._receiver = receiver

    @property
    def hop(self) -> Hop:
        return self.connection.hop

    @property
    def proxy(self) -> WireProxy:
        return self.connection.proxy

    @property
    def back(self) -> Pipe:
        """The other direction of the same connection."""
        one, other = self.connection.pipes
        return other if self is one else one

    @property
    def others(self) -> list[Pipe]:
        """The same direction of the other open connections of the hop."""
        index = self.connection.pipes.index(self)
        return [
            other.pipes[index]
            for other in self.proxy.connections
            if other is not self.connection and other.hop == self.hop and other.is_open
        ]

    def send(self, data: bytes) -> None:
        """Send to the receiver; lost where it is gone."""
        self._receiver.write(data)

    def end(self) -> None:
        """Close this direction only."""
        self._receiver.write_eof()


class End(asyncio.Protocol):
    """The proxy's TCP connection with one gateway."""

    def __init__(self, connection: ProxiedConnection) -> None:
        self._connection = connection
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self.other: End
        self.pipe: Pipe

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connection.end_opened(self)

    def data_received(self, data: bytes) -> None:
        self._received += data
        while (message := self._cut()) is not None:
            self._connection.take(self.pipe, message)

    def _cut(self) -> bytes | None:
        if len(self._received) < PREFIX_BYTES:
            return None
        size = read_prefix(memoryview(bytes(self._received[:PREFIX_BYTES]))).size_bytes
        if len(self._received) < size:
            return None
        message = bytes(self._received[:size])
        del self._received[:size]
        return message

    def eof_received(self) -> bool:
        self.other.write_eof()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.is_open = False
        self.other.close()

    def pause_writing(self) -> None:
        self.other.pause()

    def resume_writing(self) -> None:
        self.other.resume()

    def write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def write_eof(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write_eof()

    def pause(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class ProxiedConnection:
    """One connection of a hop, through the proxy.

    Attributes:
        pipes: from the dialer to the acceptor, and back.
        receipts: how many a gateway has sent on it.
    """

    def __init__(self, proxy: WireProxy, place: _Place) -> None:
        self.proxy = proxy
        self.hop = place.hop
        self.is_open = True
        self._place = place
        self.dialer, self._acceptor = End(self), End(self)
        self.dialer.other, self._acceptor.other = self._acceptor, self.dialer
        self.pipes = (
            Pipe(self, self._acceptor),
            Pipe(self, self.dialer),
        )
        self.dialer.pipe, self._acceptor.pipe = self.pipes
        self._own: list[Connection] = []
        self.receipts = 0

    def end_opened(self, end: End) -> None:
        if end is self.dialer:
            end.pause()
            self.proxy.begin(self._dial())
        else:
            self.dialer.resume()

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            await loop.create_connection(lambda: self._acceptor, HOST, self._place.target_port)
        except OSError:
            self.dialer.abort()

    def cut(self) -> None:
        """Break the connection at both ends."""
        self.dialer.abort()
        self._acceptor.abort()

    def take(self, pipe: Pipe, data: bytes) -> None:
        kind = read_prefix(memoryview(data)).kind
        if self._place.relay is not None and kind in _HANDSHAKE:
            self._shake_hands(self._place.relay, kind, data)
            return
        self.receipts += kind is MessageType.RECEIPT
        self.proxy.take(pipe, kind, data)

    def _shake_hands(self, relay: Identity, kind: MessageType, data: bytes) -> None:
        """Speak as the relay, on both of its hops."""
        upper, lower = self.dialer, self._acceptor
        if kind is MessageType.HELLO:
            accepting = Connection.accept(relay, nonce=os.urandom(16))
            give(accepting, data)
            incarnation = accepting.hello.nonce[:_INCARNATION_BYTES]
            dialing = Connection.dial(
                relay,
                route=accepting.hello.route,
                side=Side.UPSTREAM,
                nonce=incarnation + os.urandom(16 - _INCARNATION_BYTES),
            )
            self._own = [accepting, dialing]
            _flush(dialing, lower)
        elif kind is MessageType.CHALLENGE:
            accepting, dialing = self._own
            give(dialing, data)
            _flush(dialing, lower)
            _flush(accepting, upper)
        else:
            give(self._own[0], data)
            assert self._own[0].established is not None


def _flush(connection: Connection, end: End) -> None:
    for buffer in connection.data_to_send():
        end.write(bytes(buffer))


@dataclass(frozen=True, slots=True)
class _Place:
    """Where the proxy stands on one hop.

    Attributes:
        relay: the identity that it speaks with; None between two gateways.
    """

    hop: Hop
    target_port: int
    relay: Identity | None


@dataclass
class WireProxy:
    """The attacker of one fleet; give it to `fleet_of(wire=...)`.

    Args:
        attack: handles all messages; may be replaced at any time.
        relay: the gateway whose place it takes; empty to stand between all gateways.

    Attributes:
        seen: all bytes that it has seen.
    """

    attack: Attack = honest
    relay: str = ""
    connections: list[ProxiedConnection] = field(default_factory=list)
    seen: bytearray = field(default_factory=bytearray)
    counts: Counter[tuple[Hop, MessageType]] = field(default_factory=Counter)
    _servers: list[asyncio.Server] = field(default_factory=list)
    _ports: dict[tuple[str, str], int] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def open(self, fleet: Any) -> None:
        """Listen for every hop of the fleet, whose gateways listen already."""
        for route in fleet.routes:
            for dialer, acceptor, place in self._places(fleet, route):
                if (dialer, acceptor) not in self._ports:
                    server = await asyncio.get_running_loop().create_server(
                        partial(self._accept, place), HOST, 0
                    )
                    self._servers.append(server)
                    self._ports[dialer, acceptor] = server.sockets[0].getsockname()[1]

    def _places(self, fleet: Any, route: Route) -> Iterator[tuple[str, str, _Place]]:
        for index, hop in enumerate(zip(route.nodes, route.nodes[1:], strict=False)):
            upper, lower = hop
            if upper == self.relay:
                continue
            if lower == self.relay:
                below = route.nodes[index + 2]
                keys = {node: fleet.authority.hello_key(lower, node) for node in (upper, below)}
                identity = Identity(bytes.fromhex(fleet.key)[:8], lower, keys)
                place = _Place((upper, below), fleet.gateways[below].data_port, identity)
                yield upper, lower, place
            else:
                dialer, acceptor = hop[::-1] if index in route.dialed_by_downstream else hop
                yield dialer, acceptor, _Place(hop, fleet.gateways[acceptor].data_port, None)

    def addresses(self, seen_by: str) -> dict[str, tuple[str, int]]:
        """Gateway -> address, for those that this one dials."""
        return {
            acceptor: (HOST, port)
            for (dialer, acceptor), port in self._ports.items()
            if dialer == seen_by or acceptor == self.relay
        }

    def close(self) -> None:
        for server in self._servers:
            server.close()
        self.cut()

    def cut(self) -> None:
        """Break all connections."""
        for connection in self.connections:
            connection.cut()

    # -- called by connections

    def _accept(self, place: _Place) -> End:
        connection = ProxiedConnection(self, place)
        self.connections.append(connection)
        return connection.dialer

    def begin(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def take(self, pipe: Pipe, kind: MessageType, data: bytes) -> None:
        number = self.counts[pipe.hop, kind]
        self.counts[pipe.hop, kind] += 1
        self.seen += data
        self.attack(Message(pipe, kind, data, number))
