"""Builds the routes of a gateway, closes them when a connection breaks, and rebuilds them.

A route breaks as a whole. A broken connection has lost frames that nobody can name, so the
gateway closes all connections of the route. That tells its neighbours, and finally the
source. Then the dialers build the route again until the topology drops it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Final, Protocol

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.errors import GatewayLost, PathEnded
from skyplane_gateway.config import Topology
from skyplane_gateway.protocol.connection import Connection, Identity
from skyplane_gateway.protocol.events import Established
from skyplane_gateway.protocol.handshake import Side
from skyplane_gateway.protocol.reasons import GoodbyeReason
from skyplane_gateway.transport.dialer import STABLE_S, Dialer
from skyplane_gateway.transport.incarnation import Incarnation
from skyplane_gateway.transport.link import Link, LinkTraffic
from skyplane_gateway.transport.log_throttle import LogThrottle
from skyplane_gateway.transport.pending_connections import PendingConnections
from skyplane_gateway.transport.route import Hop, LocalRoute

log = logging.getLogger(__name__)

#: A new route counts as down after this time; dialing continues. It gives all gateways
#: time to receive the topology.
_CONNECT_TIMEOUT_S: Final = 60.0


class RouteOwner(Protocol):
    """Learns which routes are up. All methods run on the event loop."""

    def route_is_up(self, number: int) -> None:
        """All connections of the route stand, for the first time or after a loss."""

    def route_is_down(self, number: int, loss: GatewayLost) -> None:
        """Called for every loss of a route; at its sink also while it is built again."""


class RouteManager:
    """The routes through one gateway; owner of all links.

    Args:
        owner: learns which routes are up.
        traffic: takes what arrives on links.
        pending_limit: most connections without proof; never fewer than the topology has.

    Attributes:
        by_key: the routes by number and an empty text, and the hops of trees by the tree's number
            and the neighbour.
    """

    def __init__(
        self,
        identity: Identity,
        owner: RouteOwner,
        traffic: LinkTraffic,
        *,
        write_timeout_s: float,
        clock: Clock,
        rng: random.Random,
        pending_limit: int,
    ) -> None:
        self._node = identity.node
        self._identity = identity
        self._owner = owner
        self._traffic = traffic
        self._write_timeout_s = write_timeout_s
        self._rng = rng
        self._dialer = Dialer(identity, self._make_link, self._dial_failed, clock, rng)
        #: Links whose HELLO waits for an answer: their route is unknown, or not ready.
        self._unanswered: list[Link] = []
        #: (route, neighbour) -> the newest incarnation that it has dialed.
        self._newest: dict[tuple[int, str], Incarnation] = {}
        self._refusal_log = LogThrottle()
        self._pending_limit = pending_limit
        self._pending: PendingConnections[Link] = PendingConnections(pending_limit)
        self._pending_log = LogThrottle()
        self._local_host = ""
        self.by_key: dict[tuple[int, str], LocalRoute] = {}

    def _make_link(self, connection: Connection) -> Link:
        return Link(connection, self, self._traffic, self._write_timeout_s)

    # -- topology

    def apply(self, topology: Topology, local_host: str) -> None:
        """See `Router.apply`."""
        self._local_host = local_host
        routes = {
            (config.number, ""): config for config in topology.routes if self._node in config.nodes
        }
        hops = {
            (tree.number, peer): hop
            for tree in topology.trees
            for peer, hop in tree.hops_of(self._node).items()
        }
        for key in set(self.by_key) - set(routes) - set(hops):
            self._end(key, "the fleet does not have this route any more")
        for key, config in (routes | hops).items():
            addresses = topology.data_addresses
            fresh = LocalRoute(self._node, config, addresses, is_branch=key in hops)
            route = self.by_key.get(key)
            if route is not None and route.is_same(fresh):
                if route.down and not route.links:
                    route.is_ended = False
                    route.failures = 0
                    route.tear_down()
                    self._build(route, 0.0)
                continue
            if route is not None:
                self._end(key, "the fleet has changed")
            self.by_key[key] = fresh
            fresh.since_s = asyncio.get_running_loop().time()
            self._build(fresh, 0.0)
        every = [hop for route in self.by_key.values() for hop in route.hops]
        expected = sum(hop.connections for hop in every if not hop.is_dialed)
        self._pending.limit = max(self._pending_limit, expected)

    def find(self, number: int, peer: str = "") -> LocalRoute | None:
        """The route of that number, or the hop to that neighbour in the tree of that number."""
        return self.by_key.get((number, "")) or self.by_key.get((number, peer))

    def _end(self, key: tuple[int, str], reason: str) -> None:
        route = self.by_key.pop(key)
        if not route.is_ended:
            route.is_ended = True
            self.break_route(route, reason)

    def _build(self, route: LocalRoute, delay_s: float) -> None:
        """Start with the downstream hop; the upstream hop follows when that is complete."""
        hop = route.downstream_hop or route.upstream_hop
        if hop is not None and hop.is_dialed:
            self._dialer.start(route, hop, self._local_host, delay_s)
        self._answer_hellos()

    def close(self) -> tuple[Link, ...]:
        """Close every connection with GOODBYE and stop dialing; returns the closing links."""
        text = f"{self._node} is ending"
        links, self._unanswered = self._unanswered, []
        for route in self.by_key.values():
            route.is_ended = True
            route.down = route.down or text
            links += route.tear_down()
        for link in links:
            link.close(GoodbyeReason.DONE, text)
        return tuple(links)

    # -- links

    def accept(self) -> Link:
        """The protocol of a connection that a neighbour opened."""
        connection = Connection.accept(self._identity, nonce=self._rng.randbytes(16))
        link = self._make_link(connection)
        self._evict(self._pending.connected(link))
        return link

    def _evict(self, link: Link | None) -> None:
        if link is None:
            return
        suffix = self._pending_log.suffix(asyncio.get_running_loop().time())
        if suffix is not None:
            log.warning(
                "%d connections without proof: the oldest is closed%s", len(self._pending), suffix
            )
        link.abort("closed to make room for others, without proof so far")

    def hello_received(self, link: Link) -> bool:
        self._evict(self._pending.speaks(link))
        if self._may_answer(link):
            return True
        # The link waits until its route is ready or its dialer gives up. An accepted
        # neighbour may rely on everything further downstream.
        self._unanswered.append(link)
        return False

    def _may_answer(self, link: Link) -> bool:
        route = self.find(link.hello.route, link.hello.node)
        if route is None or route.is_ended:
            return False
        return self._accepts_upstream(route) or link.hello.side is Side.DOWNSTREAM

    def _accepts_upstream(self, route: LocalRoute) -> bool:
        return route.accepts_upstream and self._has_branch(route)

    def _has_branch(self, route: LocalRoute) -> bool:
        """Whether the tree that the route follows is up from here to the next gateway.

        So a route that is up says that frames of its tree reach its sink.
        """
        hop, tree = route.downstream_hop, route.config.tree
        if hop is None or tree is None:
            return True
        branch = self.by_key.get((tree, hop.peer))
        return branch is not None and branch.is_complete

    def _followers(self, branch: LocalRoute) -> list[LocalRoute]:
        """The routes that follow a tree over this hop, if it is one, down to their sinks."""
        hop = branch.downstream_hop if branch.is_branch else None
        if hop is None:
            return []
        return [
            route
            for route in self.by_key.values()
            if route.config.tree == branch.number
            and route.downstream_hop is not None
            and route.downstream_hop.peer == hop.peer
        ]

    def _answer_hellos(self) -> None:
        unanswered, self._unanswered = self._unanswered, []
        for link in unanswered:
            if self._may_answer(link):
                link.answer_hello()
            else:
                self._unanswered.append(link)

    def link_established(self, link: Link, event: Established) -> None:
        self._pending.remove(link)
        dial = self._dialer.pending.pop(link, None)
        if dial is None:
            self._accepted(link, event)
        elif dial.hop.incarnation == dial.incarnation:
            self._join(dial.route, dial.hop, link)
        else:
            link.close(GoodbyeReason.ROUTE_LOST, "it was dialed for connections that are gone")

    def _accepted(self, link: Link, event: Established) -> None:
        route = self.find(event.route, event.peer_node)
        hop = None
        if route is not None:
            hop = route.upstream_hop if event.peer_is_upstream else route.downstream_hop
        # Only this neighbour may dial the hop, if it is not dialed from here.
        if route is None or hop is None or hop.is_dialed or hop.peer != event.peer_node:
            link.close(GoodbyeReason.UNKNOWN_ROUTE, f"{self._node} does not expect this route")
            return
        incarnation = Incarnation.of(link.hello.nonce)
        if self._is_stale(route, hop, incarnation):
            link.close(GoodbyeReason.ROUTE_LOST, "it belongs to connections that are gone")
            return
        self._newest[route.number, hop.peer] = incarnation
        if hop.incarnation is not None and hop.incarnation != incarnation:
            self.break_route(route, f"{hop.peer} builds its connections anew")
        is_early = hop is route.upstream_hop and not self._accepts_upstream(route)
        if route.is_ended or is_early or hop.is_complete:
            link.close(GoodbyeReason.ROUTE_LOST, f"{self._node} is not ready for this route")
            return
        hop.incarnation = incarnation
        self._join(route, hop, link)

    def _is_stale(self, route: LocalRoute, hop: Hop, incarnation: Incarnation) -> bool:
        """Whether a connection belongs to an older incarnation.

        While a process is connected, an older process of the same name cannot replace it: a
        gateway that was replaced may wake up. While none is connected, either is accepted,
        because a machine's clock may have been set back.
        """
        if hop.incarnation is not None:
            return incarnation < hop.incarnation
        newest = self._newest.get((route.number, hop.peer))
        if newest is None or newest.started != incarnation.started:
            return False
        return incarnation <= newest

    def _join(self, route: LocalRoute, hop: Hop, link: Link) -> None:
        hop.links.append(link)
        route.writable.set()
        if hop is route.downstream_hop and hop.is_complete:
            for ready in (route, *self._followers(route)):
                self._open_upstream(ready)
            self._answer_hellos()
        route.forward()
        for ready in (route, *self._followers(route)):
            if ready.is_complete and not ready.is_up and self._has_branch(ready):
                self._mark_up(ready)

    def _open_upstream(self, route: LocalRoute) -> None:
        """Dial the gateway above, if the route is ready for it and it is dialed from here."""
        above = route.upstream_hop
        if (
            above is not None
            and above.is_dialed
            and above.incarnation is None
            and self._accepts_upstream(route)
        ):
            self._dialer.start(route, above, self._local_host, 0.0)

    def link_lost(self, link: Link, reason: str) -> None:
        """Break the route of a link that was part of one."""
        self._pending.remove(link)
        if link in self._unanswered:
            self._unanswered.remove(link)
        if link.peer_broke_protocol:
            suffix = self._refusal_log.suffix(asyncio.get_running_loop().time())
            if suffix is not None:
                log.warning("connection refused: %s%s", reason, suffix)
        event = link.established
        route = self.find(event.route, event.peer_node) if event is not None else None
        if event is None or route is None or link not in route.links:
            return
        if link.peer_is_done:
            text = f"{event.peer_node} closed the connection: {reason}"
            self.break_route(route, text, GoodbyeReason.DONE)
        else:
            self.break_route(route, f"the connection to {event.peer_node} broke: {reason}")

    def _dial_failed(self, route: LocalRoute, hop: Hop, reason: str) -> None:
        now_s = asyncio.get_running_loop().time()
        text = f"cannot connect to {hop.peer} at {hop.address[0]}:{hop.address[1]}: {reason}"
        if route.down:
            suffix = route.log_throttle.suffix(now_s)
            if suffix is not None:
                log.warning("the path %s is still down: %s%s", route.path, text, suffix)
        elif now_s - route.since_s >= _CONNECT_TIMEOUT_S:
            self._mark_down(route, text, logging.WARNING)

    # -- routes go up and down

    def break_route(
        self, route: LocalRoute, reason: str, goodbye: GoodbyeReason = GoodbyeReason.ROUTE_LOST
    ) -> None:
        """Close all connections of a route, and start to build it again.

        With a hop of a tree, the routes that follow the tree over it break, too.

        With `goodbye` DONE the fleet is ending: that is no failure, and nothing is rebuilt.
        """
        if route.is_up and asyncio.get_running_loop().time() - route.since_s >= STABLE_S:
            route.failures = 0
        is_failure = goodbye is not GoodbyeReason.DONE
        route.is_ended = route.is_ended or not is_failure
        text = f"{self._node} lost its part of the path {route.path}: {reason}"
        links = route.tear_down()
        for link in links:
            if is_failure:
                link.drop(goodbye, text)
            else:
                link.close(goodbye, text)
        # The source has all connections first, so frames may have come already.
        has_frames = route.is_sink and bool(links)
        level = logging.WARNING if is_failure else logging.INFO
        self._mark_down(route, text, level, has_frames=has_frames)
        if not route.is_ended:
            self._build(route, self._dialer.pause_s(route.failures))
            route.failures += 1
        for follower in self._followers(route):
            if follower.links:
                self.break_route(follower, reason, goodbye)

    def _mark_up(self, route: LocalRoute) -> None:
        route.is_up = True
        route.since_s = asyncio.get_running_loop().time()
        was_down, route.down = route.down, ""
        if was_down and route.is_logged:
            log.info("%s: the path %s is up again", self._node, route.path)
        self._owner.route_is_up(route.number)

    def _mark_down(
        self, route: LocalRoute, text: str, level: int, *, has_frames: bool = False
    ) -> None:
        was_down, route.down = route.down, text
        suffix = route.log_throttle.suffix(asyncio.get_running_loop().time())
        route.is_logged = suffix is not None
        if suffix is not None:
            log.log(level, "%s%s", text, suffix)
        route.writable.set()
        # A branch of a tree carries nothing to the sink at its upper end.
        if (not was_down or has_frames) and (route.is_sink or not route.is_branch):
            # A route that the topology dropped was not ended by a neighbour.
            loss = self.loss(route.number) if (route.number, "") in self.by_key else None
            self._owner.route_is_down(route.number, loss or GatewayLost(text))
            if route.is_sink and route.config.tree is not None:
                # What its tree brought this sink was lost with it, wherever that broke.
                self._owner.route_is_down(route.config.tree, GatewayLost(text))

    def loss(self, number: int) -> GatewayLost | None:
        """Why a route is down; None while it is up, or is built the first time."""
        route = self.by_key.get((number, ""))
        if route is None:
            return GatewayLost(f"{self._node} knows no route {number}")
        if not route.down:
            return None
        return PathEnded(route.down) if route.is_ended else GatewayLost(route.down)
