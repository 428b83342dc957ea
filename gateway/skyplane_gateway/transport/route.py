"""One route as one gateway sees it: its two hops, and what is on its way through."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from skyplane_gateway.config import Route
from skyplane_gateway.protocol import FrameHeader, Side
from skyplane_gateway.transport.incarnation import Incarnation
from skyplane_gateway.transport.link import Link
from skyplane_gateway.transport.log_throttle import LogThrottle

Address = tuple[str, int]


@dataclass(slots=True)
class Hop:
    """The connections with one neighbour.

    Attributes:
        side: our own.
        wanted: how many connections there are to be.
        is_dialled: by us; the neighbour dials otherwise.
        incarnation: that of `links`; None while there is none.
    """

    peer: str
    address: Address
    side: Side
    wanted: int
    is_dialled: bool
    incarnation: Incarnation | None = None
    links: list[Link] = field(default_factory=list)

    @property
    def stands(self) -> bool:
        return len(self.links) >= self.wanted

    @property
    def where(self) -> str:
        return f"{self.peer} at {self.address[0]}:{self.address[1]}"


class Lane:
    """A route at one gateway, from its first connection to the last repair.

    It is built up from the sink: `above` (the hop to the upstream neighbour) is let in
    once `below` stands, so at the source a lane that stands stands as a whole. When one
    connection breaks all are ended; `generation` counts these endings.

    Attributes:
        down: why it is down; empty while it stands, and before it first did.
        is_ended: it is not to be built again: the fleet is ending, or has another topology.
        trouble, is_logged: bound the log, and say whether it has the last trouble.
    """

    def __init__(self, node: str, route: Route, addresses: Mapping[str, Address]) -> None:
        self.route = route
        self.place = route.nodes.index(node)
        self.above = self._hop(self.place - 1, addresses) if self.place > 0 else None
        self.below = (
            self._hop(self.place, addresses) if self.place < len(route.connections) else None
        )
        self.waiting: deque[tuple[FrameHeader, memoryview, Link]] = deque()
        self.writable = asyncio.Event()
        self.dials: set[asyncio.Task[None]] = set()
        self.down = ""
        self.is_ended = False
        self.is_up = not self.hops
        self.generation = 0
        self.setbacks = 0
        #: When it last came up, or was begun; of the event loop's clock.
        self.since_s = 0.0
        self.trouble = LogThrottle()
        self.is_logged = False
        self.frames = 0
        self.frame_bytes = 0
        self._turn = 0

    def _hop(self, index: int, addresses: Mapping[str, Address]) -> Hop:
        """The route's hop of that index, from the one of its two ends that we are."""
        route = self.route
        is_upstream = index == self.place
        peer = route.nodes[index + 1 if is_upstream else index]
        return Hop(
            peer=peer,
            address=addresses[peer],
            side=Side.UPSTREAM if is_upstream else Side.DOWNSTREAM,
            wanted=route.connections[index],
            is_dialled=is_upstream != (index in route.dialed_by_downstream),
        )

    # -- what it is

    @property
    def number(self) -> int:
        return self.route.number

    @property
    def path(self) -> str:
        return " -> ".join(self.route.nodes)

    @property
    def hops(self) -> tuple[Hop, ...]:
        """Upstream first."""
        return tuple(hop for hop in (self.above, self.below) if hop is not None)

    @property
    def role(self) -> str:
        if self.above is None:
            return "source"
        return "sink" if self.is_at_sink else "relay"

    @property
    def is_at_sink(self) -> bool:
        return self.below is None

    @property
    def upstream(self) -> list[Link]:
        return self.above.links if self.above is not None else []

    @property
    def downstream(self) -> list[Link]:
        return self.below.links if self.below is not None else []

    def is_for(self, other: Lane) -> bool:
        """The same route with its neighbours at the same addresses."""
        mine, theirs = ([(hop.peer, hop.address) for hop in lane.hops] for lane in (self, other))
        return self.route == other.route and mine == theirs

    # -- how it stands

    @property
    def stands(self) -> bool:
        return all(hop.stands for hop in self.hops)

    @property
    def is_connected(self) -> bool:
        return not self.down and self.stands

    @property
    def takes_upstream(self) -> bool:
        """Whether the upstream neighbour may be let in."""
        return not self.is_ended and (self.below is None or self.below.stands)

    def tear_down(self) -> list[Link]:
        """Forget what is connected and on its way; the links, which are to be closed."""
        links = [*self.upstream, *self.downstream]
        for hop in self.hops:
            hop.links.clear()
            hop.incarnation = None
        for dial in self.dials:
            dial.cancel()
        self.dials.clear()
        self.waiting.clear()
        self.generation += 1
        self.is_up = False
        self.writable.set()
        return links

    # -- what goes over it

    def ready_link(self) -> Link | None:
        """A downstream connection that takes a frame now; they take turns."""
        links = self.downstream
        count = len(links)
        for step in range(count):
            link = links[(self._turn + step) % count]
            if link.is_ready:
                self._turn = (self._turn + step + 1) % count
                return link
        return None

    def count(self, size: int) -> None:
        self.frames += 1
        self.frame_bytes += size

    def forward(self) -> None:
        """Pass on what waits, and read on from those it came from."""
        while self.waiting:
            link = self.ready_link()
            if link is None:
                return
            header, sealed, origin = self.waiting.popleft()
            self.count(len(sealed))
            link.send_frame(header, sealed)
            origin.resume_reading()
