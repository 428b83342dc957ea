"""Which route a chunk takes, and how much may be under way.

Shares follow the plan: a chunk goes to the route that is furthest behind its planned
share, as long as that route is up and has room. A route that does not deliver fills its
window and is passed over, so what it cannot carry goes to the others.

Room is counted in payload bytes without a receipt. Each sink announces how much it can
hold while it puts chunks together; that is divided among its routes by their shares.
What is not dispatched is not read, so a slow sink stops the source.

All methods run on one event loop; only `acquire` waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from skyplane_gateway.config import Route
from skyplane_gateway.errors import GatewayDraining, GatewayLost, PathEnded, SkyplaneError


@dataclass(slots=True)
class _Lane:
    """A route as its chunks see it.

    `refusal` says that an end of it does not work for this lead. On trial it takes one
    chunk at a time, until one has arrived.
    """

    route: Route
    window_bytes: int
    assigned_bytes: int = 0
    outstanding_bytes: int = 0
    outstanding: int = 0
    delivered_bytes: int = 0
    down: str = ""
    refusal: SkyplaneError | None = None
    is_on_trial: bool = False

    @property
    def sink(self) -> str:
        return self.route.nodes[-1]

    @property
    def behind(self) -> float:
        """Sort key: bytes assigned per unit of planned share."""
        return self.assigned_bytes / self.route.share_gbps


class Dispatcher:
    """Grants routes to chunks.

    Args:
        routes: the fleet's routes; shares above zero.
        sink_capacity_bytes: sink node -> bytes of chunks it holds at most.
        stall_deadline_s: how long a chunk waits while no route is up.
    """

    def __init__(
        self,
        routes: Iterable[Route],
        sink_capacity_bytes: Mapping[str, int],
        stall_deadline_s: float,
    ) -> None:
        self._stall_deadline_s = stall_deadline_s
        self._capacity = dict(sink_capacity_bytes)
        self._sink_outstanding = dict.fromkeys(self._capacity, 0)
        routes = tuple(routes)
        totals: dict[str, float] = {}
        for route in routes:
            totals[route.nodes[-1]] = totals.get(route.nodes[-1], 0.0) + route.share_gbps
        self._lanes = {
            route.number: _Lane(
                route,
                int(self._capacity[route.nodes[-1]] * route.share_gbps / totals[route.nodes[-1]]),
            )
            for route in routes
        }
        self._changed = asyncio.Event()
        #: Chunks that wait for room.
        self.waiting = 0
        #: When the last of the routes went down; None while one is up.
        self._none_up_since_s: float | None = None

    # -- chunks

    async def acquire(self, length: int, avoid: int | None = None) -> Route:
        """Wait for room for `length` bytes; the route it was granted on.

        Args:
            avoid: a route that is not to be taken while another one is up.

        Raises:
            GatewayLost: no route has been up for the stall deadline.
            SkyplaneError: the ends of all routes refuse to work for this lead.
        """
        while True:
            self._raise_if_all_refuse()
            lane = self._pick(length, avoid)
            if lane is not None:
                lane.assigned_bytes += length
                lane.outstanding_bytes += length
                lane.outstanding += 1
                self._sink_outstanding[lane.sink] += length
                return lane.route
            self.waiting += 1
            try:
                await self._news()
            finally:
                self.waiting -= 1

    def release(self, route: Route, length: int, *, delivered: bool) -> None:
        """The chunk ended, with a receipt that came by this route or without."""
        lane = self._lanes[route.number]
        lane.outstanding_bytes -= length
        lane.outstanding -= 1
        self._sink_outstanding[lane.sink] -= length
        if delivered:
            lane.delivered_bytes += length
            lane.is_on_trial = False
        else:
            lane.assigned_bytes -= length
        self._tell()

    def room_beside(self, number: int) -> int:
        """Bytes that could go at once by routes other than that one."""
        return sum(
            max(0, lane.window_bytes - lane.outstanding_bytes)
            for lane in self._others(number)
            if not lane.is_on_trial
        )

    def credit(self, number: int, length: int) -> None:
        """A chunk that had been given up on this route did arrive by it, late."""
        lane = self._lanes[number]
        lane.assigned_bytes += length
        lane.delivered_bytes += length

    # -- routes

    def mark_down(self, number: int, reason: str, refusal: SkyplaneError | None = None) -> None:
        """Grant nothing on this route until it is marked up."""
        lane = self._lanes[number]
        lane.down, lane.refusal = reason, refusal
        if self._none_up_since_s is None and all(other.down for other in self._lanes.values()):
            self._none_up_since_s = asyncio.get_running_loop().time()
        self._tell()

    def mark_up(self, number: int, *, on_trial: bool = False) -> None:
        """Grant this route again; on trial, a single chunk until one has arrived."""
        lane = self._lanes[number]
        lane.down, lane.refusal, lane.is_on_trial = "", None, on_trial
        self._none_up_since_s = None
        self._tell()

    def knows(self, number: int) -> bool:
        return number in self._lanes

    @property
    def has_route_up(self) -> bool:
        return self._none_up_since_s is None

    def is_down(self, number: int) -> bool:
        return bool(self._lanes[number].down)

    async def until_down(self, numbers: Collection[int]) -> None:
        """Wait until one of these routes is down."""
        while not any(self._lanes[number].down for number in numbers):
            await self._changed.wait()

    def beginning_at(self, node: str) -> tuple[int, ...]:
        """The routes whose source is that gateway."""
        return tuple(n for n, lane in self._lanes.items() if lane.route.nodes[0] == node)

    def ends(self, number: int) -> tuple[str, str]:
        """The route's source and sink."""
        nodes = self._lanes[number].route.nodes
        return nodes[0], nodes[-1]

    def path(self, number: int) -> str:
        """The route's gateways, in words."""
        return " -> ".join(self._lanes[number].route.nodes)

    def reasons_down(self) -> dict[int, str]:
        """Route number -> why it is down, for those that are."""
        return {number: lane.down for number, lane in self._lanes.items() if lane.down}

    def stalled(self) -> GatewayLost:
        """What to say when nothing has moved for too long."""
        return GatewayLost(
            f"nothing has arrived on any path within {self._stall_deadline_s:g} s"
            f" ({self._paths_down()})"
        )

    def _paths_down(self) -> str:
        return "; ".join(
            f"{self.path(number)}: {reason}" for number, reason in self.reasons_down().items()
        )

    def delivered_bytes(self) -> dict[int, int]:
        """Route number -> payload bytes with a receipt."""
        return {number: lane.delivered_bytes for number, lane in self._lanes.items()}

    # -- inside

    def _tell(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _news(self) -> None:
        """Wait for a change, as long as one can still be hoped for."""
        deadline_s = None
        if self._none_up_since_s is not None:
            deadline_s = self._none_up_since_s + self._stall_deadline_s
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._changed.wait()
        except TimeoutError:
            raise self.stalled() from None

    def _raise_if_all_refuse(self) -> None:
        refusals = [lane.refusal for lane in self._lanes.values()]
        if all(refusals) and refusals[0] is not None:
            raise self._refused(refusals[0])

    def _refused(self, refusal: SkyplaneError) -> SkyplaneError:
        """What the first path refuses with, or that all have ended: then the fleet is broken,
        whatever the lead might hope for."""
        if isinstance(refusal, PathEnded | GatewayDraining):
            return GatewayLost(f"no path is left ({self._paths_down()})")
        return refusal

    def _pick(self, length: int, avoid: int | None) -> _Lane | None:
        ready = [lane for lane in self._others(avoid) or self._up() if self._has_room(lane, length)]
        return min(ready, key=lambda lane: lane.behind, default=None)

    def _up(self) -> list[_Lane]:
        return [lane for lane in self._lanes.values() if not lane.down]

    def _others(self, number: int | None) -> list[_Lane]:
        return [lane for lane in self._up() if lane.route.number != number]

    def _has_room(self, lane: _Lane, length: int) -> bool:
        if lane.down or (lane.is_on_trial and lane.outstanding):
            return False
        # A chunk larger than its window still goes, alone.
        in_window = (
            lane.outstanding_bytes == 0 or lane.outstanding_bytes + length <= lane.window_bytes
        )
        held = self._sink_outstanding[lane.sink]
        return in_window and (held == 0 or held + length <= self._capacity[lane.sink])
