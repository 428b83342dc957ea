"""The routes of a fleet as one gateway sees them: who is connected, what goes where.

A gateway has a place on each of its routes: source (first), sink (last), relay in
between. Frames go down the route on whichever connection of the next hop is ready;
receipts go up it. Relays pass a frame on as soon as it is whole, without looking
inside, and stop reading from the connection it came by while no next one is ready.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from skyplane_gateway.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.config import Topology
from skyplane_gateway.errors import GatewayLost, PathEnded
from skyplane_gateway.pending_connections import MOST_ON_DATA_PORT
from skyplane_gateway.protocol import (
    Established,
    FrameHeader,
    Identity,
    RawFrame,
    RawReceipt,
    ReceiptHeader,
)
from skyplane_gateway.transport.incarnation import Incarnation
from skyplane_gateway.transport.link import GOODBYE_TIMEOUT_S, WRITE_TIMEOUT_S, Link
from skyplane_gateway.transport.route import Hop, Lane
from skyplane_gateway.transport.route_manager import Lanes, OnDown, OnUp

#: Links close within the time of their goodbye; one that is still dialled has none.
LEAVE_TIMEOUT_S: Final = GOODBYE_TIMEOUT_S + 1.0

OnFrame = Callable[[FrameHeader, memoryview], None]
OnReceipt = Callable[[ReceiptHeader, memoryview], None]


class Routes:
    """All routes of one gateway.

    Args:
        node: this gateway.
        identity: what it proves in the hello.
        on_frame, on_receipt: told of frames at a sink and receipts at a source.
        on_down: told once when a route breaks: its number and why.
        on_up: told when all connections of a route stand, the first time and after
            every `on_down` from which it recovered.
        write_timeout_s: a neighbour that takes nothing for so long has broken its route.
        clock: its wall time tells incarnations apart; see `incarnation`.
        rng: jitter of the pauses between two dials.
        strangers: most connections that have proven nothing; see `Lanes`.
    """

    def __init__(
        self,
        node: str,
        identity: Identity,
        on_frame: OnFrame,
        on_receipt: OnReceipt,
        on_down: OnDown,
        *,
        on_up: OnUp | None = None,
        write_timeout_s: float = WRITE_TIMEOUT_S,
        clock: Clock = SYSTEM_CLOCK,
        rng: random.Random | None = None,
        strangers: int = MOST_ON_DATA_PORT,
    ) -> None:
        self._node = node
        self._on_frame = on_frame
        self._on_receipt = on_receipt
        self._builder = Lanes(
            identity,
            self,
            on_down=on_down,
            on_up=on_up,
            write_timeout_s=write_timeout_s,
            clock=clock,
            rng=rng or random.SystemRandom(),
            strangers=strangers,
        )
        self._lanes = self._builder.by_number
        self.topology: Topology | None = None

    # -- topology

    def apply(self, topology: Topology, local_host: str) -> None:
        """Take up the routes that lead through this gateway.

        Applying the same topology again only hurries what is broken, and begins anew what
        had ended. A route that is no more, has changed, or has a neighbour at another
        address, which is another process by then, ends first.
        """
        self.topology = topology
        self._builder.apply(topology, local_host)

    def accept(self) -> Link:
        """The protocol for a connection that a neighbour opened."""
        return self._builder.accept()

    def close(self) -> None:
        """Close every connection politely and stop dialling."""
        self._builder.close()

    async def leave(self) -> None:
        """As `close`; wait, within a bound, until the neighbours have heard the goodbye."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await asyncio.gather(*(link.wait_lost() for link in self._builder.close()))

    # -- sending

    async def send_frame(self, frame: RawFrame) -> None:
        """Send down the frame's route, on the first connection that is ready.

        Raises:
            GatewayLost: the route is down, or went down meanwhile.
        """
        lane = self._lanes.get(frame.header.route)
        if lane is None:
            raise GatewayLost(self.reason_down(frame.header.route))
        if not lane.hops:
            # Source and sink in one gateway: no hop between. The sink's bound on
            # chunks under way holds, since the lead grants no more than it can take.
            self._on_frame(frame.header, memoryview(b"".join(frame.sealed)))
            await asyncio.sleep(0)
            return
        generation = lane.generation
        while True:
            # What was lost with the old connections does not go on over the new ones.
            if lane.down or lane.generation != generation:
                raise GatewayLost(lane.down or f"the path {lane.path} broke and was built anew")
            link = lane.ready_link()
            if link is not None:
                lane.count(sum(len(buffer) for buffer in frame.sealed))
                link.send_frame(frame.header, *frame.sealed)
                return
            lane.writable.clear()
            await lane.writable.wait()

    def send_receipt(self, receipt: RawReceipt) -> None:
        """Send up the receipt's route; dropped when the route is down (its source knows)."""
        lane = self._lanes.get(receipt.header.route)
        if lane is None:
            return
        if not lane.hops:
            self._on_receipt(receipt.header, memoryview(b"".join(receipt.sealed)))
        else:
            self._pass_up(lane, receipt.header, *receipt.sealed)

    @staticmethod
    def _pass_up(
        lane: Lane, header: ReceiptHeader, *sealed: bytes | bytearray | memoryview
    ) -> None:
        if lane.upstream:
            link = next((link for link in lane.upstream if link.is_ready), lane.upstream[0])
            link.send_receipt(header, *sealed)

    # -- what the links tell

    def link_greeted(self, link: Link) -> bool:
        return self._builder.greeted(link)

    def link_established(self, link: Link, event: Established) -> None:
        self._builder.established(link, event)

    def link_lost(self, link: Link, reason: str) -> None:
        self._builder.lost(link, reason)

    def dialled(self, link: Link, lane: Lane, hop: Hop, incarnation: Incarnation) -> None:
        self._builder.dialled(link, lane, hop, incarnation)

    def dial_failed(self, lane: Lane, hop: Hop, reason: str) -> None:
        self._builder.dial_failed(lane, hop, reason)

    def link_frame(self, link: Link, header: FrameHeader, sealed: memoryview) -> None:
        lane = self._lanes.get(header.route)
        if lane is None or link not in lane.upstream:
            return  # It is of connections that are gone, and being closed.
        if lane.is_at_sink:
            lane.count(len(sealed))
            self._on_frame(header, sealed)
            return
        lane.waiting.append((header, sealed, link))
        lane.forward()
        if lane.waiting:
            link.pause_reading()

    def link_receipt(self, link: Link, header: ReceiptHeader, sealed: memoryview) -> None:
        lane = self._lanes.get(header.route)
        if lane is None or link not in lane.downstream:
            return
        if lane.above is None:
            self._on_receipt(header, sealed)
        else:
            self._pass_up(lane, header, sealed)

    def link_writable(self, link: Link) -> None:
        event = link.established
        lane = self._lanes.get(event.route) if event is not None else None
        if lane is not None:
            lane.writable.set()
            lane.forward()

    # -- what others may know

    @property
    def is_connected(self) -> bool:
        """Every route through this gateway has all its connections."""
        return self.topology is not None and all(lane.is_connected for lane in self._lanes.values())

    def reason_down(self, number: int) -> str:
        """Why a route is down; empty while it is up, or is being built the first time."""
        lane = self._lanes.get(number)
        return f"{self._node} knows no route {number}" if lane is None else lane.down

    def loss(self, number: int, reason: str = "") -> GatewayLost | None:
        """A route that is down as an error; None while `reason_down` has nothing to tell.

        Args:
            reason: why, for who knows already.
        """
        lane, reason = self._lanes.get(number), reason or self.reason_down(number)
        if not reason:
            return None
        has_left = lane is not None and lane.is_ended
        return PathEnded(reason) if has_left else GatewayLost(reason)

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
