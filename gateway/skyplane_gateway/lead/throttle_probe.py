"""Which chunks only wait for a store that throttles: what the ends of a route say.

A late receipt is no loss while the source waits for the chunk's bytes, or while the sink
has the whole chunk and waits to write it: to send it again would only ask more of a store
that asks for less. Nobody but the two ends can tell, so they are asked, and only once a
receipt is late. What neither of them names, or an end that does not answer, is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import Any

from skyplane_gateway.errors import SkyplaneError
from skyplane_gateway.lead.in_flight import Identity
from skyplane_gateway.lead.peers import SinkPeer, SourcePeer

log = logging.getLogger(__name__)


class StoreWaits:
    """Asks the ends; one question answers all who wait for it.

    Args:
        sources, sinks: node -> peer.
        within_s: an end that has not answered by then names nothing.
    """

    def __init__(
        self,
        sources: Mapping[str, SourcePeer],
        sinks: Mapping[str, SinkPeer],
        *,
        within_s: float,
    ) -> None:
        self._sources = sources
        self._sinks = sinks
        self._within_s = within_s
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._told: dict[tuple[str, str], tuple[float, frozenset[Identity]]] = {}

    async def between(self, source: str, sink: str) -> frozenset[Identity]:
        """The sendings that one of these two gateways holds for such a store."""
        loop = asyncio.get_running_loop()
        asked_s, ends = loop.time(), (source, sink)
        async with self._locks[ends]:
            told_s, told = self._told.get(ends, (asked_s - 1.0, frozenset()))
            if told_s < asked_s:
                told = frozenset().union(*await asyncio.gather(*self._questions(source, sink)))
                self._told[ends] = (loop.time(), told)
        return told

    def _questions(self, source: str, sink: str) -> list[Awaitable[frozenset[Identity]]]:
        questions: list[Awaitable[frozenset[Identity]]] = []
        if source in self._sources:
            questions.append(self._answer(self._sources[source].waiting()))
        if sink in self._sinks:
            questions.append(self._answer(_writing(self._sinks[sink])))
        return questions

    async def _answer(self, waiting: Awaitable[Iterable[Sequence[int]]]) -> frozenset[Identity]:
        try:
            async with asyncio.timeout(self._within_s):
                return frozenset((int(chunk), int(attempt)) for chunk, attempt in await waiting)
        except (SkyplaneError, TimeoutError) as error:
            log.info("an end does not say what waits for its store: %r", error)
            return frozenset()


async def _writing(sink: SinkPeer) -> list[Any]:
    answer = await sink.call("waiting", {})
    return list(answer["chunks"])
