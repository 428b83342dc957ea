"""The router of one gateway: sends frames downstream and receipts upstream, on every route.

A gateway is the source (first), the sink (last) or a relay on each of its routes. Frames
use any connection of the next hop that is ready. A relay forwards a frame as soon as it is
whole and does not open it. While no connection of the next hop is ready, the relay stops
reading from the connection that the frame came by. In the same way nobody reads what causes
receipts while the upstream neighbour takes none.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from skyplane_gateway.common.buffers import Buffer, total_bytes
from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.errors import GatewayLost
from skyplane_gateway.config import ProbeReport, Topology
from skyplane_gateway.protocol.chunk_manifest import ChunkManifest
from skyplane_gateway.protocol.connection import Identity
from skyplane_gateway.protocol.frames import Claim, RawFrame
from skyplane_gateway.protocol.limits import PROBE_TRANSFER
from skyplane_gateway.protocol.messages import ChunkId, FrameHeader
from skyplane_gateway.protocol.receipt import RawReceipt
from skyplane_gateway.transport.fork import Fork
from skyplane_gateway.transport.link import GOODBYE_TIMEOUT_S, WRITE_TIMEOUT_S, Link
from skyplane_gateway.transport.pending_connections import DATA_PORT_LIMIT
from skyplane_gateway.transport.probe import Probes
from skyplane_gateway.transport.route import FIRST_FRAME_BYTES, LocalRoute
from skyplane_gateway.transport.route_manager import RouteManager, RouteOwner

#: Links close within the time of their GOODBYE; a link that is still dialed takes longer.
LEAVE_TIMEOUT_S: Final = GOODBYE_TIMEOUT_S + 1.0


class ChunkReceiver(Protocol):
    """Takes chunks in the memory of this process; see `Sink`."""

    def begin_chunk(self, chunk: ChunkId, manifest: ChunkManifest) -> memoryview | None: ...

    def end_chunk(self, chunk: ChunkId, crc32c: int) -> None: ...

    def drop_chunk(self, chunk: ChunkId) -> None: ...


class FrameReceiver(ChunkReceiver, Protocol):
    """Takes frames at their sink, too."""

    def on_frame(self, header: FrameHeader, sealed: memoryview) -> None: ...

    def claim_frame(
        self, header: FrameHeader, start: memoryview, sealed_bytes: int
    ) -> Claim | None: ...

    def on_placed(self, claim: Claim, tag: memoryview) -> None: ...


class ReceiptReceiver(Protocol):
    """Takes receipts at their source."""

    def on_receipt(self, header: ChunkId, sealed: memoryview) -> None: ...


class RouterOwner(RouteOwner, Protocol):
    """The gateway of a router. All methods run on the event loop."""

    @property
    def sink(self) -> FrameReceiver: ...

    @property
    def endpoints(self) -> ReceiptReceiver: ...


class Router:
    """All routes of one gateway.

    Args:
        owner: has the receivers of frames and receipts, and learns which routes are up.
        write_timeout_s: a neighbour that takes nothing for this long breaks its route.
        pending_limit: most connections without proof; see `RouteManager`.
    """

    def __init__(
        self,
        identity: Identity,
        owner: RouterOwner,
        *,
        write_timeout_s: float = WRITE_TIMEOUT_S,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        pending_limit: int = DATA_PORT_LIMIT,
    ) -> None:
        self._owner = owner
        self._node = identity.node
        self._manager = RouteManager(
            identity,
            owner,
            self,
            write_timeout_s=write_timeout_s,
            clock=clock,
            rng=rng or random.SystemRandom(),
            pending_limit=pending_limit,
        )
        self._routes = self._manager.by_key
        #: Number of a tree -> what this gateway does with its frames.
        self._forks: dict[int, Fork] = {}
        self._probes = Probes(identity.fleet, self.send_frame, self.send_receipt)
        self.topology: Topology | None = None

    def apply(self, topology: Topology, local_host: str) -> None:
        """Build the routes that lead through this gateway.

        Applying the same topology again rebuilds broken and ended routes at once. A route
        that is missing, has changed, or has a neighbour at another address ends first: at
        another address there is another process.
        """
        self.topology = topology
        self._manager.apply(topology, local_host)
        trees = {tree.number: tree for tree in topology.trees if tree.hops_of(self._node)}
        forks, self._forks = self._forks, {}
        for number, tree in trees.items():
            known = forks.get(number)
            if known is None or known.tree != tree:
                branch_of = partial(self._manager.find, number)
                known = Fork(tree, self._node, branch_of, self._manager.break_route)
            self._forks[number] = known

    def branch(self, number: int) -> tuple[int, int] | None:
        """The tree that a route follows, and the bit of its sink; None without a tree."""
        route = self._manager.find(number)
        fork = self._forks.get(route.config.tree or 0) if route is not None else None
        if route is None or fork is None:
            return None
        return fork.tree.number, fork.tree.bits(route.config.nodes[-1:])

    def fork(self, number: int) -> Fork | None:
        """What this gateway does with the frames of that tree; None without it."""
        return self._forks.get(number)

    def accept(self) -> Link:
        """The protocol of a connection that a neighbour opened."""
        return self._manager.accept()

    def close(self) -> None:
        """Close every connection with GOODBYE and stop dialing."""
        self._manager.close()

    async def leave(self) -> None:
        """As `close`; wait, up to a limit, until the neighbours have read the GOODBYE."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await asyncio.gather(*(link.wait_lost() for link in self._manager.close()))

    # -- sending

    async def send_frame(self, frame: RawFrame, turn: float = 0.0) -> None:
        """Send down the frame's route, on the first connection that is ready.

        Of frames that wait, those with the lowest `turn` go first. So the oldest chunk is whole
        soon, and its place at the sink is free for the next one.

        Raises GatewayLost when the route is down, or goes down while the frame waits.
        """
        header = frame.header
        number = header.chunk_id.route
        if number in self._forks:
            await self._forks[number].send(frame)
            return
        route = self._manager.find(number)
        if route is None:
            raise GatewayLost(f"this gateway knows no route {number}")
        if not route.hops:
            # Source and sink are this gateway. The lead grants no more chunks than the sink
            # can hold.
            self._owner.sink.on_frame(header, memoryview(b"".join(frame.sealed)))
            await asyncio.sleep(0)
            return
        generation = route.generation
        while True:
            # Earlier frames of the chunk are lost with the old connections.
            if route.down or route.generation != generation:
                raise GatewayLost(route.down or f"the path {route.path} broke and was rebuilt")
            link = route.ready_link(turn)
            if link is not None:
                route.count_frame(total_bytes(frame.sealed))
                link.send_frame(header, *frame.sealed)
                route.offer_more()
                return
            await route.writable.wait(turn)

    def send_receipt(self, receipt: RawReceipt) -> None:
        """Send up the receipt's route; dropped when the route is down (its source knows)."""
        route = self._upward(receipt.header.route)
        if route is None:
            return
        if not route.hops:
            self._owner.endpoints.on_receipt(receipt.header, memoryview(b"".join(receipt.sealed)))
        else:
            self._send_upstream(route, receipt.header, *receipt.sealed)

    def _upward(self, number: int) -> LocalRoute | None:
        """The route, or the hop of the tree, by which receipts leave this gateway."""
        fork = self._forks.get(number)
        if fork is None:
            return self._manager.find(number)
        return self._manager.find(number, fork.parent) if fork.parent is not None else None

    @staticmethod
    def _send_upstream(route: LocalRoute, header: ChunkId, *sealed: Buffer) -> None:
        links = route.upstream_links
        if links:
            link = next((link for link in links if link.is_ready), links[0])
            link.send_receipt(header, *sealed)

    async def probe(self, number: int, seconds: float) -> ProbeReport:
        """Measure a route that begins here; see `Probes.measure`.

        Raises GatewayLost also for a route that does not begin here, or ends here too.
        """
        route = self._manager.find(number)
        if route is None or not route.is_source or route.downstream_hop is None:
            raise GatewayLost(f"no route {number} leads from this gateway to another")
        return await self._probes.measure(number, route.downstream_hop.connections, seconds)

    # -- what arrives on links

    def frame_received(self, link: Link, header: FrameHeader, sealed: memoryview) -> None:
        route = self._route_of(link)
        if route is None or link not in route.upstream_links:
            return  # The link belongs to connections that are being closed.
        fork = self._forks.get(header.chunk_id.route)
        if fork is not None:
            route.count_frame(len(sealed))
            fork.received(link, header, sealed)
            if fork.is_for_sink(header):
                self._owner.sink.on_frame(header, sealed)
            return
        if route.is_sink:
            route.count_frame(len(sealed))
            if header.chunk_id.transfer == PROBE_TRANSFER:
                self._probes.on_frame(header.chunk_id)
            else:
                self._owner.sink.on_frame(header, sealed)
            route.await_receipts_taken(link)
            return
        route.waiting.append((header, (sealed,), link))
        route.forward()
        if route.waiting:
            link.pause_reading()

    def claim_place(
        self, link: Link, header: FrameHeader, start: memoryview, sealed_bytes: int
    ) -> Claim | None:
        route = self._route_of(link)
        # A sink of a tree may have to pass the frame on.
        if route is None or route.is_branch or not route.is_sink:
            return None
        if link not in route.upstream_links:
            return None
        return self._owner.sink.claim_frame(header, start, sealed_bytes)

    def frame_placed(self, link: Link, claim: Claim, tag: memoryview) -> None:
        route = self._route_of(link)
        if route is None or link not in route.upstream_links:
            return
        route.count_frame(claim.sealed_bytes)
        self._owner.sink.on_placed(claim, tag)
        route.await_receipts_taken(link)

    def receipt_received(self, link: Link, header: ChunkId, sealed: memoryview) -> None:
        route = self._route_of(link)
        if route is None or link not in route.downstream_links:
            return
        if route.is_branch and (above := self._upward(header.route)) is not None:
            self._send_upstream(above, header, sealed)
        elif not route.is_source:
            self._send_upstream(route, header, sealed)
            route.await_receipts_taken(link)
        elif header.transfer == PROBE_TRANSFER:
            self._probes.on_receipt(header)
        else:
            self._owner.endpoints.on_receipt(header, sealed)

    def link_writable(self, link: Link) -> None:
        route = self._route_of(link)
        if route is not None:
            route.writable.set()
            route.forward()
            route.taken()
            route.receipts_taken(link)

    def _route_of(self, link: Link) -> LocalRoute | None:
        event = link.established
        return self._manager.find(event.route, event.peer_node) if event is not None else None

    # -- state

    def local_sink(self, number: int) -> ChunkReceiver | None:
        """The sink of this gateway, if the route begins and ends here."""
        route = self._manager.find(number)
        return self._owner.sink if route is not None and not route.hops else None

    def frame_bytes(self, number: int) -> int:
        """Payload that a frame on a route, or down a tree, should have at most."""
        hops = [route for (its, _), route in self._routes.items() if its == number]
        return min((route.frame_bytes_wanted for route in hops), default=FIRST_FRAME_BYTES)

    def loss(self, number: int) -> GatewayLost | None:
        """Why a route is down; None while it is up, or is built the first time."""
        return self._manager.loss(number)

    @property
    def is_connected(self) -> bool:
        """Every route through this gateway has all its connections."""
        routes = self._routes.values()
        return self.topology is not None and all(route.is_connected for route in routes)

    def statistics(self, *, of_trees: bool = False) -> list[dict[str, Any]]:
        """Per route, or per hop of a tree: frames and bytes that this gateway sent (or took, as a
        sink).

        `saturated_s` and `saturated_bytes` are of the times in which bytes waited for the
        network to the next hop; see `SaturationMeter`.
        """
        return [
            {
                "number": number,
                "nodes": list(route.config.nodes),
                "role": route.role,
                "connected": route.is_connected,
                "frames": route.frames,
                "frame_bytes": route.frame_bytes,
                "waiting_frames": len(route.waiting),
                "saturated_s": route.saturation.seconds,
                "saturated_bytes": route.saturation.sent_bytes,
                "down": route.down,
            }
            for (number, _), route in self._routes.items()
            if route.is_branch == of_trees
        ]
