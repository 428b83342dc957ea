"""One route as one gateway sees it: its two hops, and the frames that wait to be forwarded."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Final

from skyplane_gateway.common.buffers import Buffer, total_bytes
from skyplane_gateway.config import Route
from skyplane_gateway.protocol.frames import MAX_PAYLOAD_BYTES
from skyplane_gateway.protocol.handshake import Side
from skyplane_gateway.protocol.messages import FrameHeader
from skyplane_gateway.transport.incarnation import Incarnation
from skyplane_gateway.transport.link import Link
from skyplane_gateway.transport.log_throttle import LogThrottle

Address = tuple[str, int]


#: Time between two samples while there is something to send, in seconds.
SAMPLE_S: Final = 1.0
#: Bytes wait for the network if they do in one of so many connections. Of 64 connections on a full
#: line of 0.4 Gbit/s they did in 18 to 56, in 11 of 12 samples.
WAITING_PARTS: Final = 8
#: A longer time between two samples is of a route that stood still, and does not count.
_LONGEST_S: Final = 5.0

#: A connection of a hop takes so long for one frame, if the size of frames can be had.
FRAME_S: Final = 0.1
#: Bounds of that size: below, headers and the work for each frame cost too much.
SMALLEST_FRAME_BYTES: Final = 16 << 10
LARGEST_FRAME_BYTES: Final = MAX_PAYLOAD_BYTES
#: Before a rate was measured.
FIRST_FRAME_BYTES: Final = 256 << 10


class SaturationMeter:
    """Counts the times between samples in which bytes waited for the network.

    The start, the tail and times in which a store is slow are left out so.

    Attributes:
        seconds: of the times that count.
        sent_bytes: that went onto the network in these times.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sent_bytes = 0
        self._last_s = float("-inf")
        self._last_bytes: int | None = None

    def sample(self, now_s: float, on_network_bytes: int, *, waits: bool) -> None:
        """The connections have sent so many bytes since they began; `waits`: more wait there."""
        length_s, before = now_s - self._last_s, self._last_bytes
        self._last_s, self._last_bytes = now_s, on_network_bytes if waits else None
        if before is not None and waits and length_s <= _LONGEST_S and on_network_bytes > before:
            self.seconds += length_s
            self.sent_bytes += on_network_bytes - before


