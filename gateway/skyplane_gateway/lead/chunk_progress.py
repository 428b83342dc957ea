"""How much of the chunks in flight has arrived, as the two ends of their routes say.

A chunk takes minutes on a slow line. The ends are asked when somebody looks at the status, and at
most once a second. A chunk counts half when it is read and half when it is written. An end at a
file system takes no time, so only the other one counts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Final

from skyplane_gateway.common.errors import SkyplaneError
from skyplane_gateway.config import TransferSpec
from skyplane_gateway.lead.in_flight import InFlight
from skyplane_gateway.lead.sink_pool import SinkPeer
from skyplane_gateway.lead.source_peers import SourcePeer
from skyplane_gateway.source.chunk_orders import AttemptId

log = logging.getLogger(__name__)

_ASK_EVERY_S: Final = 1.0
_ANSWER_WITHIN_S: Final = 5.0


class ChunkProgress:
    """Of one transfer, at its lead."""

    def __init__(
        self,
        spec: TransferSpec,
        in_flight: InFlight,
        sources: Iterable[SourcePeer],
        sinks: Iterable[SinkPeer],
    ) -> None:
        written = 0.0 if spec.destination.kind == "file" else 1.0
        read = 0.0 if spec.source.kind == "file" and written else 1.0
        self._weights = (read, written)
        self._in_flight = in_flight
        self._sources = tuple(sources)
        self._sinks = tuple(sinks)
        self._read: dict[AttemptId, int] = {}
        self._written: dict[AttemptId, int] = {}
        self._asked_s = -_ASK_EVERY_S
        self._asking: asyncio.Task[None] | None = None

    def moving_bytes(self) -> int:
        """Payload of the chunks in flight that has arrived, as known by now."""
        attempts = tuple(self._in_flight)
        if attempts:
            now_s = asyncio.get_running_loop().time()
            is_asking = self._asking is not None and not self._asking.done()
            if not is_asking and now_s >= self._asked_s + _ASK_EVERY_S:
                self._asked_s = now_s
                self._asking = asyncio.create_task(self._ask())
        for_read, for_written = self._weights
        arrived = (
            for_read * min(self._read.get(one.order.id, 0), one.order.length)
            + for_written * min(self._written.get(one.order.id, 0), one.order.length)
            for one in attempts
        )
        return int(sum(arrived) / (for_read + for_written))

    def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        try:
            async with asyncio.timeout(_ANSWER_WITHIN_S):
                self._read = await _moved_at(self._sources)
                self._written = await _moved_at(self._sinks)
        except (SkyplaneError, TimeoutError) as error:
            log.info("a gateway does not say how much of its chunks has arrived: %r", error)


async def _moved_at(ends: Iterable[SourcePeer | SinkPeer]) -> dict[AttemptId, int]:
    rows = await asyncio.gather(*(end.chunks() for end in ends))
    return {(row.chunk, row.attempt): row.moved_bytes for some in rows for row in some}
