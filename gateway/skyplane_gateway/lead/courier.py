"""Gets a chunk to the destination: route, order, receipt, and again when that can help."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from skyplane_gateway.errors import (
    GatewayLost,
    GatewayUnreachable,
    SkyplaneError,
    StaleEpoch,
    UnknownTransfer,
)
from skyplane_gateway.lead.dispatcher import Dispatcher
from skyplane_gateway.lead.pauses import MAX_ATTEMPTS, pause_s
from skyplane_gateway.lead.peers import SourcePeer
from skyplane_gateway.orders import ChunkKind, ChunkOrder, ChunkOutcome, RangeOrder, RangeOutcome

log = logging.getLogger(__name__)

#: A long poll for outcomes returns at least this often.
_POLL_WAIT_S: Final = 10.0


class Courier:
    """Sends chunks through the sources and matches receipts to them.

    Args:
        dispatcher: grants routes.
        sources: source node -> peer.
        ack_deadline_s: longest silence of a route that has chunks to deliver.
        randomness: of the pauses.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        sources: Mapping[str, SourcePeer],
        ack_deadline_s: float,
        randomness: random.Random,
    ) -> None:
        self._dispatcher = dispatcher
        self._sources = sources
        self._ack_deadline_s = ack_deadline_s
        self._randomness = randomness
        self._chunks = itertools.count(1)
        self._waiting: dict[tuple[int, int], tuple[int, asyncio.Future[ChunkOutcome]]] = {}
        #: Route -> when it last delivered something.
        self._heard_s: dict[int, float] = {}
        self.sendings = 0

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
            GatewayLost: a route or gateway is gone, and the transfer with it.
            StaleEpoch, UnknownTransfer: the ends have let go of this lead.
        """
        chunk = next(self._chunks)
        ended: dict[int, RangeOutcome] = {}
        pending = list(range(len(ranges)))
        attempt = fruitless = 0
        while pending:
            attempt += 1
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
            for index, row in zip(pending, outcome.ranges, strict=True):
                ended[index] = row
            # A chunk that brings some of its objects home may go on for the others.
            brought = any(row.error is None for row in outcome.ranges)
            fruitless = 0 if brought else fruitless + 1
            pending = [index for index in pending if _goes_again(ended[index].error, fruitless)]
            if pending:
                log.info("chunk %d goes again: %s", chunk, ended[pending[0]].error)
                await asyncio.sleep(pause_s(fruitless, self._randomness))
        return [ended[index] for index in range(len(ranges))], attempt

    async def _send(self, order: ChunkOrder) -> ChunkOutcome:
        route = await self._dispatcher.acquire(order.length)
        order = replace(order, route=route.number)
        identity = (order.chunk, order.attempt)
        future: asyncio.Future[ChunkOutcome] = asyncio.get_running_loop().create_future()
        self._waiting[identity] = (route.number, future)
        delivered = False
        try:
            self.sendings += 1
            source = self._sources[route.nodes[0]]
            await source.dispatch((order,))
            outcome = await self._receipt(route.number, future)
            delivered = all(row.error is None for row in outcome.ranges)
        except TimeoutError:
            error = GatewayLost(
                f"no receipt within {self._ack_deadline_s:g} s for chunk {order.chunk} on "
                f"the path {' -> '.join(route.nodes)}"
            )
            outcome = ChunkOutcome.of_failure(order, error)
        except GatewayUnreachable as error:
            outcome = ChunkOutcome.of_failure(order, GatewayLost(error.message))
        finally:
            del self._waiting[identity]
            await self._dispatcher.release(route, order.length, delivered=delivered)
        for row in outcome.ranges:
            if isinstance(row.error, GatewayLost):
                await self._dispatcher.mark_down(route.number, row.error.message)
                raise row.error
            if isinstance(row.error, StaleEpoch | UnknownTransfer):
                raise row.error  # Nobody there works for this lead any more.
        return outcome

    async def _receipt(self, route: int, future: asyncio.Future[ChunkOutcome]) -> ChunkOutcome:
        """The chunk's outcome; waits on while the route delivers others.

        A full window on a slow path takes longer than one deadline, and that is no loss.

        Raises:
            TimeoutError: the route has been silent for the deadline.
        """
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while not future.done():
            quiet_since_s = max(began_s, self._heard_s.get(route, began_s))
            left_s = quiet_since_s + self._ack_deadline_s - loop.time()
            if left_s <= 0:
                raise TimeoutError
            await asyncio.wait({future}, timeout=left_s)
        return future.result()

    async def collect(self, node: str) -> None:
        """Match the outcomes of one source to their chunks, until cancelled.

        Raises:
            GatewayLost: the source does not answer any more.
        """
        source = self._sources[node]
        after = 0
        while True:
            try:
                after, outcomes = await source.outcomes(after, _POLL_WAIT_S)
            except GatewayUnreachable as error:
                raise GatewayLost(f"source gateway {node} is lost: {error.message}") from error
            for outcome in outcomes:
                self._match(outcome)

    def _match(self, outcome: ChunkOutcome) -> None:
        route, future = self._waiting.get((outcome.chunk, outcome.attempt), (0, None))
        if future is None or future.done():
            return  # It came too late; the chunk has gone again.
        if any(row.error is None for row in outcome.ranges):
            self._heard_s[route] = asyncio.get_running_loop().time()
        future.set_result(outcome)


def _goes_again(error: SkyplaneError | None, fruitless: int) -> bool:
    return error is not None and not error.is_permanent and fruitless < MAX_ATTEMPTS
