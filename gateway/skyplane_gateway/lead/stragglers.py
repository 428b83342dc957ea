"""Sends chunks of slow routes again over idle routes, so that a transfer ends in time."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
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
        #: Chunk -> the slow route that it was taken from, and that it is to avoid.
        self.rerouted: dict[int, int] = {}
        #: How long recent deliveries took.
        self.durations_s: deque[float] = deque(maxlen=_MEASURED)

    def forget(self, chunk: int) -> None:
        self.rerouted.pop(chunk, None)

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
                self._reroute(limit_s)

    def _slow(self, limit_s: float) -> list[Attempt]:
        """Attempts in flight for longer, for which other routes have room."""
        slow_since_s = asyncio.get_running_loop().time() - limit_s
        return [
            attempt
            for attempt in self._in_flight
            if max(attempt.sent_s, attempt.excused_s) <= slow_since_s
            and attempt.order.chunk not in self.rerouted
            and attempt.order.length <= self._dispatcher.free_bytes_beside(attempt.order.route)
            and not attempt.future.done()
        ]

    def _reroute(self, limit_s: float) -> None:
        planned_bytes = 0
        for attempt in self._slow(limit_s):
            order = attempt.order
            if order.length <= self._dispatcher.free_bytes_beside(order.route) - planned_bytes:
                log.info("chunk %d is sent again: route %d is slow", order.chunk, order.route)
                planned_bytes += order.length
                self.rerouted[order.chunk] = order.route
                self._in_flight.give_up(attempt)
