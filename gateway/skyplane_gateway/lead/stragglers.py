"""Sends chunks of slow routes again over other routes, so that all routes end at the same time."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from statistics import median
from typing import Final

from skyplane_gateway.lead.dispatcher import Dispatcher
from skyplane_gateway.lead.in_flight import Attempt, InFlight
from skyplane_gateway.lead.throttle_probe import ThrottleProbe

log = logging.getLogger(__name__)

#: How often slow chunks are looked for.
_INTERVAL_S: Final = 1.0

#: Deliveries of which the median is taken, and how many it needs at least.
_MEASURED: Final = 64
_MEASURED_AT_LEAST: Final = 4

#: A chunk is slow after so many medians, and not before so many seconds.
_SLOW_MEDIANS: Final = 4.0
_SLOW_AT_LEAST_S: Final = 1.0
#: So much later than by the other routes a chunk must be expected, to be sent by one of them.
_LATER_S: Final = 1.0
#: As long on a tree: an order may be held for other transfers, and a branch hold its chunk up, for
#: 5 s each before a gateway goes on without them. Sent again, the chunk would be paid again.
_SLOW_ON_TREES_S: Final = 10.0


class Stragglers:
    """Finds slow chunks once no chunk waits for a route.

    The slow route keeps the chunk as well: its first receipt counts, by either route.
    """

    def __init__(self, dispatcher: Dispatcher, in_flight: InFlight, probe: ThrottleProbe) -> None:
        self._dispatcher = dispatcher
        self._in_flight = in_flight
        self._probe = probe
        #: Chunk -> the slow route that it was taken from.
        self._rerouted: dict[int, int] = {}
        #: How long recent deliveries took.
        self.durations_s: deque[float] = deque(maxlen=_MEASURED)

    def slow_route(self, chunk: int) -> int | None:
        """The route to avoid for that chunk."""
        return self._rerouted.get(chunk)

    def forget(self, chunk: int) -> None:
        self._rerouted.pop(chunk, None)

    async def run(self) -> None:
        """Reroute slow chunks, until cancelled."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            if self._dispatcher.waiting or len(self.durations_s) < _MEASURED_AT_LEAST:
                continue
            least_s = _SLOW_ON_TREES_S if self._dispatcher.has_trees else _SLOW_AT_LEAST_S
            limit_s = max(least_s, _SLOW_MEDIANS * median(self.durations_s))
            if slow := self._slow(limit_s):
                await self._probe.update(slow)
                for attempt in self._slow(limit_s):
                    self._reroute(attempt)

    def _slow(self, limit_s: float) -> list[Attempt]:
        """Attempts that other routes have room for and would deliver sooner; the last first.

        Those are in flight for longer than the limit, or have too much before them.
        """
        slow_since_s = asyncio.get_running_loop().time() - limit_s
        ahead: Counter[int] = Counter()
        attempts = []
        for attempt in self._in_flight:
            # A route sends its chunks one after the other. Of the oldest, most was sent.
            is_first = not ahead[attempt.order.route]
            ahead[attempt.order.route] += attempt.order.length
            attempts.append((attempt, ahead[attempt.order.route], is_first))
        slow, taken_bytes = [], 0
        for attempt, ahead_bytes, is_first in reversed(attempts):
            order, beside_bytes = attempt.order, taken_bytes + attempt.order.length
            is_late = attempt.sent_s <= slow_since_s
            if not (is_late or is_first or self._dispatcher.has_trees):
                delay_s = self._dispatcher.delay_s(order.route, ahead_bytes, beside_bytes)
                is_late = delay_s > _LATER_S
            if (
                is_late
                and attempt.excused_s <= slow_since_s
                and order.chunk not in self._rerouted
                and beside_bytes <= self._dispatcher.free_bytes_beside(order.route)
                and not attempt.future.done()
            ):
                taken_bytes = beside_bytes
                slow.append(attempt)
        return slow

    def _reroute(self, attempt: Attempt) -> None:
        order = attempt.order
        log.info("chunk %d is sent again: route %d is slow", order.chunk, order.route)
        self._rerouted[order.chunk] = order.route
        self._in_flight.give_up(attempt)
