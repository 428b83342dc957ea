"""Asks gateways which chunks wait for a store, so that a late receipt is not taken for a loss.

The source may wait for the bytes of a chunk, and a sink may have the whole chunk and wait to
write it. Sending it again would only add requests to a store that throttles. Only the two ends
of a route know, so the lead asks them once a receipt is late. An end that does not answer
excuses nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Final

from skyplane_gateway.common.errors import GatewayLost, SkyplaneError, StoreUnavailable
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.lead.dispatcher import Dispatcher
from skyplane_gateway.lead.in_flight import Attempt, InFlight
from skyplane_gateway.lead.sink_pool import SinkPeer
from skyplane_gateway.lead.source_peers import SourcePeer
from skyplane_gateway.source.chunk_orders import AttemptId, ChunkState

log = logging.getLogger(__name__)

#: Longest wait for an end's answer.
_ANSWER_WITHIN_S: Final = 5.0


class ThrottleProbe:
    """Asks the ends of routes; one answer serves every caller that waits for it."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        in_flight: InFlight,
        sources: Mapping[str, SourcePeer],
        sinks: Mapping[str, SinkPeer],
        *,
        ack_deadline_s: float,
    ) -> None:
        self._dispatcher = dispatcher
        self._in_flight = in_flight
        self._sources = sources
        self._sinks = sinks
        self._within_s = min(_ANSWER_WITHIN_S, ack_deadline_s)
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._answers: dict[tuple[str, str], tuple[float, frozenset[AttemptId]]] = {}

    async def excuses(self, attempt: Attempt) -> bool:
        """Whether an end of its route says that the attempt waits for its store."""
        asked_s = asyncio.get_running_loop().time()
        await self.update([attempt])
        return attempt.excused_s >= asked_s

    async def update(self, attempts: Iterable[Attempt]) -> None:
        """Ask the ends of the attempts' routes, and excuse every attempt that they name."""
        asked = {self._dispatcher.ends(attempt.order.route) for attempt in attempts}
        for ends in sorted(asked):
            named = await self._waiting_at(*ends)
            now_s = asyncio.get_running_loop().time()
            for attempt in self._in_flight:
                has_ends = self._dispatcher.ends(attempt.order.route) == ends
                if has_ends and attempt.update_excuse(named, now_s):
                    self._in_flight.progress_s = now_s

    async def _waiting_at(self, source: str, sink: str) -> frozenset[AttemptId]:
        """The attempts that one of the two gateways holds for its store."""
        loop = asyncio.get_running_loop()
        asked_s, ends = loop.time(), (source, sink)
        async with self._locks[ends]:
            answered_s, answer = self._answers.get(ends, (asked_s - 1.0, frozenset()))
            if answered_s < asked_s:
                peers = [self._sources.get(source), self._sinks.get(sink)]
                found = [_chunks_of(peer, self._within_s) for peer in peers if peer is not None]
                rows = chain(*await asyncio.gather(*found))
                answer = frozenset((row.chunk, row.attempt) for row in rows if row.is_waiting)
                self._answers[ends] = (loop.time(), answer)
        return answer


async def _chunks_of(
    peer: SourcePeer | SinkPeer, within_s: float, **arguments: float
) -> list[ChunkState]:
    """What an end says of its chunks; nothing where it does not answer."""
    try:
        async with asyncio.timeout(within_s):
            return await peer.chunks(**arguments)
    except (SkyplaneError, TimeoutError) as error:
        log.info("%s does not say which chunks wait for its store: %r", peer.node, error)
        return []


async def explain_loss(
    loss: GatewayLost, sinks: Sequence[SinkPeer], destination: StoreSpec, silent_s: float
) -> SkyplaneError:
    """The error of a transfer that found its gateways lost.

    `StoreUnavailable` where a sink answers and has waited for its destination longer than
    `silent_s`: other gateways would not help. Else the loss itself.
    """
    found = (_chunks_of(sink, _ANSWER_WITHIN_S, for_s=silent_s) for sink in sinks)
    waiting = sum(row.is_waiting for row in chain(*await asyncio.gather(*found)))
    if not waiting:
        return loss
    return StoreUnavailable(
        f"the destination {destination.place} does not answer; chunks waiting for it: {waiting}; "
        f"check that its gateway can reach it, then try again ({loss.message})"
    )
