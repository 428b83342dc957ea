"""Chooses the route of each chunk, and limits the bytes in flight.

Shares follow the plan: a chunk takes the route that is furthest behind its planned share,
among the routes that are up and have room. A route that does not deliver fills its window, and
the other routes carry its share: as far as the price of all bytes stays below the job's ceiling,
while a route below it is up.

Room is counted in payload bytes without a receipt. Each sink announces how much it can hold
while it assembles chunks; its routes divide this by their shares. The source reads no chunk
before it is dispatched, so a slow sink slows the source.

All methods run on one event loop; only `acquire` waits.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from skyplane_gateway.common.errors import GatewayDraining, GatewayLost, PathEnded, SkyplaneError
from skyplane_gateway.config import Route

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _RouteState:
    """The state of one route.

    Attributes:
        down: why it is down; empty while it is up.
        refusal: the error of an end that does not serve this lead.
        is_on_trial: it takes one chunk at a time, until it has delivered one.
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
    def over(self) -> float:
        """USD per GB above the ceiling."""
        return self.route.over_ceiling_usd_per_gb


class Dispatcher:
    """Grants routes to chunks.

    Args:
        sink_capacity_bytes: sink node -> most bytes of chunks that it holds.
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
        self._states = {
            route.number: _RouteState(
                route,
                int(self._capacity[route.nodes[-1]] * route.share_gbps / totals[route.nodes[-1]]),
            )
            for route in routes
        }
        #: Routes that follow a tree, in the order of the trees.
        self._trees = sorted(
            (state for state in self._states.values() if state.route.tree is not None),
            key=lambda state: state.route.tree or 0,
        )
        self._changed = asyncio.Event()
        #: Chunks that wait for a route.
        self.waiting = 0
        self._has_dear_route = any(state.over > 0 for state in self._states.values())
        self._is_dearness_told = False
        #: When the last route went down; None while a route is up.
        self._none_up_since_s: float | None = None

    # -- chunks

    async def acquire(
        self, length: int, avoid: int | None = None, place: float | None = None
    ) -> Route:
        """Wait for a route with room for `length` bytes; `avoid` only while no other is up.

        With `place` (0 to 1) it is the route of that place in the trees of a group, while that is
        up: the leads of all its transfers choose the same tree so.

        Raises:
            GatewayLost: no route has been up for the stall deadline.
            SkyplaneError: no route has ends that serve this lead.
        """
        while True:
            refusals = [state.refusal for state in self._states.values()]
            if all(refusals) and refusals[0] is not None:
                if isinstance(refusals[0], PathEnded | GatewayDraining):
                    raise GatewayLost(f"no path is left ({self._paths_down()})")
                raise refusals[0]
            state = self._pick(length, avoid, place)
            if state is not None:
                state.assigned_bytes += length
                state.outstanding_bytes += length
                state.outstanding += 1
                self._sink_outstanding[state.sink] += length
                if self._has_dear_route and state.over < 0:
                    self._notify()  # A dear route may take a chunk after a cheap one.
                return state.route
            self.waiting += 1
            try:
                await self._wait_for_change()
            finally:
                self.waiting -= 1

    def release(self, route: Route, length: int, *, delivered: bool) -> None:
        """An attempt ended; `delivered`: its receipt came by this route."""
        state = self._states[route.number]
        state.outstanding_bytes -= length
        state.outstanding -= 1
        self._sink_outstanding[state.sink] -= length
        if delivered:
            state.delivered_bytes += length
            state.is_on_trial = False
        else:
            state.assigned_bytes -= length
        self._notify()

    def free_bytes_beside(self, number: int) -> int:
        """Bytes for which the other routes have room now."""
        left, free = self._left_below_ceiling(), 0
        # A chunk that is given up no longer counts as below the ceiling.
        own = min(0.0, self._states[number].over)
        for state in self._up():
            if state.route.number == number or state.is_on_trial:
                continue
            room = max(0, state.window_bytes - state.outstanding_bytes)
            if state.over > 0 and left < math.inf:
                room = min(room, int(left / (state.over - own)))
                left -= room * (state.over - own)
            free += room
        return free

    def credit(self, number: int, length: int) -> None:
        """A chunk that was given up on this route has arrived by it, late."""
        state = self._states[number]
        state.assigned_bytes += length
        state.delivered_bytes += length
        self._notify()

    # -- routes

    def mark_down(self, number: int, reason: str, refusal: SkyplaneError | None = None) -> None:
        """Grant this route no more until it is marked up."""
        state = self._states[number]
        state.down, state.refusal = reason, refusal
        if self._none_up_since_s is None and all(other.down for other in self._states.values()):
            self._none_up_since_s = asyncio.get_running_loop().time()
        self._notify()

    def mark_up(self, number: int, *, on_trial: bool = False) -> None:
        """Grant this route again; on trial, one chunk at a time until it has delivered one."""
        state = self._states[number]
        state.down, state.refusal, state.is_on_trial = "", None, on_trial
        self._none_up_since_s = None
        self._notify()

    @property
    def has_trees(self) -> bool:
        return bool(self._trees)

    def has_route(self, number: int) -> bool:
        return number in self._states

    @property
    def smallest_window_bytes(self) -> int:
        """Room of the route that has the least."""
        return min((state.window_bytes for state in self._states.values()), default=0)

    @property
    def has_route_up(self) -> bool:
        return self._none_up_since_s is None

    def is_down(self, number: int) -> bool:
        return bool(self._states[number].down)

    async def wait_until_down(self, numbers: Collection[int]) -> None:
        """Wait until one of the routes is down."""
        while not any(self._states[number].down for number in numbers):
            await self._changed.wait()

    def routes_from(self, node: str) -> tuple[int, ...]:
        """The routes that begin at that gateway."""
        return tuple(n for n, state in self._states.items() if state.route.nodes[0] == node)

    def ends(self, number: int) -> tuple[str, str]:
        """The route's source and sink."""
        nodes = self._states[number].route.nodes
        return nodes[0], nodes[-1]

    def path(self, number: int) -> str:
        """The route's gateways, for messages."""
        return " -> ".join(self._states[number].route.nodes)

    def reasons_down(self) -> dict[int, str]:
        """Route number -> why it is down, for those that are."""
        return {number: state.down for number, state in self._states.items() if state.down}

    def stalled(self) -> GatewayLost:
        """The error for a transfer that has stalled."""
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
        return {number: state.delivered_bytes for number, state in self._states.items()}

    # -- inside

    def _notify(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _wait_for_change(self) -> None:
        """Wait for a change; raises GatewayLost when no route is up for the stall deadline."""
        deadline_s = None
        if self._none_up_since_s is not None:
            deadline_s = self._none_up_since_s + self._stall_deadline_s
        try:
            async with asyncio.timeout_at(deadline_s):
                await self._changed.wait()
        except TimeoutError:
            raise self.stalled() from None

    def _pick(self, length: int, avoid: int | None, place: float | None) -> _RouteState | None:
        if place is not None and self._trees and not (state := self._at(place)).down:
            return state if self._has_room(state, length) else None
        left = self._left_below_ceiling()
        may = [state for state in self._up() if state.over * length <= left]
        others = [state for state in may if state.route.number != avoid]
        ready = [state for state in others or may if self._has_room(state, length)]
        return min(
            ready, key=lambda state: state.assigned_bytes / state.route.share_gbps, default=None
        )

    def _at(self, place: float) -> _RouteState:
        left = place * sum(state.route.share_gbps for state in self._trees)
        for state in self._trees[:-1]:
            left -= state.route.share_gbps
            if left < 0:
                return state
        return self._trees[-1]

    def _left_below_ceiling(self) -> float:
        """Bytes times USD per GB that a chunk may be above the ceiling: what others were below it.

        No limit while no route below the ceiling is up and delivers.
        """
        if not self._has_dear_route:
            return math.inf
        up = self._up()
        if all(state.over > 0 or state.is_on_trial for state in up):
            if up and not self._is_dearness_told:
                self._is_dearness_told = True
                log.warning("no path below the price ceiling is up: dearer ones carry its bytes")
            return math.inf
        return max(0.0, -sum(one.assigned_bytes * one.over for one in self._states.values()))

    def _up(self) -> list[_RouteState]:
        return [state for state in self._states.values() if not state.down]

    def _has_room(self, state: _RouteState, length: int) -> bool:
        if state.is_on_trial and state.outstanding:
            return False
        # A chunk that is larger than the window takes it alone.
        in_window = (
            state.outstanding_bytes == 0 or state.outstanding_bytes + length <= state.window_bytes
        )
        in_sink = self._sink_outstanding[state.sink]
        return in_window and (in_sink == 0 or in_sink + length <= self._capacity[state.sink])
