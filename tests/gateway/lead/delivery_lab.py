"""A `ChunkDelivery` between fake sources and fake sinks."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from skyplane_gateway.common.errors import SkyplaneError, StaleEpoch
from skyplane_gateway.config import Route
from skyplane_gateway.lead.backoff import Retries
from skyplane_gateway.lead.chunk_delivery import ChunkDelivery
from skyplane_gateway.lead.dispatcher import Dispatcher
from skyplane_gateway.lead.sink_pool import SinkPeer
from skyplane_gateway.source.chunk_orders import (
    ChunkOrder,
    ChunkOutcome,
    ChunkState,
    RangeOrder,
    RangeOutcome,
)

#: The error of one range at one attempt; None is success.
Fate = Callable[[ChunkOrder, RangeOrder], SkyplaneError | None]

DEADLINE_S = 120.0
STALL_S = 240.0


def rows(*keys: str, length: int = 10) -> tuple[RangeOrder, ...]:
    return tuple(RangeOrder(key, '"e"', 0, length, f"to/{key}") for key in keys)


class FakeSource:
    """Answers every order after `delay_s`, or never; by default all ranges succeed."""

    def __init__(self, fate: Fate = lambda *_: None, delay_s: float | None = 0.0) -> None:
        self.node = "a"
        self.down: dict[int, str] = {}
        self.asked = 0
        self.orders: list[ChunkOrder] = []
        self.delay_s = delay_s
        self._fate = fate
        self._ended: list[tuple[int, ChunkOutcome]] = []
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()
        self.broken: SkyplaneError | None = None
        #: Attempts that wait for its store; None: it does not answer.
        self.waits: list[tuple[int, int]] | None = []

    async def chunks(self) -> list[ChunkState]:
        if self.broken is not None:
            raise self.broken
        if self.waits is None:
            await asyncio.sleep(3600.0)
        return [ChunkState(*identity, 0, is_waiting=True) for identity in self.waits or ()]

    async def dispatch(self, orders: Sequence[ChunkOrder]) -> None:
        if self.broken is not None:
            raise self.broken
        for order in orders:
            self.orders.append(order)
            if self.delay_s is not None:
                asyncio.get_running_loop().call_later(self.delay_s, self.answer, order)

    def answer(self, order: ChunkOrder) -> None:
        outcomes = []
        for wanted in order.ranges:
            error = self._fate(order, wanted)
            outcomes.append(
                RangeOutcome(error) if error else RangeOutcome(None, wanted.source_key, 7)
            )
        self.say(ChunkOutcome(order.chunk, order.attempt, tuple(outcomes)))

    def say(self, outcome: ChunkOutcome) -> None:
        self._ended.append((next(self._numbers), outcome))
        self._news.set()

    async def outcomes(self, after: int, wait_s: float) -> tuple[int, list[ChunkOutcome]]:
        if self.broken is not None:
            raise self.broken
        fresh = [row for row in self._ended if row[0] > after]
        if not fresh:
            self._news.clear()
            await asyncio.wait([asyncio.ensure_future(self._news.wait())], timeout=wait_s)
            fresh = [row for row in self._ended if row[0] > after]
        return max((number for number, _ in fresh), default=after), [row for _, row in fresh]

    async def routes(self) -> dict[int, str]:
        self.asked += 1
        if self.broken is not None:
            raise self.broken
        return {number: self.down.get(number, "") for number in range(8)}

    def close(self) -> None: ...


class FakeSink:
    """Names the chunks that it cannot write because its store throttles."""

    def __init__(self) -> None:
        self.node = "b"
        self.waits: list[tuple[int, int]] = []
        self.asked = 0
        self.broken: SkyplaneError | None = None

    async def call(self, verb: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        assert (verb, arguments) == ("chunks", {})
        self.asked += 1
        if self.broken is not None:
            raise self.broken
        return {"chunks": [[*identity, 0, True] for identity in self.waits]}


class Scene:
    """A delivery with its background tasks.

    Args:
        paths: route number -> nodes.
        on_trees: each follows a tree, which other transfers share.
    """

    def __init__(
        self,
        sources: dict[str, FakeSource],
        *paths: tuple[str, ...],
        capacity: int = 1000,
        on_trees: bool = False,
    ) -> None:
        routes = [
            Route(i, nodes, (1,) * (len(nodes) - 1), 1.0, tree=100 + i if on_trees else None)
            for i, nodes in enumerate(paths)
        ]
        sinks = {nodes[-1]: capacity for nodes in paths}
        self.dispatcher = Dispatcher(routes, sinks, STALL_S)
        self.sinks = {node: FakeSink() for node in sinks}
        self.delivery = ChunkDelivery(
            self.dispatcher,
            cast("Any", sources),
            {node: SinkPeer(node, sink.call) for node, sink in self.sinks.items()},
            ack_deadline_s=DEADLINE_S,
            stall_deadline_s=STALL_S,
            retries=Retries(random.Random(1)),
        )
        self._background = [asyncio.create_task(run) for run in self.delivery.background()]

    async def deliver(self, *deliveries: tuple[RangeOrder, ...]) -> list[Any]:
        """Deliver side by side; the result of each, or its error."""
        try:
            return await asyncio.gather(
                *(self.delivery.deliver("objects", delivery) for delivery in deliveries),
                return_exceptions=True,
            )
        finally:
            assert (list(self.delivery.in_flight), self.delivery.in_flight._current) == ([], {})
            states = self.dispatcher._states.values()
            assert all(state.outstanding_bytes == state.outstanding == 0 for state in states)
            assert set(self.dispatcher._sink_outstanding.values()) == {0}

    async def close(self) -> None:
        for task in self._background:
            task.cancel()
        for ended in await asyncio.gather(*self._background, return_exceptions=True):
            assert isinstance(ended, asyncio.CancelledError | StaleEpoch), ended


async def delivering(
    source: FakeSource, *deliveries: tuple[RangeOrder, ...], capacity: int = 1000
) -> list[Any]:
    """Deliver over a single path."""
    scene = Scene({"a": source}, ("a", "r", "b"), capacity=capacity)
    try:
        return await scene.deliver(*deliveries)
    finally:
        await scene.close()
