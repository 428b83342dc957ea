"""Which route a chunk takes, and how much may be under way.

Shares follow the plan: a chunk goes to the route that is furthest behind its planned
share, as long as that route has room. A route that does not deliver fills its window
and is passed over, so what it cannot carry goes to the others.

Room is counted in payload bytes without a receipt. Each sink announces how much it can
hold while it puts chunks together; that is divided among its routes by their shares.
What is not dispatched is not read, so a slow sink stops the source.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from skyplane_gateway.config import Route
from skyplane_gateway.errors import GatewayLost


@dataclass(slots=True)
class _Lane:
    route: Route
    window_bytes: int
    assigned_bytes: int = 0
    outstanding_bytes: int = 0
    delivered_bytes: int = 0
    down: str = field(default="")

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
    """

    def __init__(self, routes: Iterable[Route], sink_capacity_bytes: Mapping[str, int]) -> None:
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
        self._changed = asyncio.Condition()

    async def acquire(self, length: int) -> Route:
        """Wait for room for `length` bytes; the route it was granted on.

        Raises:
            GatewayLost: a route is down, so the plan cannot be carried out.
        """
        async with self._changed:
            while True:
                self._raise_if_down()
                lane = self._pick(length)
                if lane is not None:
                    lane.assigned_bytes += length
                    lane.outstanding_bytes += length
                    self._sink_outstanding[lane.sink] += length
                    return lane.route
                await self._changed.wait()

    async def release(self, route: Route, length: int, *, delivered: bool) -> None:
        """The chunk ended, with a receipt or without."""
        async with self._changed:
            lane = self._lanes[route.number]
            lane.outstanding_bytes -= length
            self._sink_outstanding[lane.sink] -= length
            if delivered:
                lane.delivered_bytes += length
            else:
                lane.assigned_bytes -= length
            self._changed.notify_all()

    async def mark_down(self, number: int, reason: str) -> None:
        """Grant nothing on this route any more, and wake everybody who waits."""
        async with self._changed:
            self._lanes[number].down = reason
            self._changed.notify_all()

    def delivered_bytes(self) -> dict[int, int]:
        """Route number -> payload bytes with a receipt."""
        return {number: lane.delivered_bytes for number, lane in self._lanes.items()}

    def _raise_if_down(self) -> None:
        for lane in self._lanes.values():
            if lane.down:
                raise GatewayLost(lane.down)

    def _pick(self, length: int) -> _Lane | None:
        ready = [lane for lane in self._lanes.values() if self._has_room(lane, length)]
        return min(ready, key=lambda lane: lane.behind, default=None)

    def _has_room(self, lane: _Lane, length: int) -> bool:
        # A chunk larger than its window still goes, alone.
        in_window = (
            lane.outstanding_bytes == 0 or lane.outstanding_bytes + length <= lane.window_bytes
        )
        held = self._sink_outstanding[lane.sink]
        return in_window and (held == 0 or held + length <= self._capacity[lane.sink])