class Turns:
    """An event whose waiters go on in the order of their turns, the lowest first."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, asyncio.Future[None]]] = []

    def waits_before(self, turn: float) -> bool:
        return any(other < turn for other, _ in self._waiting)

    def set(self) -> None:
        for _, waiter in sorted(self._waiting, key=itemgetter(0)):
            if not waiter.done():
                waiter.set_result(None)

    async def wait(self, turn: float) -> None:
        """Wait for the next `set`."""
        entry = turn, asyncio.get_running_loop().create_future()
        self._waiting.append(entry)
        try:
            await entry[1]
        except asyncio.CancelledError:
            self.set()  # Others may have left their place to this waiter.
            raise
        finally:
            self._waiting.remove(entry)


@dataclass(slots=True)
class Hop:
    """The connections with one neighbour.

    Attributes:
        side: this gateway's side of the connections.
        connections: how many connections the hop has when it is complete.
        is_dialed: this gateway dials; otherwise the neighbour does.
        incarnation: incarnation of `links`; None while there are none.
    """

    peer: str
    address: Address
    side: Side
    connections: int
    is_dialed: bool
    incarnation: Incarnation | None = None
    links: list[Link] = field(default_factory=list)

    @property
    def is_complete(self) -> bool:
        return len(self.links) >= self.connections


class LocalRoute:
    """A route at one gateway, from its first connection to its last repair.

    A route is built from the sink: a gateway accepts its upstream neighbour only when its
    downstream hop is complete. So a route that is complete at its source is complete
    everywhere. When one connection breaks, all are closed; `generation` counts that.

    Attributes:
        config: the route in the topology.
        down: why the route is down; empty while it is up, or is built the first time.
        is_ended: do not build it again: the fleet ends, or the topology has changed.
        failures: failures in a row, for the pause before the next attempt.
        log_throttle, is_logged: limit the log, and say whether the last failure is in it.
        saturation: the times in which bytes waited for the network to the next hop.
        frame_bytes_wanted: payload of a frame, by the rate of a connection to the next hop.
        is_branch: it is one hop of a tree; see `Fork`.
        taken: called when frames have left `waiting`.
    """

    def __init__(
        self, node: str, config: Route, addresses: Mapping[str, Address], *, is_branch: bool = False
    ) -> None:
        self.config = config
        self.is_branch = is_branch
        self.taken: Callable[[], None] = lambda: None
        self._index = config.nodes.index(node)
        is_source, is_sink = self._index == 0, self._index == len(config.connections)
        self.upstream_hop = None if is_source else self._hop(self._index - 1, addresses)
        self.downstream_hop = None if is_sink else self._hop(self._index, addresses)
        self.waiting: deque[tuple[FrameHeader, tuple[Buffer, ...], Link | None]] = deque()
        self.writable = Turns()
        self.dials: set[asyncio.Task[None]] = set()
        self.down = ""
        self.is_ended = False
        self.is_up = not self.hops
        self.generation = 0
        self.failures = 0
        #: When it last came up, or was begun, on the event loop's clock.
        self.since_s = 0.0
        self.log_throttle = LogThrottle()
        self.is_logged = False
        self.frames = 0
        self.frame_bytes = 0
        self.saturation = SaturationMeter()
        self.frame_bytes_wanted = FIRST_FRAME_BYTES
        self._sampled: tuple[float, Mapping[Link, int]] | None = None
        self._sampler: asyncio.TimerHandle | None = None
        self._next_link = 0

    def _hop(self, index: int, addresses: Mapping[str, Address]) -> Hop:
        is_upstream = index == self._index
        peer = self.config.nodes[index + 1 if is_upstream else index]
        return Hop(
            peer=peer,
            address=addresses[peer],
            side=Side.UPSTREAM if is_upstream else Side.DOWNSTREAM,
            connections=self.config.connections[index],
            is_dialed=is_upstream != (index in self.config.dialed_by_downstream),
        )

    @property
    def number(self) -> int:
        return self.config.number

    @property
    def path(self) -> str:
        return " -> ".join(self.config.nodes)

    @property
    def hops(self) -> tuple[Hop, ...]:
        """Upstream first."""
        return tuple(hop for hop in (self.upstream_hop, self.downstream_hop) if hop is not None)

    @property
    def is_source(self) -> bool:
        return self.upstream_hop is None

    @property
    def is_sink(self) -> bool:
        return self.downstream_hop is None

    @property
    def role(self) -> str:
        if self.is_source:
            return "source"
        return "sink" if self.is_sink else "relay"

    @property
    def upstream_links(self) -> list[Link]:
        return self.upstream_hop.links if self.upstream_hop is not None else []

    @property
    def downstream_links(self) -> list[Link]:
        return self.downstream_hop.links if self.downstream_hop is not None else []

    @property
    def links(self) -> list[Link]:
        return [*self.upstream_links, *self.downstream_links]

    def is_same(self, other: LocalRoute) -> bool:
        """Whether it is the same route with its neighbours at the same addresses."""
        mine, theirs = ([(hop.peer, hop.address) for hop in route.hops] for route in (self, other))
        return self.config == other.config and mine == theirs

    @property
    def is_complete(self) -> bool:
        return all(hop.is_complete for hop in self.hops)

    @property
    def is_connected(self) -> bool:
        return not self.down and self.is_complete

    @property
    def accepts_upstream(self) -> bool:
        """Whether the upstream neighbour may connect."""
        return not self.is_ended and (
            self.downstream_hop is None or self.downstream_hop.is_complete
        )

    def tear_down(self) -> list[Link]:
        """Drop all connections and waiting frames; returns the links, to be closed."""
        links = self.links
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
        self.taken()
        return links

    def await_receipts_taken(self, origin: Link) -> None:
        """Read no more from `origin`, which causes receipts, while the hop above takes none."""
        links = self.upstream_links
        if links and not any(link.is_ready for link in links):
            origin.pause_reading()

    def receipts_taken(self, link: Link) -> None:
        """Read again what causes receipts: `link` takes bytes again."""
        if link in self.upstream_links:
            for origin in self.upstream_links if self.is_sink else self.downstream_links:
                origin.resume_reading()

    def ready_link(self, turn: float = 0.0) -> Link | None:
        """A downstream connection that takes a frame now, round robin.

        None while frames of a lower turn wait.
        """
        if self.writable.waits_before(turn):
            return None
        links = self.downstream_links
        count = len(links)
        for step in range(count):
            link = links[(self._next_link + step) % count]
            if link.is_ready:
                self._next_link = (self._next_link + step + 1) % count
                return link
        return None

    def offer_more(self) -> None:
        """Let a frame that waited for the one just sent take another connection."""
        if self.writable.waits_before(math.inf) and any(
            link.is_ready for link in self.downstream_links
        ):
            self.writable.set()

    def count_frame(self, size_bytes: int) -> None:
        """A frame is about to be sent, or was received at the sink."""
        self.frames += 1
        self.frame_bytes += size_bytes
        if self._sampler is None and not self.is_sink:
            loop = asyncio.get_running_loop()
            self._sampler = loop.call_later(SAMPLE_S, self._sample, loop, self.frames)

    def _sample(self, loop: asyncio.AbstractEventLoop, frames_before: int) -> None:
        """Look whether bytes wait for the network, and again while there is something to send."""
        unsent = {link: link.unsent_bytes() for link in self.downstream_links}
        sent = {link: link.sent_bytes - count for link, count in unsent.items()}
        waiting = sum(map(bool, unsent.values()))
        waits = WAITING_PARTS * waiting >= len(unsent) > 0
        self.saturation.sample(loop.time(), sum(sent.values()), waits=waits)
        self._fit_frames(loop.time(), sent, unsent)
        self._sampler = None
        if waiting or self.frames > frames_before:
            self._sampler = loop.call_later(SAMPLE_S, self._sample, loop, self.frames)

    def _fit_frames(
        self, now_s: float, sent: Mapping[Link, int], unsent: Mapping[Link, int]
    ) -> None:
        """Frames as large as a connection sends in `FRAME_S`; a slow store makes none smaller.

        Connections that share a line have very different rates: the queue of each is by its own.
        """
        before, self._sampled = self._sampled, (now_s, sent)
        if before is None or not 0 < now_s - before[0] <= _LONGEST_S:
            return
        earlier_s, earlier = before
        rates = {
            link: (count - earlier.get(link, count)) / (now_s - earlier_s)
            for link, count in sent.items()
        }
        if sum(rates.values()) <= 0:
            return
        fitting = _frame_of(sum(rates.values()) / len(rates))
        if WAITING_PARTS * sum(map(bool, unsent.values())) < len(unsent):
            fitting = max(fitting, self.frame_bytes_wanted)
        self.frame_bytes_wanted = fitting
        for link, rate in rates.items():
            link.limit_queue(min(fitting, _frame_of(rate)) if unsent[link] else fitting)

    def forward(self) -> None:
        """Send waiting frames downstream, and read again from the links they came by."""
        while self.waiting:
            link = self.ready_link()
            if link is None:
                return
            header, sealed, origin = self.waiting.popleft()
            self.count_frame(total_bytes(sealed))
            link.send_frame(header, *sealed)
            # What arrived by one connection while it was not read lies side by side.
            if origin is not None and not (self.waiting and self.waiting[0][2] is origin):
                origin.resume_reading()


def _frame_of(bytes_per_s: float) -> int:
    """What a connection sends in `FRAME_S`, within the bounds of a frame."""
    return min(LARGEST_FRAME_BYTES, max(SMALLEST_FRAME_BYTES, int(bytes_per_s * FRAME_S)))
