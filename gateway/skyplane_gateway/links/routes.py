"""The routes of a fleet as one gateway sees them: who is connected, what goes where.

A gateway has a place on each of its routes: source (first), sink (last), relay in
between. Frames go down the route on whichever connection of the next hop is ready;
receipts go up it. Relays pass a frame on as soon as it is whole, without looking
inside, and stop reading from the connection it came by while no next one is ready.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from skyplane_gateway.config import Route, Topology
from skyplane_gateway.errors import GatewayLost
from skyplane_gateway.links.link import Link
from skyplane_gateway.protocol import (
    Connection,
    Established,
    FrameHeader,
    GoodbyeReason,
    Identity,
    RawFrame,
    RawReceipt,
    ReceiptHeader,
    Side,
)

log = logging.getLogger(__name__)

#: Pause between two tries to reach a neighbour, and how long the trying goes on: long
#: enough for a gateway that is still being told its topology.
_REDIAL_S: Final = 0.2
_DIAL_WITHIN_S: Final = 60.0

OnFrame = Callable[[FrameHeader, memoryview], None]
OnReceipt = Callable[[ReceiptHeader, memoryview], None]
OnDown = Callable[[int, str], None]


@dataclass(slots=True)
class _Lane:
    """One route at this gateway."""

    route: Route
    place: int
    upstream: list[Link] = field(default_factory=list)
    downstream: list[Link] = field(default_factory=list)
    waiting: deque[tuple[FrameHeader, memoryview, Link]] = field(default_factory=deque)
    writable: asyncio.Event = field(default_factory=asyncio.Event)
    neighbours: dict[str, tuple[str, int]] = field(default_factory=dict)
    down: str = ""
    turn: int = 0
    frames: int = 0
    frame_bytes: int = 0

    @property
    def role(self) -> str:
        if self.place == 0:
            return "source"
        return "sink" if self.is_at_sink else "relay"

    @property
    def beside(self) -> tuple[str, ...]:
        """The neighbours on this route, upstream first."""
        nodes = self.route.nodes
        return (*nodes[max(0, self.place - 1) : self.place], *nodes[self.place + 1 :][:1])

    @property
    def is_at_sink(self) -> bool:
        return self.place == len(self.route.connections)

    @property
    def wanted(self) -> tuple[int, int]:
        """Connections that this gateway should have upstream and downstream."""
        hops = self.route.connections
        return (
            hops[self.place - 1] if self.place > 0 else 0,
            hops[self.place] if self.place < len(hops) else 0,
        )

    @property
    def is_connected(self) -> bool:
        up, down = self.wanted
        return not self.down and len(self.upstream) >= up and len(self.downstream) >= down

    def ready_link(self) -> Link | None:
        """A downstream connection that takes a frame now; they take turns."""
        count = len(self.downstream)
        for step in range(count):
            link = self.downstream[(self.turn + step) % count]
            if link.is_ready:
                self.turn = (self.turn + step + 1) % count
                return link
        return None


class Routes:
    """All routes of one gateway.

    Args:
        node: this gateway.
        identity: what it proves in the hello.
        on_frame, on_receipt: told of frames at a sink and receipts at a source.
        on_down: told once when a route breaks: its number and why.
    """

    def __init__(
        self,
        node: str,
        identity: Identity,
        on_frame: OnFrame,
        on_receipt: OnReceipt,
        on_down: OnDown,
    ) -> None:
        self._node = node
        self._identity = identity
        self._on_frame = on_frame
        self._on_receipt = on_receipt
        self._on_down = on_down
        self._lanes: dict[int, _Lane] = {}
        self._dials: set[asyncio.Task[None]] = set()
        self._links: set[Link] = set()
        self._early: list[tuple[Link, Established]] = []
        self.topology: Topology | None = None

    # -- topology

    def apply(self, topology: Topology, local_host: str) -> None:
        """Take up the routes that lead through this gateway; broken ones start afresh.

        Applying the same topology again only repairs what is broken. A route that is no
        more, has changed, or has a neighbour at another address, which is another process
        by then, ends first.
        """
        self.topology = topology
        ours = {route.number: route for route in topology.routes if self._node in route.nodes}
        for number in set(self._lanes) - set(ours):
            self._break(self._lanes[number], "it is no route of the fleet any more")
            del self._lanes[number]
        for route in ours.values():
            fresh = _Lane(route, route.nodes.index(self._node))
            fresh.neighbours = {node: topology.data_addresses[node] for node in fresh.beside}
            lane = self._lanes.get(route.number)
            if lane is not None and not lane.down:
                if (lane.route, lane.neighbours) == (route, fresh.neighbours):
                    continue
                self._break(lane, "the fleet has changed")
            lane = self._lanes[route.number] = fresh
            self._claim_early()
            for peer, side, count in self._to_dial(lane):
                address = topology.data_addresses[peer]
                for _ in range(count):
                    self._start_dial(lane, peer, side, address, local_host)

    @staticmethod
    def _to_dial(lane: _Lane) -> list[tuple[str, Side, int]]:
        """The neighbours that this gateway dials: peer, our side, connections."""
        route, place = lane.route, lane.place
        dials = []
        if place < len(route.connections) and place not in route.dialed_by_downstream:
            dials.append((route.nodes[place + 1], Side.UPSTREAM, route.connections[place]))
        if place > 0 and place - 1 in route.dialed_by_downstream:
            dials.append((route.nodes[place - 1], Side.DOWNSTREAM, route.connections[place - 1]))
        return dials

    def _start_dial(
        self, lane: _Lane, peer: str, side: Side, address: tuple[str, int], local_host: str
    ) -> None:
        task = asyncio.create_task(self._dial(lane, peer, side, address, local_host))
        self._dials.add(task)
        task.add_done_callback(self._dials.discard)

    async def _dial(
        self, lane: _Lane, peer: str, side: Side, address: tuple[str, int], local_host: str
    ) -> None:
        """Connect one connection to a neighbour, trying again while it is not there yet."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + _DIAL_WITHIN_S
        while not lane.down and self._lanes.get(lane.route.number) is lane:
            connection = Connection.dial(
                self._identity,
                route=lane.route.number,
                side=side,
                nonce=os.urandom(16),
                expected_peer=peer,
            )
            owner = _Dialled(self, asyncio.Event())
            try:
                await loop.create_connection(
                    partial(Link, connection, owner),
                    *address,
                    local_addr=(local_host, 0),
                )
                await owner.settled.wait()
                if owner.is_established:
                    return
                reason = owner.reason
            except OSError as error:
                reason = str(error)
            if loop.time() >= deadline:
                self._break(
                    lane, f"cannot connect to {peer} at {address[0]}:{address[1]}: {reason}"
                )
                return
            await asyncio.sleep(_REDIAL_S)

    def accept(self) -> Link:
        """The protocol for a connection that a neighbour opened."""
        return Link(Connection.accept(self._identity, nonce=os.urandom(16)), self)

    # -- sending

    async def send_frame(self, frame: RawFrame) -> None:
        """Send down the frame's route, on the first connection that is ready.

        Raises:
            GatewayLost: the route is down.
        """
        lane = self._lanes[frame.header.route]
        if not lane.route.connections:
            # Source and sink in one gateway: no hop between. The sink's bound on
            # chunks under way holds, since the lead grants no more than it can take.
            self._on_frame(frame.header, memoryview(b"".join(frame.sealed)))
            await asyncio.sleep(0)
            return
        while True:
            if lane.down:
                raise GatewayLost(lane.down)
            link = lane.ready_link()
            if link is not None:
                self._count(lane, sum(len(buffer) for buffer in frame.sealed))
                link.send_frame(frame.header, *frame.sealed)
                return
            lane.writable.clear()
            await lane.writable.wait()

    def send_receipt(self, receipt: RawReceipt) -> None:
        """Send up the receipt's route; dropped when the route is down (its source knows)."""
        lane = self._lanes.get(receipt.header.route)
        if lane is None:
            return
        if not lane.route.connections:
            self._on_receipt(receipt.header, memoryview(b"".join(receipt.sealed)))
        else:
            self._pass_up(lane, receipt.header, *receipt.sealed)

    def _pass_up(
        self, lane: _Lane, header: ReceiptHeader, *sealed: bytes | bytearray | memoryview
    ) -> None:
        if lane.upstream:
            link = next((link for link in lane.upstream if link.is_ready), lane.upstream[0])
            link.send_receipt(header, *sealed)

    @staticmethod
    def _count(lane: _Lane, size: int) -> None:
        lane.frames += 1
        lane.frame_bytes += size

    # -- what the links tell

    def link_established(self, link: Link, event: Established) -> None:
        lane = self._lanes.get(event.route)
        if lane is None or lane.down:
            # A neighbour may know the topology before we do; it is told to us in a moment.
            self._early.append((link, event))
            return
        if not self._is_neighbour(lane, event):
            link.close(GoodbyeReason.UNKNOWN_ROUTE, f"{self._node} does not expect this route")
            return
        self._links.add(link)
        (lane.upstream if event.peer_is_upstream else lane.downstream).append(link)
        lane.writable.set()
        self._forward(lane)

    def _claim_early(self) -> None:
        early, self._early = self._early, []
        for link, event in early:
            self.link_established(link, event)

    def link_frame(self, link: Link, header: FrameHeader, sealed: memoryview) -> None:
        lane = self._lanes.get(header.route)
        if lane is None or lane.down:
            link.close(GoodbyeReason.UNKNOWN_ROUTE, f"{self._node} is not ready for this route")
            return
        if lane.is_at_sink:
            self._count(lane, len(sealed))
            self._on_frame(header, sealed)
            return
        lane.waiting.append((header, sealed, link))
        self._forward(lane)
        if lane.waiting:
            link.pause_reading()

    def link_receipt(self, link: Link, header: ReceiptHeader, sealed: memoryview) -> None:
        lane = self._lanes.get(header.route)
        if lane is None or lane.down:
            return
        if lane.place == 0:
            self._on_receipt(header, sealed)
        else:
            self._pass_up(lane, header, sealed)

    def link_writable(self, link: Link) -> None:
        event = link.established
        lane = self._lanes.get(event.route) if event is not None else None
        if lane is not None:
            lane.writable.set()
            self._forward(lane)

    def link_lost(self, link: Link, reason: str) -> None:
        self._early = [(other, event) for other, event in self._early if other is not link]
        if link not in self._links or link.established is None:
            return
        self._links.discard(link)
        lane = self._lanes.get(link.established.route)
        if lane is None or link not in (*lane.upstream, *lane.downstream):
            return
        (lane.upstream if link in lane.upstream else lane.downstream).remove(link)
        peer = link.established.peer_node
        if link.was_left_in_order:
            self._break(lane, f"{peer} closed the connection: {reason}", GoodbyeReason.DONE)
        else:
            self._break(lane, f"the connection to {peer} broke: {reason}")

    def _forward(self, lane: _Lane) -> None:
        """Pass on what waits, and read on from those it came from."""
        while lane.waiting:
            link = lane.ready_link()
            if link is None:
                return
            header, sealed, origin = lane.waiting.popleft()
            self._count(lane, len(sealed))
            link.send_frame(header, sealed)
            origin.resume_reading()

    def _is_neighbour(self, lane: _Lane, event: Established) -> bool:
        place = lane.place - 1 if event.peer_is_upstream else lane.place + 1
        nodes = lane.route.nodes
        return 0 <= place < len(nodes) and nodes[place] == event.peer_node

    def _break(
        self, lane: _Lane, reason: str, goodbye: GoodbyeReason = GoodbyeReason.ROUTE_LOST
    ) -> None:
        """A route with a missing connection has lost frames nobody knows of: end it whole.

        Closing the rest of its connections tells the neighbours, and so the source. With
        `goodbye` DONE it is the fleet that is ending, which is nobody's trouble.
        """
        if lane.down:
            return
        path = " -> ".join(lane.route.nodes)
        lane.down = f"{self._node} lost its part of the path {path}: {reason}"
        is_trouble = goodbye is not GoodbyeReason.DONE
        log.log(logging.WARNING if is_trouble else logging.INFO, "%s", lane.down)
        lane.waiting.clear()
        lane.writable.set()
        for link in (*lane.upstream, *lane.downstream):
            link.close(goodbye, lane.down)
        lane.upstream.clear()
        lane.downstream.clear()
        self._on_down(lane.route.number, lane.down)

    # -- what others may know

    @property
    def is_connected(self) -> bool:
        """Every route through this gateway has all its connections."""
        return self.topology is not None and all(lane.is_connected for lane in self._lanes.values())

    def reason_down(self, number: int) -> str:
        """Why a route is down; empty while it is up."""
        return self._lanes[number].down

    def statistics(self) -> list[dict[str, Any]]:
        """Per route: frames and bytes that this gateway sent on (or took in, as a sink)."""
        return [
            {
                "number": number,
                "role": lane.role,
                "connected": lane.is_connected,
                "frames": lane.frames,
                "frame_bytes": lane.frame_bytes,
                "waiting_frames": len(lane.waiting),
                "down": lane.down,
            }
            for number, lane in self._lanes.items()
        ]

    def close(self) -> None:
        """Close every connection politely and stop dialling."""
        for task in self._dials:
            task.cancel()
        for link, _ in self._early:
            link.close(GoodbyeReason.DONE, f"{self._node} is ending")
        for lane in self._lanes.values():
            links = (*lane.upstream, *lane.downstream)
            lane.upstream.clear()
            lane.downstream.clear()
            for link in links:
                link.close(GoodbyeReason.DONE, f"{self._node} is ending")


class _Dialled:
    """The owner of a link that this gateway dialled: tells the dialler how it went."""

    def __init__(self, routes: Routes, settled: asyncio.Event) -> None:
        self._routes = routes
        self.settled = settled
        self.is_established = False
        self.reason = ""

    def link_established(self, link: Link, event: Established) -> None:
        self.is_established = True
        self.settled.set()
        self._routes.link_established(link, event)

    def link_frame(self, link: Link, header: FrameHeader, sealed: memoryview) -> None:
        self._routes.link_frame(link, header, sealed)

    def link_receipt(self, link: Link, header: ReceiptHeader, sealed: memoryview) -> None:
        self._routes.link_receipt(link, header, sealed)

    def link_writable(self, link: Link) -> None:
        self._routes.link_writable(link)

    def link_lost(self, link: Link, reason: str) -> None:
        self.reason = reason
        self.settled.set()
        self._routes.link_lost(link, reason)
