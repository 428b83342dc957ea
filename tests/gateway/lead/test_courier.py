from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from skyplane_gateway.config import Route
from skyplane_gateway.errors import (
    GatewayLost,
    GatewayUnreachable,
    NotFound,
    SkyplaneError,
    StaleEpoch,
    StoreUnavailable,
    UnknownTransfer,
)
from skyplane_gateway.lead.courier import Courier
from skyplane_gateway.lead.dispatcher import Dispatcher
from skyplane_gateway.lead.pauses import MAX_ATTEMPTS
from skyplane_gateway.orders import ChunkOrder, ChunkOutcome, RangeOrder, RangeOutcome

Run = Callable[[Any], Any]
#: What becomes of one range at one sending; None is success.
Fate = Callable[[ChunkOrder, RangeOrder], SkyplaneError | None]

DEADLINE_S = 120.0


def rows(*keys: str, length: int = 10) -> tuple[RangeOrder, ...]:
    return tuple(RangeOrder(key, '"e"', 0, length, f"to/{key}") for key in keys)


class FakeSource:
    """Answers every order after `delay_s`, or never."""

    def __init__(self, fate: Fate, delay_s: float | None = 0.0) -> None:
        self.node = "a"
        self.orders: list[ChunkOrder] = []
        self.delay_s = delay_s
        self._fate = fate
        self._ended: list[tuple[int, ChunkOutcome]] = []
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()
        self.broken: SkyplaneError | None = None

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
        return {0: ""}

    def close(self) -> None: ...


async def delivering(
    source: FakeSource, *deliveries: tuple[RangeOrder, ...], capacity: int = 1000
) -> list[Any]:
    """Deliver side by side; a delivery's result, or the error that it raised."""
    dispatcher = Dispatcher([Route(0, ("a", "r", "b"), (1, 1), 1.0)], {"b": capacity})
    courier = Courier(dispatcher, {"a": source}, DEADLINE_S, random.Random(1))
    collector = asyncio.create_task(courier.collect("a"))
    try:
        return await asyncio.gather(
            *(courier.deliver("objects", delivery) for delivery in deliveries),
            return_exceptions=True,
        )
    finally:
        collector.cancel()
        assert courier._waiting == {}
        assert all(lane.outstanding_bytes == 0 for lane in dispatcher._lanes.values())


def test_what_arrives_is_told_range_by_range(virtual: Run) -> None:
    async def scenario() -> None:
        source = FakeSource(lambda order, wanted: None)
        ((outcomes, attempts),) = await delivering(source, rows("x", "y"))
        assert [row.etag for row in outcomes] == ["x", "y"]
        assert attempts == 1
        assert [order.route for order in source.orders] == [0]

    virtual(scenario())


def test_only_what_failed_goes_again(virtual: Run) -> None:
    def fate(order: ChunkOrder, wanted: RangeOrder) -> SkyplaneError | None:
        late = {"y": 2, "z": 3}
        return StoreUnavailable("503") if order.attempt < late.get(wanted.source_key, 1) else None

    async def scenario() -> None:
        source = FakeSource(fate)
        ((outcomes, attempts),) = await delivering(source, rows("x", "y", "z"))
        assert [[part.source_key for part in order.ranges] for order in source.orders] == [
            ["x", "y", "z"],
            ["y", "z"],
            ["z"],
        ]
        assert [order.attempt for order in source.orders] == [1, 2, 3]
        assert len({order.chunk for order in source.orders}) == 1
        assert [row.etag for row in outcomes] == ["x", "y", "z"]
        assert attempts == 3

    virtual(scenario())


def test_it_gives_up_after_the_last_attempt(virtual: Run) -> None:
    async def scenario() -> None:
        source = FakeSource(
            lambda order, wanted: StoreUnavailable("503") if wanted.source_key == "y" else None
        )
        ((outcomes, attempts),) = await delivering(source, rows("x", "y"))
        # The first sending brought x home, and so does not count against y.
        assert attempts == len(source.orders) == MAX_ATTEMPTS + 1
        assert outcomes[0].error is None
        assert isinstance(outcomes[1].error, StoreUnavailable)

    virtual(scenario())


def test_what_cannot_be_helped_is_not_tried_again(virtual: Run) -> None:
    async def scenario() -> None:
        source = FakeSource(lambda order, wanted: NotFound("gone"))
        ((outcomes, attempts),) = await delivering(source, rows("x"))
        assert attempts == len(source.orders) == 1
        assert isinstance(outcomes[0].error, NotFound)

    virtual(scenario())


