"""Gets a chunk to the destination: route, order, receipt, and again when that can help.

A chunk that loses its way goes again at once by another route, and that costs it no
attempt: only the store's own refusals do. What bounds it is the stall deadline, which
any receipt anywhere puts off. The results of an earlier sending may come late; the first
receipt of a chunk is the one that counts.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from skyplane_gateway.chunk_orders import (
    ChunkKind,
    ChunkOrder,
    ChunkOutcome,
    RangeOrder,
    RangeOutcome,
)
from skyplane_gateway.errors import (
    WAITED_FOR,
    GatewayDraining,
    GatewayLost,
    GatewayUnreachable,
    Overloaded,
    PathEnded,
    ReadBackMismatch,
    SkyplaneError,
    StaleEpoch,
    UnknownTransfer,
)
from skyplane_gateway.lead.dispatcher import Dispatcher
from skyplane_gateway.lead.in_flight import Identity, Pace, Sending
from skyplane_gateway.lead.peers import SinkPeer, SourcePeer
from skyplane_gateway.lead.retry import MAX_ATTEMPTS, pause_s
from skyplane_gateway.lead.throttle_probe import StoreWaits
from skyplane_gateway.objects import IF_ABSENT

log = logging.getLogger(__name__)

#: A long poll for outcomes returns at least this often.
_POLL_WAIT_S: Final = 10.0

#: Polls of a source in a row that fail before what it had under way goes again.
_LOST_AFTER_POLLS: Final = 2

#: Sendings that lost their way and whose late results are still understood.
_REMEMBERED: Final = 4096

#: How often it is looked for slow chunks.
_LOOKED_AT_S: Final = 1.0

#: An end that is asked what waits there for its store answers by then, or not at all.
_ASKED_WITHIN_S: Final = 5.0


class Courier:
    """Sends chunks through the sources and matches receipts to them.

    Args:
        dispatcher: grants routes.
        sources: source node -> peer.
        sinks: sink node -> peer; asked what waits there for the store.
        ack_deadline_s: longest silence of a route that has chunks to deliver; then it is
            down, and tried again one such time later.
        stall_deadline_s: how long no chunk at all may arrive while some lose their way.
        rng: of the pauses.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        sources: Mapping[str, SourcePeer],
        sinks: Mapping[str, SinkPeer],
        *,
        ack_deadline_s: float,
        stall_deadline_s: float,
        rng: random.Random,
    ) -> None:
        self._dispatcher = dispatcher
        self._sources = sources
        self._ack_deadline_s = ack_deadline_s
        self._stall_deadline_s = stall_deadline_s
        self._rng = rng
        within_s = min(_ASKED_WITHIN_S, ack_deadline_s)
        self._store_waits = StoreWaits(sources, sinks, within_s=within_s)
        self._chunks = itertools.count(1)
        self._waiting: dict[Identity, Sending] = {}
        self._current: dict[int, Sending] = {}
        #: Chunks that are not at their end -> the newest attempt; and those that came home
        #: late, with no sending of theirs under way that could be told.
        self._under_way: dict[int, int] = {}
        self._arrived: dict[int, tuple[ChunkOrder, ChunkOutcome]] = {}
        #: Chunk -> the slow route that it was taken from.
        self._taken: dict[int, int] = {}
        self._pace = Pace()
        self._lost: OrderedDict[Identity, Sending] = OrderedDict()
        #: Route -> when it last delivered something.
        self._heard_s: dict[int, float] = {}
        #: When a chunk last arrived, or was last known to wait for its store.
        self._progress_s = 0.0
        #: Route -> since when it rests, though its connections may be good: it was silent,
        #: or an end of it refused to work for us.
        self._rests_since_s: dict[int, float] = {}
        self.lost_sources: dict[str, str] = {}
        self.sendings = 0
        self.resent = 0

    @property
    def progress_s(self) -> float:
        """When something last arrived, or was last known to be in good hands."""
        return self._progress_s

    # -- chunks

    async def deliver(
        self,
        kind: ChunkKind,
        ranges: tuple[RangeOrder, ...],
        *,
        upload_id: str = "",
        part_number: int = 0,
    ) -> tuple[list[RangeOutcome], int]:
        """Send the ranges until each is durable or cannot be helped.

        Returns:
            An outcome per range, in order, and the number of sendings.

        Raises:
            GatewayLost: no chunk has found a way for the stall deadline.
            StaleEpoch, UnknownTransfer: the ends have let go of this lead.
        """
        chunk = next(self._chunks)
        self._under_way[chunk] = 0
        try:
            return await self._deliver(chunk, kind, ranges, upload_id, part_number)
        finally:
            self._arrived.pop(chunk, None)
            self._taken.pop(chunk, None)
            # A late receipt still speaks for its route, and for nothing else: thousands of
            # lost sendings must not keep the names of all their objects.
            for attempt in range(1, self._under_way.pop(chunk) + 1):
                lost = self._lost.get((chunk, attempt))
                if lost is not None:
                    lost.order = replace(lost.order, ranges=())

    async def _deliver(
        self,
        chunk: int,
        kind: ChunkKind,
        wanted: tuple[RangeOrder, ...],
        upload_id: str,
        part_number: int,
    ) -> tuple[list[RangeOutcome], int]:
        began_s = asyncio.get_running_loop().time()
        ranges = list(wanted)
        ended: dict[int, RangeOutcome] = {}
        pending = list(range(len(ranges)))
        attempt = fruitless = 0
        while pending:
            attempt += 1
            self._under_way[chunk] = attempt
            order = ChunkOrder(
                chunk=chunk,
                attempt=attempt,
                route=0,
                kind=kind,
                ranges=tuple(ranges[index] for index in pending),
                upload_id=upload_id,
                part_number=part_number,
            )
            outcome = await self._send(order)
            if outcome is None:
                self._ensure_not_stalled(began_s)
                self.resent += 1
                continue
            for index, row in zip(pending, outcome.ranges, strict=True):
                ended[index] = row
                if isinstance(row.error, ReadBackMismatch):
                    # What was written was removed, and what it had replaced is gone too.
                    ranges[index] = replace(ranges[index], precondition=IF_ABSENT)
            if all(isinstance(row.error, Overloaded) for row in outcome.ranges):
                # The sink holds what others gave up; that says nothing of this chunk.
                self._ensure_not_stalled(began_s)
            else:
                # A chunk that brings some of its objects home may go on for the others.
                brought = any(row.error is None for row in outcome.ranges)
                fruitless = 0 if brought else fruitless + 1
            pending = [index for index in pending if _goes_again(ended[index].error, fruitless)]
            if pending:
                log.info("chunk %d goes again: %s", chunk, ended[pending[0]].error)
                await asyncio.sleep(pause_s(fruitless, self._rng))
        return [ended[index] for index in range(len(ranges))], attempt

    def _ensure_not_stalled(self, began_s: float) -> None:
        quiet_s = asyncio.get_running_loop().time() - max(self._progress_s, began_s)
        # A route that is up has not had its turn; but one that only seems to be has an end.
        patience = 2 if self._dispatcher.has_route_up else 1
        if quiet_s >= patience * self._stall_deadline_s:
            raise self._dispatcher.stalled()

    async def _send(self, order: ChunkOrder) -> ChunkOutcome | None:
        """What became of one sending; None when it lost its way."""
        route = await self._dispatcher.acquire(order.length, self._taken.get(order.chunk))
        arrived = self._arrived.pop(order.chunk, None)
        if arrived is not None and arrived[0].ranges == order.ranges:
            # An earlier sending has come home while this one waited for room.
            self._dispatcher.release(route, order.length, delivered=False)
            self._dispatcher.credit(arrived[0].route, order.length)
            return arrived[1]
        future: asyncio.Future[tuple[ChunkOutcome | None, int]]
        future = asyncio.get_running_loop().create_future()
        began_s = asyncio.get_running_loop().time()
        sending = Sending(replace(order, route=route.number), began_s, future)
        self._waiting[sending.identity] = self._current[order.chunk] = sending
        delivered = False
        try:
            self.sendings += 1
            await self._dispatch(route.nodes[0], sending.order)
            outcome, heard_by = await self._receipt(sending)
            is_whole = outcome is not None and all(row.error is None for row in outcome.ranges)
            delivered = is_whole and heard_by == route.number
            if delivered:
                self._pace.arrived(asyncio.get_running_loop().time() - began_s)
            elif is_whole:
                self._dispatcher.credit(heard_by, order.length)
            return outcome
        finally:
            self._waiting.pop(sending.identity, None)
            if self._current.get(order.chunk) is sending:
                del self._current[order.chunk]
            self._dispatcher.release(route, order.length, delivered=delivered)

    async def _dispatch(self, node: str, order: ChunkOrder) -> None:
        try:
            async with asyncio.timeout(self._ack_deadline_s):
                await self._sources[node].dispatch((order,))
        except TimeoutError:
            silence = f"no answer within {self._ack_deadline_s:g} s"
            self._lose_source(node, GatewayUnreachable(silence))
        except (GatewayUnreachable, UnknownTransfer) as error:
            self._lose_source(node, error)

    async def _receipt(self, sending: Sending) -> tuple[ChunkOutcome | None, int]:
        """What became of the chunk; waits on while its route delivers others.

        A full window on a slow path takes longer than one deadline, and that is no loss;
        nor is it one while an end of the route waits for a store that throttles.
        """
        loop = asyncio.get_running_loop()
        number, began_s = sending.order.route, sending.sent_s
        while not sending.future.done():
            quiet_since_s = max(began_s, sending.excused_s, self._heard_s.get(number, began_s))
            left_s = quiet_since_s + self._ack_deadline_s - loop.time()
            if left_s > 0:
                await asyncio.wait({sending.future}, timeout=left_s)
                continue
            if await self._is_excused(sending) or sending.future.done():
                continue
            self.lose(
                number,
                f"no receipt within {self._ack_deadline_s:g} s on the path "
                f"{self._dispatcher.path(number)}",
                rests=True,
            )
        outcome, heard_by = sending.future.result()
        for row in outcome.ranges if outcome is not None else ():
            if isinstance(row.error, StaleEpoch):
                raise row.error  # Another lead is in charge.
        return outcome, heard_by

    async def _is_excused(self, sending: Sending) -> bool:
        """Whether an end of its route says that it only waits for its store."""
        asked_s = asyncio.get_running_loop().time()
        await self._excuse({sending.order.route})
        return sending.excused_s >= asked_s

    async def _excuse(self, numbers: Iterable[int]) -> None:
        """Ask the ends of these routes, and let those wait on whom they name."""
        asked = {self._dispatcher.ends(number) for number in numbers}
        for ends in sorted(asked):
            named = await self._store_waits.between(*ends)
            now_s = asyncio.get_running_loop().time()
            for sending in self._waiting.values():
                is_theirs = self._dispatcher.ends(sending.order.route) == ends
                if is_theirs and sending.excuse(named, now_s):
                    self._progress_s = now_s

    # -- routes

    def route_is_down(self, number: int, loss: GatewayLost) -> None:
        """A route of the lead's own gateway broke."""
        self.lose(number, loss.message, refusal=_for_good(loss))

    def lose(
        self,
        number: int,
        reason: str,
        *,
        rests: bool = False,
        refusal: SkyplaneError | None = None,
    ) -> None:
        """A route is down: grant it no more, and send again what was under way on it.

        Args:
            rests: it looks connected, so that only a trial can tell whether it works.
            refusal: what an end of it said that does not work for this lead.
        """
        if not self._dispatcher.is_down(number):
            log.warning("route %d is down: %s", number, reason)
        if rests:
            self._rests_since_s[number] = asyncio.get_running_loop().time()
        else:
            self._rests_since_s.pop(number, None)
        self._dispatcher.mark_down(number, reason, refusal)
        quiet_since_s = asyncio.get_running_loop().time() - self._ack_deadline_s
        for sending in [row for row in self._waiting.values() if row.order.route == number]:
            # Silence is none of those who have an excuse for it.
            if not rests or refusal is not None or sending.excused_s <= quiet_since_s:
                self._give_up(sending)

    def _give_up(self, sending: Sending) -> None:
        del self._waiting[sending.identity]
        self._lost[sending.identity] = sending
        while len(self._lost) > _REMEMBERED:
            self._lost.popitem(last=False)
        sending.resolve(None, sending.order.route)

    def bring_up(self, number: int, *, on_trial: bool = False) -> None:
        """A route works again, or is to show that it does."""
        if self._dispatcher.is_down(number):
            log.info("route %d is up%s", number, " on trial" if on_trial else "")
            self._rests_since_s.pop(number, None)
            self._dispatcher.mark_up(number, on_trial=on_trial)

    def _lose_source(self, node: str, error: SkyplaneError) -> None:
        is_known = isinstance(error, UnknownTransfer | GatewayDraining)
        reason = f"source gateway {node} is lost: {error.message}"
        self.lost_sources[node] = error.message
        rests = isinstance(error, UnknownTransfer)
        for number in self._dispatcher.beginning_at(node):
            self.lose(number, reason, rests=rests, refusal=error if is_known else None)

    async def hasten(self) -> None:
        """Take chunks from slow routes once the others are idle; until cancelled.

        The slow route goes on with what it has: the first receipt counts.
        """
        while True:
            await asyncio.sleep(_LOOKED_AT_S)
            limit_s = self._pace.slow_after_s
            if self._dispatcher.waiting or limit_s is None:
                continue
            if slow := self._slow(limit_s):
                await self._excuse({row.order.route for row in slow})
                self._take_from_slow_routes(limit_s)

    def _slow(self, limit_s: float) -> list[Sending]:
        """Sendings that take longer than that, with room for them on other routes."""
        slow_since_s = asyncio.get_running_loop().time() - limit_s
        return [
            row
            for row in self._waiting.values()
            if max(row.sent_s, row.excused_s) <= slow_since_s
            and row.order.chunk not in self._taken
            and row.order.length <= self._dispatcher.room_beside(row.order.route)
            and not row.future.done()
        ]

    def _take_from_slow_routes(self, limit_s: float) -> None:
        planned_bytes = 0
        for sending in self._slow(limit_s):
            order = sending.order
            if order.length <= self._dispatcher.room_beside(order.route) - planned_bytes:
                log.info("chunk %d is taken from the slow route %d", order.chunk, order.route)
                planned_bytes += order.length
                self._taken[order.chunk] = order.route
                self._give_up(sending)

    async def watch(self, node: str) -> None:
        """Bring routes of one source up again once it says that they are; until cancelled."""
        numbers = self._dispatcher.beginning_at(node)
        attempt = 0
        while True:
            await self._dispatcher.until_down(numbers)
            attempt += 1
            await asyncio.sleep(pause_s(attempt, self._rng))
            try:
                reasons = await self._sources[node].routes()
            except GatewayUnreachable:
                continue
            for number in numbers:
                if self._dispatcher.is_down(number):
                    self._reconsider(number, reasons.get(number, "it is no route there"))
            if not any(map(self._dispatcher.is_down, numbers)):
                attempt = 0

    def _reconsider(self, number: int, reason: str) -> None:
        """A route is down here; `reason` is what its source says of it, empty for up."""
        rests_since_s = self._rests_since_s.get(number)
        if reason:
            # It broke meanwhile; once it is whole again it is worth a chunk at once.
            self._rests_since_s.pop(number, None)
        elif rests_since_s is None:
            self.bring_up(number)
        elif asyncio.get_running_loop().time() >= rests_since_s + self._ack_deadline_s:
            self.bring_up(number, on_trial=True)

    # -- receipts

    async def collect(self, node: str) -> None:
        """Match the outcomes of one source to their chunks, until cancelled.

        A source that does not answer is lost, and asked on: it may come back.

        Raises:
            StaleEpoch: another lead is in charge.
        """
        source = self._sources[node]
        after = failed = 0
        while True:
            try:
                after, outcomes = await source.outcomes(after, _POLL_WAIT_S)
            except (GatewayUnreachable, UnknownTransfer) as error:
                failed += 1
                is_said = isinstance(error, UnknownTransfer | GatewayDraining)
                if failed == _LOST_AFTER_POLLS or is_said:
                    self._lose_source(node, error)
                # A gateway that was started again counts from one.
                after = 0
                await asyncio.sleep(pause_s(failed, self._rng))
                continue
            failed = 0
            self.lost_sources.pop(node, None)
            for outcome in outcomes:
                self._match(outcome)

    def _match(self, outcome: ChunkOutcome) -> None:
        identity = (outcome.chunk, outcome.attempt)
        late = self._lost.pop(identity, None)
        sending = late or self._waiting.get(identity)
        if sending is None:
            return  # It is known already, or of another lead's time.
        number = sending.order.route
        if any(row.error is None for row in outcome.ranges):
            self._heard(number)
        if late is None:
            self._settle(sending, outcome)
            return
        if any(row.error is not None for row in outcome.ranges):
            return
        current = self._current.get(outcome.chunk)
        if current is None and outcome.chunk in self._under_way:
            self._arrived[outcome.chunk] = (late.order, outcome)
        elif current is not None and current.order.ranges == late.order.ranges:
            current.resolve(outcome, number)

    def _settle(self, sending: Sending, outcome: ChunkOutcome) -> None:
        number = sending.order.route
        for row in outcome.ranges:
            if isinstance(row.error, GatewayLost):
                self.lose(number, row.error.message, refusal=_for_good(row.error))
                return
            if isinstance(row.error, UnknownTransfer | GatewayDraining):
                self.lose(number, row.error.message, rests=True, refusal=row.error)
                return
        sending.resolve(outcome, number)

    def _heard(self, number: int) -> None:
        now_s = asyncio.get_running_loop().time()
        self._heard_s[number] = self._progress_s = now_s
        if number in self._rests_since_s:
            self.bring_up(number)


def _for_good(loss: GatewayLost) -> PathEnded | None:
    """That loss if the path is not built again: nothing is to be hoped for."""
    return loss if isinstance(loss, PathEnded) else None


def _goes_again(error: SkyplaneError | None, fruitless: int) -> bool:
    if isinstance(error, WAITED_FOR):
        return False  # The store that said so has been waited for, for as long as it is.
    return error is not None and not error.is_permanent and fruitless < MAX_ATTEMPTS
