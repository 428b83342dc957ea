"""How a gateway's lanes are built, break, and are built again.

A lane breaks as a whole: one missing connection has lost frames nobody knows of, so all
the others are closed, which tells the neighbours, and so the source. Then it is built
again, by whoever dials, until it stands or the topology has no use for it any more.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from skyplane_gateway.clock import Clock
from skyplane_gateway.config import Topology
from skyplane_gateway.pending_connections import PendingConnections
from skyplane_gateway.protocol import Connection, Established, GoodbyeReason, Identity, Side
from skyplane_gateway.transport.dialer import STABLE_S, Dialler, DialOwner
from skyplane_gateway.transport.incarnation import Incarnation
from skyplane_gateway.transport.link import Link, LinkOwner
from skyplane_gateway.transport.log_throttle import LogThrottle
from skyplane_gateway.transport.route import Hop, Lane

log = logging.getLogger(__name__)

#: A lane that does not stand by then counts as down; the dialling goes on. Long enough
#: for a gateway that is still being told its topology.
_STANDS_WITHIN_S: Final = 60.0

OnDown = Callable[[int, str], None]
OnUp = Callable[[int], None]


class Lanes:
    """The lanes of one gateway.

    Args:
        identity: who this gateway is, and what it proves in the hello.
        owner: of all links; hands on to this what it is told of their coming and going.
        on_down, on_up: see `Routes`.
        write_timeout_s: of every link.
        clock: its wall time tells incarnations apart; see `incarnation`.
        rng: nonces, and jitter of the pauses.
        strangers: most connections without proof of either kind, see `PendingConnections`; never
            fewer than the topology has.

    Attributes:
        by_number: route number -> lane.
    """

    def __init__(
        self,
        identity: Identity,
        owner: DialOwner,
        *,
        on_down: OnDown,
        on_up: OnUp | None,
        write_timeout_s: float,
        clock: Clock,
        rng: random.Random,
        strangers: int,
    ) -> None:
        self._node = identity.node
        self._identity = identity
        self._owner = owner
        self._on_down = on_down
        self._on_up = on_up
        self._write_timeout_s = write_timeout_s
        self._rng = rng
        self._dialler = Dialler(identity, owner, self._make_link, clock, rng)
        #: Links whose HELLO is not answered yet: their route is unknown here, or not ready.
        self._held: list[Link] = []
        #: (route, neighbour) -> the newest incarnation that it has dialled.
        self._newest: dict[tuple[int, str], Incarnation] = {}
        self._refusals = LogThrottle()
        self._fewest_strangers = strangers
        self._strangers: PendingConnections[Link] = PendingConnections(strangers)
        self._crowds = LogThrottle()
        self._local_host = ""
        self.by_number: dict[int, Lane] = {}

    def _make_link(self, connection: Connection, owner: LinkOwner) -> Link:
        return Link(connection, owner, self._write_timeout_s)

    # -- topology

    def apply(self, topology: Topology, local_host: str) -> None:
        """See `Routes.apply`."""
        self._local_host = local_host
        ours = {route.number: route for route in topology.routes if self._node in route.nodes}
        for number in set(self.by_number) - set(ours):
            self._end(number, "it is no route of the fleet any more")
        for route in ours.values():
            fresh = Lane(self._node, route, topology.data_addresses)
            lane = self.by_number.get(route.number)
            if lane is not None and lane.is_for(fresh):
                if lane.down and not any(hop.links for hop in lane.hops):
                    self._hurry(lane)
                continue
            if lane is not None:
                self._end(route.number, "the fleet has changed")
            self.by_number[route.number] = fresh
            fresh.since_s = asyncio.get_running_loop().time()
            self._build(fresh, 0.0)
        hops = [hop for lane in self.by_number.values() for hop in lane.hops]
        expected = sum(hop.wanted for hop in hops if not hop.is_dialled)
        self._strangers.limit = max(self._fewest_strangers, expected)

    def _end(self, number: int, reason: str) -> None:
        lane = self.by_number.pop(number)
        if not lane.is_ended:
            lane.is_ended = True
            self._break(lane, reason)

    def _hurry(self, lane: Lane) -> None:
        lane.is_ended = False
        lane.setbacks = 0
        lane.tear_down()
        self._build(lane, 0.0)

    def _build(self, lane: Lane, delay_s: float) -> None:
        """Begin with the hop at the sink's side; the other follows when that one stands."""
        hop = lane.below or lane.above
        if hop is not None and hop.is_dialled:
            self._dialler.begin(lane, hop, self._local_host, delay_s)
        self._answer_held()

    def close(self) -> tuple[Link, ...]:
        """Close every connection politely and stop dialling; returns those that close now."""
        text = f"{self._node} is ending"
        links, self._held = self._held, []
        for lane in self.by_number.values():
            lane.is_ended = True
            lane.down = lane.down or text
            links += lane.tear_down()
        for link in links:
            link.close(GoodbyeReason.DONE, text)
        return tuple(links)

    # -- what becomes of links

    def accept(self) -> Link:
        """The protocol for a connection that a neighbour opened."""
        connection = Connection.accept(self._identity, nonce=self._rng.randbytes(16))
        link = self._make_link(connection, self._owner)
        self._send_away(self._strangers.came(link))
        return link

    def _send_away(self, link: Link | None) -> None:
        if link is None:
            return
        more = self._crowds.ask(asyncio.get_running_loop().time())
        if more is not None:
            log.warning(
                "%d connections have proven nothing: the oldest is closed%s",
                len(self._strangers),
                more,
            )
        link.abort("others had to be let in, and it has proven nothing")

    def greeted(self, link: Link) -> bool:
        """Whether the link's HELLO is answered now."""
        self._send_away(self._strangers.spoke(link))
        if self._may_answer(link):
            return True
        # It waits, unanswered, until its route is ready or its dialer tries anew: a
        # neighbour that is let in may rely on everything further down.
        self._held.append(link)
        return False

    def _may_answer(self, link: Link) -> bool:
        lane = self.by_number.get(link.hello.route)
        if lane is None or lane.is_ended:
            return False
        return lane.takes_upstream or link.hello.side is Side.DOWNSTREAM

    def _answer_held(self) -> None:
        held, self._held = self._held, []
        for link in held:
            if self._may_answer(link):
                link.answer()
            else:
                self._held.append(link)

    def established(self, link: Link, event: Established) -> None:
        """A neighbour that dialled has proven itself."""
        self._strangers.left(link)
        lane = self.by_number.get(event.route)
        hop = self._hop_of(lane, event) if lane is not None else None
        if lane is None or hop is None:
            link.close(GoodbyeReason.UNKNOWN_ROUTE, f"{self._node} does not expect this route")
            return
        incarnation = Incarnation.of(link.hello.nonce)
        if self._is_stale(lane, hop, incarnation):
            link.close(GoodbyeReason.ROUTE_LOST, "it belongs to connections that are gone")
            return
        self._newest[lane.number, hop.peer] = incarnation
        if hop.incarnation is not None and hop.incarnation != incarnation:
            self._break(lane, f"{hop.peer} builds its connections anew")
        if lane.is_ended or (hop is lane.above and not lane.takes_upstream) or hop.stands:
            link.close(GoodbyeReason.ROUTE_LOST, f"{self._node} is not ready for this route")
            return
        hop.incarnation = incarnation
        self._join(lane, hop, link)

    def dialled(self, link: Link, lane: Lane, hop: Hop, incarnation: Incarnation) -> None:
        """A connection that we dialled is established."""
        if hop.incarnation == incarnation:
            self._join(lane, hop, link)
        else:
            link.close(GoodbyeReason.ROUTE_LOST, "it was dialled for connections that are gone")

    def dial_failed(self, lane: Lane, hop: Hop, reason: str) -> None:
        now_s = asyncio.get_running_loop().time()
        text = f"cannot connect to {hop.where}: {reason}"
        if lane.down:
            more = lane.trouble.ask(now_s)
            if more is not None:
                log.warning("the path %s is still down: %s%s", lane.path, text, more)
        elif now_s - lane.since_s >= _STANDS_WITHIN_S:
            self._mark_down(lane, text, logging.WARNING)

    def lost(self, link: Link, reason: str) -> None:
        """A link is gone; with it, if it was part of one, its lane."""
        self._strangers.left(link)
        if link in self._held:
            self._held.remove(link)
        if link.was_refused:
            more = self._refusals.ask(asyncio.get_running_loop().time())
            if more is not None:
                log.warning("connection refused: %s%s", reason, more)
        event = link.established
        lane = self.by_number.get(event.route) if event is not None else None
        if event is None or lane is None or link not in (*lane.upstream, *lane.downstream):
            return
        if link.was_left_in_order:
            self._break(
                lane, f"{event.peer_node} closed the connection: {reason}", GoodbyeReason.DONE
            )
        else:
            self._break(lane, f"the connection to {event.peer_node} broke: {reason}")

    # -- how lanes come and go

    @staticmethod
    def _hop_of(lane: Lane, event: Established) -> Hop | None:
        """The hop that this neighbour has to dial, if there is one."""
        hop = lane.above if event.peer_is_upstream else lane.below
        if hop is None or hop.is_dialled or hop.peer != event.peer_node:
            return None
        return hop

    def _is_stale(self, lane: Lane, hop: Hop, incarnation: Incarnation) -> bool:
        """Whether a connection is of connections that were given up.

        Of two processes of one name the later one counts while it is connected: a gateway
        that was replaced and wakes up must not push its successor out. Where neither is,
        the other one is let in, since a machine's clock may have been set back.
        """
        if hop.incarnation is not None:
            return incarnation < hop.incarnation
        newest = self._newest.get((lane.number, hop.peer))
        if newest is None or newest.started != incarnation.started:
            return False
        return incarnation <= newest

    def _join(self, lane: Lane, hop: Hop, link: Link) -> None:
        hop.links.append(link)
        lane.writable.set()
        if hop is lane.below and hop.stands:
            if lane.above is not None and lane.above.is_dialled and not lane.above.links:
                self._dialler.begin(lane, lane.above, self._local_host, 0.0)
            self._answer_held()
        lane.forward()
        if lane.stands and not lane.is_up:
            self._come_up(lane)

    def _come_up(self, lane: Lane) -> None:
        lane.is_up = True
        lane.since_s = asyncio.get_running_loop().time()
        was_down, lane.down = lane.down, ""
        if was_down and lane.is_logged:
            log.info("%s: the path %s stands again", self._node, lane.path)
        if self._on_up is not None:
            self._on_up(lane.number)

    def _break(
        self, lane: Lane, reason: str, goodbye: GoodbyeReason = GoodbyeReason.ROUTE_LOST
    ) -> None:
        """End all connections of a lane, and begin to build it again.

        With `goodbye` DONE it is the fleet that is ending, which is nobody's trouble, and
        nothing is built again.
        """
        if lane.is_up and asyncio.get_running_loop().time() - lane.since_s >= STABLE_S:
            lane.setbacks = 0
        is_trouble = goodbye is not GoodbyeReason.DONE
        lane.is_ended = lane.is_ended or not is_trouble
        links = lane.tear_down()
        text = f"{self._node} lost its part of the path {lane.path}: {reason}"
        for link in links:
            if is_trouble:
                link.drop(goodbye, text)
            else:
                link.close(goodbye, text)
        self._mark_down(lane, text, logging.WARNING if is_trouble else logging.INFO)
        if not lane.is_ended:
            self._build(lane, self._dialler.pause_s(lane.setbacks))
            lane.setbacks += 1

    def _mark_down(self, lane: Lane, text: str, level: int) -> None:
        was_down, lane.down = lane.down, text
        more = lane.trouble.ask(asyncio.get_running_loop().time())
        lane.is_logged = more is not None
        if more is not None:
            log.log(level, "%s%s", text, more)
        lane.writable.set()
        if not was_down:
            self._on_down(lane.number, text)
