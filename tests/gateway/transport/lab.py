"""Gateways that have a router and nothing else, over real sockets."""

from __future__ import annotations

import asyncio
import functools
import hashlib
import itertools
import selectors
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, ParamSpec

from tests.ports import own_loopback_address

from skyplane_gateway.common.errors import GatewayLost, Overloaded
from skyplane_gateway.config import Route, Topology
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest, PartEntry
from skyplane_gateway.protocol.connection import Connection, Identity
from skyplane_gateway.protocol.framer import ChunkFramer
from skyplane_gateway.protocol.frames import RawFrame
from skyplane_gateway.protocol.handshake import Side
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader
from skyplane_gateway.protocol.receipt import RawReceipt, Receipt, seal_receipt
from skyplane_gateway.transport.link import Link
from skyplane_gateway.transport.route import LocalRoute
from skyplane_gateway.transport.router import Router

FLEET, TRANSFER = bytes(8), bytes(16)
#: Of this process alone: a killed gateway comes back on its port.
HOST = own_loopback_address()

#: Longest delay of a loopback connection, with a margin.
_LOOPBACK_S = 0.001


#: Every name of a gateway in the tests of this folder.
_NAMES = ("a", "b", "c", "d", "r", "s", "nobody")


def hello_key(one: str, other: str, secret: str = "ours") -> bytes:
    """The key that only the two gateways share."""
    return hashlib.sha256(repr((secret, sorted((one, other)))).encode()).digest()


class _JumpingSelector(selectors.DefaultSelector):
    """Waits for sockets for a moment, and skips the rest of the timeout."""

    def __init__(self) -> None:
        super().__init__()
        self.skipped_s = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= _LOOPBACK_S:
            return super().select(timeout)
        found = super().select(_LOOPBACK_S)
        if not found:
            self.skipped_s += timeout - _LOOPBACK_S
        return found


class JumpingLoop(asyncio.SelectorEventLoop):
    """Real sockets, and a clock that jumps to the next timer when the loop is idle."""

    def __init__(self) -> None:
        self._jumping = _JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return super().time() + self._jumping.skipped_s


P = ParamSpec("P")


def on_jumping_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test on a `JumpingLoop`."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=JumpingLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run


async def until(condition: Callable[[], object]) -> None:
    """Run the event loop until the condition holds; pytest's timeout ends a hang."""
    is_jumping = isinstance(asyncio.get_running_loop(), JumpingLoop)
    while not condition():  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0.2 if is_jumping else 0.002)


class Gateway:
    """A router with its listener; owner of the router, records what it receives."""

    def __init__(self, node: str, secret: str = "ours", **settings: Any) -> None:
        self.node = node
        self.frames: list[FrameHeader] = []
        self.receipts: list[ChunkId] = []
        self.down: list[tuple[int, str]] = []
        self.up: list[int] = []
        #: "up" and "down", in order.
        self.news: list[str] = []
        keys = {peer: hello_key(node, peer, secret) for peer in _NAMES}
        self.sink = self.endpoints = self
        self.router = Router(Identity(FLEET, node, keys), self, **settings)
        self.server: asyncio.Server | None = None

    def on_frame(self, header: FrameHeader, sealed: memoryview) -> None:
        self.frames.append(header)

    def claim_frame(self, *_: object) -> None: ...

    def on_placed(self, *_: object) -> None: ...

    def begin_chunk(self, chunk: ChunkId, manifest: ChunkManifest) -> None: ...

    def end_chunk(self, chunk: ChunkId, crc32c: int) -> None: ...

    def drop_chunk(self, chunk: ChunkId) -> None: ...

    def on_receipt(self, header: ChunkId, sealed: memoryview) -> None:
        self.receipts.append(header)

    def route_is_down(self, number: int, loss: GatewayLost) -> None:
        self.down.append((number, loss.message))
        self.news.append("down")

    def route_is_up(self, number: int) -> None:
        self.up.append(number)
        self.news.append("up")

    @property
    def address(self) -> tuple[str, int]:
        assert self.server is not None
        port: int = self.server.sockets[0].getsockname()[1]
        return HOST, port

    @property
    def unanswered(self) -> list[Link]:
        """Links whose HELLO waits for an answer."""
        return self.router._manager._unanswered

    def route(self, number: int = 0) -> LocalRoute:
        found = self.router._manager.find(number)
        assert found is not None
        return found

    async def listen(self, port: int = 0) -> None:
        loop = asyncio.get_running_loop()
        self.server = await loop.create_server(self.router.accept, HOST, port)

    def end(self) -> None:
        self.router.close()
        if self.server is not None:
            self.server.close()

    def crash(self) -> None:
        """Break every connection without a GOODBYE, as the kernel does for a killed process."""
        assert self.server is not None
        self.server.close()
        links = [*self.unanswered]
        for route in self.router._routes.values():
            route.is_ended = True
            links += route.tear_down()
        for link in links:
            link.abort("killed")


