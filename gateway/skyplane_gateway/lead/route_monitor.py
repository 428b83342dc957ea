"""Decides which routes of a transfer are up."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from skyplane_gateway.common.errors import (
    GatewayDraining,
    GatewayLost,
    GatewayUnreachable,
    PathEnded,
    SkyplaneError,
    UnknownTransfer,
)
from skyplane_gateway.lead.backoff import Retries
from skyplane_gateway.lead.dispatcher import Dispatcher
from skyplane_gateway.lead.in_flight import InFlight
from skyplane_gateway.lead.source_peers import SourcePeer

log = logging.getLogger(__name__)


class RouteMonitor:
    """Takes routes down and brings them up again, for one transfer.

    Args:
        ack_deadline_s: a route that was silent gets a trial chunk after this time.

    Attributes:
        lost_sources: source node -> why it is lost.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        in_flight: InFlight,
        sources: Mapping[str, SourcePeer],
        *,
        ack_deadline_s: float,
        retries: Retries,
    ) -> None:
        self._dispatcher = dispatcher
        self._in_flight = in_flight
        self._sources = sources
        self._ack_deadline_s = ack_deadline_s
        self._retries = retries
        #: Route -> when it last delivered a chunk.
        self.delivered_s: dict[int, float] = {}
        #: Route -> when it went down, where only a trial chunk can tell whether it works: its
        #: connections are up, but it was silent or an end of it refused this lead.
        self._needs_trial_s: dict[int, float] = {}
        self.lost_sources: dict[str, str] = {}

    def delivered(self, number: int) -> None:
        """A chunk was acknowledged over the route, so it works."""
        now_s = asyncio.get_running_loop().time()
        self.delivered_s[number] = self._in_flight.progress_s = now_s
        if number in self._needs_trial_s:
            self.bring_up(number)

    def path_broke(self, number: int, loss: GatewayLost) -> None:
        """The connections of a route broke."""
        # A path that has ended is not built again.
        refusal = loss if isinstance(loss, PathEnded) else None
        self.take_down(number, loss.message, refusal=refusal)

    def take_down(
        self,
        number: int,
        reason: str,
        *,
        needs_trial: bool = False,
        refusal: SkyplaneError | None = None,
    ) -> None:
        """Grant the route no more, and give up what is in flight on it.

        Args:
            needs_trial: its connections are up; only a trial chunk can tell whether it works.
            refusal: the error of an end that does not serve this lead.
        """
        now_s = asyncio.get_running_loop().time()
        if not self._dispatcher.is_down(number):
            log.warning("route %d is down: %s", number, reason)
        if needs_trial:
            self._needs_trial_s[number] = now_s
        else:
            self._needs_trial_s.pop(number, None)
        self._dispatcher.mark_down(number, reason, refusal)
        for attempt in self._in_flight:
            # An attempt that waits for its store is not lost with a silent route.
            is_excused = attempt.excused_s > now_s - self._ack_deadline_s
            if attempt.order.route == number and not (
                needs_trial and refusal is None and is_excused
            ):
                self._in_flight.give_up(attempt)

    def bring_up(self, number: int, *, on_trial: bool = False) -> None:
        """Grant the route again: it works, or gets a trial chunk."""
        if self._dispatcher.is_down(number):
            log.info("route %d is up%s", number, " on trial" if on_trial else "")
            self._needs_trial_s.pop(number, None)
            self._dispatcher.mark_up(number, on_trial=on_trial)

    def lose_source(self, node: str, error: SkyplaneError) -> None:
        """A source does not answer, or does not serve this lead."""
        self.lost_sources[node] = error.message
        has_answered = isinstance(error, UnknownTransfer | GatewayDraining)
        for number in self._dispatcher.routes_from(node):
            self.take_down(
                number,
                f"source gateway {node} is lost: {error.message}",
                needs_trial=isinstance(error, UnknownTransfer),
                refusal=error if has_answered else None,
            )

    async def watch(self, node: str) -> None:
        """Bring routes of one source up again once it says that they are; until cancelled."""
        numbers = self._dispatcher.routes_from(node)
        attempt = 0
        while True:
            await self._dispatcher.wait_until_down(numbers)
            attempt += 1
            await self._retries.pause(attempt)
            try:
                reasons = await self._sources[node].routes()
            except GatewayUnreachable:
                continue
            for number in numbers:
                if self._dispatcher.is_down(number):
                    self._check(number, reasons.get(number, "it is no route there"))
            if not any(map(self._dispatcher.is_down, numbers)):
                attempt = 0

    def _check(self, number: int, reason: str) -> None:
        """A route is down here; `reason` is its source's, empty for up."""
        down_since_s = self._needs_trial_s.get(number)
        if reason:
            # Its connections broke as well. Once they are up, it needs no trial.
            self._needs_trial_s.pop(number, None)
        elif down_since_s is None:
            self.bring_up(number)
        elif asyncio.get_running_loop().time() >= down_since_s + self._ack_deadline_s:
            self.bring_up(number, on_trial=True)
