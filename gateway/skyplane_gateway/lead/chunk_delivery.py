"""Delivers chunks: chooses a route, sends the order, waits for the receipt, retries.

A chunk that is lost on its way is sent again at once by another route. This does not count as
a failed attempt; only refusals of a store do. The stall deadline limits it, and every receipt
of any chunk extends that deadline. An outcome of an earlier attempt may come late; the first
receipt of a chunk counts.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Coroutine, Mapping
from dataclasses import replace
from typing import Any, Final
from zlib import crc32

from skyplane_gateway.common.errors import (
    WAITED_FOR,
    GatewayDraining,
    GatewayLost,
    GatewayUnreachable,
    Overloaded,
    ReadBackMismatch,
    SkyplaneError,
    StaleEpoch,
    UnknownTransfer,
)
from skyplane_gateway.common.kept_properties import PLAIN, KeptProperties
from skyplane_gateway.common.objects import IF_ABSENT
from skyplane_gateway.lead.backoff import Retries
from skyplane_gateway.lead.dispatcher import Dispatcher
from skyplane_gateway.lead.in_flight import Attempt, InFlight
from skyplane_gateway.lead.route_monitor import RouteMonitor
from skyplane_gateway.lead.sink_pool import SinkPeer
from skyplane_gateway.lead.source_peers import SourcePeer
from skyplane_gateway.lead.stragglers import Stragglers
from skyplane_gateway.lead.throttle_probe import ThrottleProbe
from skyplane_gateway.source.chunk_orders import (
    ChunkKind,
    ChunkOrder,
    ChunkOutcome,
    RangeOrder,
    RangeOutcome,
)

log = logging.getLogger(__name__)

#: A long poll for outcomes returns at least this often.
_POLL_WAIT_S: Final = 10.0

#: Failed polls of a source in a row after which it is lost.
_LOST_AFTER_POLLS: Final = 2


class ChunkDelivery:
    """Sends chunks through the sources and matches receipts to them.

    Args:
        ack_deadline_s: longest silence of a route with chunks in flight; then it is down, and
            gets a trial chunk one deadline later.
        stall_deadline_s: longest time without any receipt while chunks are lost.

    Attributes:
        routes: takes routes down and up.
        in_flight: the chunks without a receipt.
        sent, resent: chunks that were sent, and those of them that were lost on their way.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        sources: Mapping[str, SourcePeer],
        sinks: Mapping[str, SinkPeer],
        *,
        ack_deadline_s: float,
        stall_deadline_s: float,
        retries: Retries,
    ) -> None:
        self._dispatcher = dispatcher
        #: Whether its chunks may go along with those of other transfers.
        self.may_share = dispatcher.has_trees
        self._sources = sources
        self._ack_deadline_s = ack_deadline_s
        self._stall_deadline_s = stall_deadline_s
        self._retries = retries
        self.in_flight = InFlight()
        self.routes = RouteMonitor(
            dispatcher, self.in_flight, sources, ack_deadline_s=ack_deadline_s, retries=retries
        )
        self._probe = ThrottleProbe(
            dispatcher, self.in_flight, sources, sinks, ack_deadline_s=ack_deadline_s
        )
        self._stragglers = Stragglers(dispatcher, self.in_flight, self._probe)
        self._chunks = itertools.count(1)
        #: Chunk that has not ended -> its newest attempt.
        self._attempts: dict[int, int] = {}
        #: Chunk -> outcome of an earlier attempt that came while no attempt was in flight.
        self._late: dict[int, tuple[ChunkOrder, ChunkOutcome]] = {}
        self.sent = 0
        self.resent = 0

    def background(self) -> list[Coroutine[Any, Any, None]]:
        """What must run beside `deliver`, until cancelled; each raises StaleEpoch."""
        per_source = (self._collect, self.routes.watch)
        return [
            *(run(node) for node in self._sources for run in per_source),
            self._stragglers.run(),
        ]

    async def deliver(
        self,
        kind: ChunkKind,
        ranges: tuple[RangeOrder, ...],
        *,
        upload_id: str = "",
        part_number: int = 0,
        kept: KeptProperties = PLAIN,
        strict_metadata: bool = False,
        was_sent: bool = False,
    ) -> tuple[list[RangeOutcome], int]:
        """Send the ranges until each is durable or has failed.

        Args:
            upload_id, part_number, kept, strict_metadata: see `ChunkOrder`.
            was_sent: an earlier lead has sent them, so sinks look for them before they write.

        Returns:
            An outcome per range, in order, and the number of attempts.

        Raises:
            GatewayLost: no chunk was delivered for the stall deadline.
            StaleEpoch, UnknownTransfer: the ends do not serve this lead.
        """
        number = next(self._chunks)
        of_part = upload_id, part_number
        order = ChunkOrder(number, 0, 0, kind, ranges, *of_part, kept, strict_metadata)
        self._attempts[order.chunk] = 0
        try:
            return await self._deliver(order, earlier_attempts=int(was_sent))
        finally:
            self._late.pop(order.chunk, None)
            self._stragglers.forget(order.chunk)
            self.in_flight.forget_ranges(order.chunk, self._attempts.pop(order.chunk))

    async def _deliver(
        self, order: ChunkOrder, earlier_attempts: int
    ) -> tuple[list[RangeOutcome], int]:
        began_s = asyncio.get_running_loop().time()
        ranges = list(order.ranges)
        ended: dict[int, RangeOutcome] = {}
        pending = list(range(len(ranges)))
        attempt, failures = earlier_attempts, 0
        while pending:
            attempt += 1
            self._attempts[order.chunk] = attempt
            wanted = tuple(ranges[index] for index in pending)
            outcome = await self._send(replace(order, attempt=attempt, ranges=wanted))
            if outcome is None:
                self._ensure_not_stalled(began_s)
                self.resent += 1
                continue
            for index, row in zip(pending, outcome.ranges, strict=True):
                ended[index] = row
                if isinstance(row.error, ReadBackMismatch):
                    # The sink removed the bad object; the object that it replaced is gone too.
                    ranges[index] = replace(ranges[index], precondition=IF_ABSENT)
            if all(isinstance(row.error, Overloaded) for row in outcome.ranges):
                # The sink is full of chunks that were given up; no fault of this chunk.
                self._ensure_not_stalled(began_s)
            else:
                # A chunk of which some objects arrive may be retried for the others.
                some_arrived = any(row.error is None for row in outcome.ranges)
                failures = 0 if some_arrived else failures + 1
            pending = [i for i in pending if self._is_retried(ended[i].error, failures)]
            if pending:
                log.info("chunk %d is retried: %s", order.chunk, ended[pending[0]].error)
                await self._retries.pause(failures)
        return [ended[index] for index in range(len(ranges))], attempt - earlier_attempts

    def _is_retried(self, error: SkyplaneError | None, failures: int) -> bool:
        if error is None or error.is_permanent or isinstance(error, WAITED_FOR):
            return False  # The gateway has waited for its store already.
        return failures < self._retries.attempts

    def _ensure_not_stalled(self, began_s: float) -> None:
        quiet_s = asyncio.get_running_loop().time() - max(self.in_flight.progress_s, began_s)
        # A route that is up gets another deadline: it may not have been tried yet.
        deadlines = 2 if self._dispatcher.has_route_up else 1
        if quiet_s >= deadlines * self._stall_deadline_s:
            raise self._dispatcher.stalled()

    async def _send(self, order: ChunkOrder) -> ChunkOutcome | None:
        """The outcome of one attempt; None when it was lost on its way."""
        loop = asyncio.get_running_loop()
        avoid = self._stragglers.rerouted.get(order.chunk)
        place = _place_of(order) if order.attempt == 1 else None
        route = await self._dispatcher.acquire(order.length, avoid, place)
        late = self._late.pop(order.chunk, None)
        if late is not None and late[0].ranges == order.ranges:
            # An earlier attempt was acknowledged while this one waited for a route.
            self._dispatcher.release(route, order.length, delivered=False)
            self._dispatcher.credit(late[0].route, order.length)
            return late[1]
        attempt = Attempt(replace(order, route=route.number), loop.time(), loop.create_future())
        self.in_flight.add(attempt)
        delivered = False
        try:
            self.sent += 1
            await self._dispatch(route.nodes[0], attempt.order)
            outcome, by_route = await self._receipt(attempt)
            is_whole = outcome is not None and all(row.error is None for row in outcome.ranges)
            delivered = is_whole and by_route == route.number
            if delivered:
                self._stragglers.durations_s.append(loop.time() - attempt.sent_s)
            elif is_whole:
                self._dispatcher.credit(by_route, order.length)
            return outcome
        finally:
            self.in_flight.remove(attempt)
            self._dispatcher.release(route, order.length, delivered=delivered)

    async def _dispatch(self, node: str, order: ChunkOrder) -> None:
        try:
            async with asyncio.timeout(self._ack_deadline_s):
                await self._sources[node].dispatch((order,))
        except TimeoutError:
            silence = f"no answer within {self._ack_deadline_s:g} s"
            self.routes.lose_source(node, GatewayUnreachable(silence))
        except (GatewayUnreachable, UnknownTransfer) as error:
            self.routes.lose_source(node, error)

    async def _receipt(self, attempt: Attempt) -> tuple[ChunkOutcome | None, int]:
        """The outcome of the attempt, and the route by which it came.

        The deadline counts from the last delivery over its route: many chunks on a slow path
        take longer than one deadline. It is also extended while the attempt waits for a store.
        """
        loop = asyncio.get_running_loop()
        number = attempt.order.route
        while not attempt.future.done():
            quiet_since_s = max(
                attempt.sent_s,
                attempt.excused_s,
                self.routes.delivered_s.get(number, attempt.sent_s),
            )
            left_s = quiet_since_s + self._ack_deadline_s - loop.time()
            if left_s > 0:
                await asyncio.wait({attempt.future}, timeout=left_s)
            elif not await self._probe.excuses(attempt) and not attempt.future.done():
                path = self._dispatcher.path(number)
                reason = f"no receipt within {self._ack_deadline_s:g} s on the path {path}"
                self.routes.take_down(number, reason, needs_trial=True)
        outcome, by_route = attempt.future.result()
        for row in outcome.ranges if outcome is not None else ():
            if isinstance(row.error, StaleEpoch):
                raise row.error
        return outcome, by_route

    # -- outcomes

    async def _collect(self, node: str) -> None:
        """Poll one source for outcomes, until cancelled.

        A source that does not answer is lost, and polled on: it may come back.
        """
        source = self._sources[node]
        after = failed = 0
        while True:
            try:
                after, outcomes = await source.outcomes(after, _POLL_WAIT_S)
            except (GatewayUnreachable, UnknownTransfer) as error:
                failed += 1
                has_answered = isinstance(error, UnknownTransfer | GatewayDraining)
                if failed == _LOST_AFTER_POLLS or has_answered:
                    self.routes.lose_source(node, error)
                # A gateway that was restarted counts from one.
                after = 0
                await self._retries.pause(failed)
                continue
            failed = 0
            self.routes.lost_sources.pop(node, None)
            for outcome in outcomes:
                self._match(outcome)

    def _match(self, outcome: ChunkOutcome) -> None:
        """Hand an outcome to the attempt that waits for it."""
        attempt_id = (outcome.chunk, outcome.attempt)
        given_up = self.in_flight.given_up.pop(attempt_id, None)
        attempt = given_up or self.in_flight.get(attempt_id)
        if attempt is None:
            return  # A repetition, or an outcome of another lead's chunk.
        number = attempt.order.route
        if any(row.error is None for row in outcome.ranges):
            self.routes.delivered(number)
        if given_up is None:
            self._settle(attempt, outcome)
        elif all(row.error is None for row in outcome.ranges):
            current = self.in_flight.current(outcome.chunk)
            if current is None and outcome.chunk in self._attempts:
                self._late[outcome.chunk] = (given_up.order, outcome)
            elif current is not None and current.order.ranges == given_up.order.ranges:
                current.resolve(outcome, number)

    def _settle(self, attempt: Attempt, outcome: ChunkOutcome) -> None:
        """Resolve the attempt, or take its route down where the outcome says that it is lost."""
        number = attempt.order.route
        for row in outcome.ranges:
            if isinstance(row.error, GatewayLost):
                self.routes.path_broke(number, row.error)
                return
            if isinstance(row.error, UnknownTransfer | GatewayDraining):
                message, refusal = row.error.message, row.error
                self.routes.take_down(number, message, needs_trial=True, refusal=refusal)
                return
            if isinstance(row.error, GatewayUnreachable):
                self.routes.take_down(number, row.error.message, needs_trial=True)
                return
        attempt.resolve(outcome, number)


def _place_of(order: ChunkOrder) -> float:
    """The same for the same range, from 0 to 1."""
    first = order.ranges[0]
    return crc32(f"{first.source_key} {first.offset}".encode(errors="surrogateescape")) / 2**32