Fleet = dict[str, Gateway]


@asynccontextmanager
async def connected_fleet(*routes: Route, **settings: Any) -> AsyncIterator[Fleet]:
    """All gateways of the routes, connected."""
    nodes = dict.fromkeys(node for route in routes for node in route.nodes)
    async with fleet_of(*nodes, **settings) as fleet:
        apply(fleet, topology(fleet, *routes))
        await connected(fleet)
        yield fleet


@asynccontextmanager
async def fleet_of(*nodes: str, **settings: Any) -> AsyncIterator[Fleet]:
    gateways = {node: Gateway(node, **settings) for node in nodes}
    try:
        for gateway in gateways.values():
            await gateway.listen()
        yield gateways
    finally:
        for gateway in gateways.values():
            gateway.end()
        await asyncio.sleep(0)


def topology(fleet: Fleet, *routes: Route) -> Topology:
    addresses = {node: gateway.address for node, gateway in fleet.items()}
    return Topology(routes, addresses, addresses)


def apply(fleet: Fleet, wanted: Topology, *nodes: str) -> None:
    for node in nodes or fleet:
        fleet[node].router.apply(wanted, HOST)


async def revive(fleet: Fleet, node: str, wanted: Topology) -> None:
    """Start a new process at the address of a crashed one."""
    port = wanted.data_addresses[node][1]
    fleet[node] = Gateway(node)
    await fleet[node].listen(port)
    apply(fleet, wanted, node)


def cut(gateway: Gateway, route: int = 0, index: int = 0) -> None:
    """Break one connection of a route."""
    gateway.route(route).links[index].abort("cut by the test")


async def connected(fleet: Fleet) -> None:
    await until(lambda: all(gateway.router.is_connected for gateway in fleet.values()))


_numbers = itertools.count(1)


def frame(route: int = 0, payload: bytes = b"data") -> RawFrame:
    chunk = ChunkId(FLEET, TRANSFER, 1, route, 1, next(_numbers))
    manifest = ChunkManifest(len(payload), PartEntry("k", "u", 1, 0))
    (made,) = ChunkFramer(chunk, manifest).feed(payload)
    return made


def receipt_for(header: FrameHeader) -> RawReceipt:
    return seal_receipt(header.chunk_id, Receipt(1, Overloaded("m").to_dict()))


async def there_and_back(source: Gateway, sink: Gateway, route: int = 0) -> None:
    before, answered = len(sink.frames), len(source.receipts)
    await source.router.send_frame(frame(route))
    await until(lambda: len(sink.frames) > before)
    sink.router.send_receipt(receipt_for(sink.frames[-1]))
    await until(lambda: len(source.receipts) > answered)


async def dial(
    target: Gateway,
    node: str,
    route: int,
    side: Side = Side.UPSTREAM,
    key: bytes | None = None,
    nonce: bytes = bytes(16),
) -> str:
    """Dial as `node`; returns why the connection ended.

    Args:
        key: replaces the key that `node` shares with the target.
    """
    ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    class Owner:
        def hello_received(self, _: Link) -> bool:
            return True

        def link_established(self, *_: Any) -> None: ...

        def frame_received(self, *_: Any) -> None: ...

        def claim_place(self, *_: Any) -> None: ...

        def frame_placed(self, *_: Any) -> None: ...

        def receipt_received(self, *_: Any) -> None: ...

        def link_writable(self, *_: Any) -> None: ...

        def link_lost(self, _: Link, reason: str) -> None:
            ended.set_result(reason)

    owner = Owner()
    connection = Connection.dial(
        Identity(FLEET, node, {target.node: key or hello_key(node, target.node)}),
        route=route,
        side=side,
        nonce=nonce,
        expected_peer=target.node,
    )
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: Link(connection, owner, owner), *target.address)
    return await ended