def test_silence_is_a_loss(virtual: Run) -> None:
    async def scenario() -> None:
        source = FakeSource(lambda order, wanted: None, delay_s=None)
        began_s = asyncio.get_running_loop().time()
        (error,) = await delivering(source, rows("x"))
        assert isinstance(error, GatewayLost)
        assert "a -> r -> b" in error.message
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(DEADLINE_S)

    virtual(scenario())


def test_a_slow_path_that_delivers_is_not_lost(virtual: Run) -> None:
    """Twenty chunks at once, one every 20 s: the last waits for three deadlines."""

    async def scenario() -> None:
        source = FakeSource(lambda order, wanted: None, delay_s=None)
        deliveries = asyncio.create_task(
            delivering(source, *(rows(f"k{number}") for number in range(20)))
        )
        for number in range(20):
            await asyncio.sleep(20.0)
            source.answer(source.orders[number])
        results = await deliveries
        assert [attempts for _, attempts in results] == [1] * 20

    virtual(scenario())


def test_a_path_that_stops_delivering_is_lost_one_deadline_later(virtual: Run) -> None:
    async def scenario() -> None:
        source = FakeSource(lambda order, wanted: None, delay_s=None)
        deliveries = asyncio.create_task(
            delivering(source, *(rows(f"k{number}") for number in range(5)))
        )
        for number in range(3):
            await asyncio.sleep(100.0)
            source.answer(source.orders[number])
        *arrived, one, other = await deliveries
        assert [attempts for _, attempts in arrived] == [1, 1, 1]
        assert isinstance(one, GatewayLost)
        assert isinstance(other, GatewayLost)
        assert asyncio.get_running_loop().time() == pytest.approx(300.0 + DEADLINE_S, abs=1.0)

    virtual(scenario())


def test_refusals_are_no_sign_of_life(virtual: Run) -> None:
    """A source that cannot read says so at once; that proves nothing about the path."""

    async def scenario() -> None:
        source = FakeSource(lambda order, wanted: NotFound("gone"), delay_s=None)
        deliveries = asyncio.create_task(delivering(source, rows("lost"), rows("gone")))
        await asyncio.sleep(100.0)
        source.answer(source.orders[1])
        lost, _ = await deliveries
        assert isinstance(lost, GatewayLost)
        assert asyncio.get_running_loop().time() == pytest.approx(DEADLINE_S, abs=1.0)

    virtual(scenario())


def test_outcomes_that_nobody_waits_for_do_no_harm(virtual: Run) -> None:
    async def scenario() -> None:
        source = FakeSource(lambda order, wanted: None)
        source.say(ChunkOutcome(99, 1, (RangeOutcome(None),)))
        source.say(ChunkOutcome(1, 9, (RangeOutcome(NotFound("of another attempt")),)))
        original = source.answer

        def twice(order: ChunkOrder) -> None:
            original(order)
            original(order)

        source.answer = twice  # type: ignore[method-assign]
        ((outcomes, attempts),) = await delivering(source, rows("x"))
        assert (outcomes[0].error, attempts) == (None, 1)

    virtual(scenario())


def test_a_source_that_does_not_answer_is_lost(virtual: Run) -> None:
    async def scenario() -> None:
        source = FakeSource(lambda order, wanted: None)
        source.broken = GatewayUnreachable("127.0.0.1:1 does not answer")
        dispatcher = Dispatcher([Route(0, ("a", "b"), (1,), 1.0)], {"b": 100})
        courier = Courier(dispatcher, {"a": source}, DEADLINE_S, random.Random(1))
        with pytest.raises(GatewayLost, match="does not answer"):
            await courier.collect("a")
        with pytest.raises(GatewayLost, match="does not answer"):
            await courier.deliver("objects", rows("x"))
        # The route is taken out of service with it, for everybody.
        with pytest.raises(GatewayLost):
            await dispatcher.acquire(1)

    virtual(scenario())


@pytest.mark.parametrize("kind", [StaleEpoch, UnknownTransfer])
def test_a_lead_that_was_succeeded_stops_at_once(kind: type[SkyplaneError], virtual: Run) -> None:
    """Else it would enter object after object as failed, while another copies them."""

    async def scenario() -> None:
        source = FakeSource(lambda order, wanted: kind("epoch 2 is in charge"))
        (error,) = await delivering(source, rows("x", "y"))
        assert isinstance(error, kind)

    virtual(scenario())
