from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from tests.gateway.lead.delivery_lab import (
    DEADLINE_S,
    STALL_S,
    FakeSource,
    Scene,
    delivering,
    rows,
)

from skyplane_gateway.common.errors import (
    GatewayLost,
    GatewayUnreachable,
    NotFound,
    Overloaded,
    ReadBackMismatch,
    SkyplaneError,
    StaleEpoch,
    StoreUnavailable,
    UnknownTransfer,
)
from skyplane_gateway.common.objects import IF_ABSENT, Precondition
from skyplane_gateway.lead.backoff import POLICY
from skyplane_gateway.source.chunk_orders import ChunkOrder, ChunkOutcome, RangeOrder, RangeOutcome

Run = Callable[[Any], Any]


async def test_every_range_has_its_own_outcome() -> None:
    source = FakeSource(lambda order, wanted: None)
    ((outcomes, attempts),) = await delivering(source, rows("x", "y"))
    assert [row.etag for row in outcomes] == ["x", "y"]
    assert attempts == 1
    assert [order.route for order in source.orders] == [0]


async def test_ranges_of_an_earlier_lead_are_sent_as_a_further_attempt() -> None:
    source = FakeSource(lambda order, wanted: None)
    scene = Scene({"a": source}, ("a", "b"))
    _, attempts = await scene.delivery.deliver("objects", rows("x"), was_sent=True)
    await scene.close()
    assert [order.attempt for order in source.orders] == [2]
    assert attempts == 1


async def test_only_failed_ranges_are_retried() -> None:
    def fate(order: ChunkOrder, wanted: RangeOrder) -> SkyplaneError | None:
        late = {"y": 2, "z": 3}
        return StoreUnavailable("503") if order.attempt < late.get(wanted.source_key, 1) else None

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


async def test_a_range_that_the_sink_removed_is_retried_without_a_predecessor() -> None:
    """The object that it replaced is gone too, so the listed version can never match."""

    def fate(order: ChunkOrder, wanted: RangeOrder) -> SkyplaneError | None:
        return ReadBackMismatch("other bytes") if wanted.precondition == fence else None

    fence = Precondition(if_match="old")

    wanted = tuple(replace(row, precondition=fence) for row in rows("x", "y"))
    source = FakeSource(lambda order, row: fate(order, row) if row.source_key == "y" else None)
    ((outcomes, attempts),) = await delivering(source, wanted)
    assert [row.error for row in outcomes] == [None, None]
    assert attempts == 2
    first, second = source.orders
    assert [row.precondition for row in first.ranges] == [fence, fence]
    assert [row.precondition for row in second.ranges] == [IF_ABSENT]


async def test_a_range_fails_after_its_last_attempt() -> None:
    source = FakeSource(
        lambda order, wanted: StoreUnavailable("503") if wanted.source_key == "y" else None
    )
    ((outcomes, attempts),) = await delivering(source, rows("x", "y"))
    # x arrived at the first attempt, so that one does not count against y.
    assert attempts == len(source.orders) == POLICY.attempts + 1
    assert outcomes[0].error is None
    assert isinstance(outcomes[1].error, StoreUnavailable)


async def test_a_permanent_error_is_not_retried() -> None:
    source = FakeSource(lambda order, wanted: NotFound("gone"))
    ((outcomes, attempts),) = await delivering(source, rows("x"))
    assert attempts == len(source.orders) == 1
    assert isinstance(outcomes[0].error, NotFound)


async def test_a_silent_path_without_another_ends_the_transfer() -> None:
    source = FakeSource(delay_s=None)
    (error,) = await delivering(source, rows("x"))
    assert isinstance(error, GatewayLost)
    assert "a -> r -> b: no receipt within 120 s" in error.message
    # One trial chunk, then the stall deadline has passed.
    assert [order.attempt for order in source.orders] == [1, 2]
    assert asyncio.get_running_loop().time() == pytest.approx(3 * DEADLINE_S, abs=11.0)


async def test_chunks_that_are_lost_on_one_path_are_sent_at_once_by_another() -> None:
    source = FakeSource(delay_s=None)
    scene = Scene({"a": source}, ("a", "r", "b"), ("a", "q", "b"))
    delivery = asyncio.create_task(scene.deliver(*(rows(f"k{n}") for n in range(10))))
    await asyncio.sleep(1.0)
    source.delay_s = 0.0
    source.down[0] = "r is gone"
    scene.delivery.routes.take_down(0, "r is gone")
    for order in [order for order in source.orders if order.route == 1]:
        source.answer(order)
    results = await delivery
    assert asyncio.get_running_loop().time() == pytest.approx(1.0)
    assert sorted(attempts for _, attempts in results) == [1] * 5 + [2] * 5
    assert scene.dispatcher.delivered_bytes() == {0: 0, 1: 100}
    assert scene.delivery.resent == 5
    # Late receipts of given-up attempts are still matched, without their ranges.
    lost = scene.delivery.in_flight.given_up.values()
    assert [sending.order.ranges for sending in lost] == [()] * 5
    await scene.close()


async def test_a_route_is_used_again_once_its_source_says_that_it_is_up() -> None:
    source = FakeSource()
    scene = Scene({"a": source}, ("a", "r", "b"))
    source.down[0] = "r is gone"
    scene.delivery.routes.take_down(0, "r is gone")
    delivery = asyncio.create_task(scene.deliver(rows("x")))
    await asyncio.sleep(100.0)
    assert not delivery.done()
    assert source.asked > 5
    source.down.clear()
    ((outcomes, attempts),) = await delivery
    assert (outcomes[0].error, attempts) == (None, 1)
    assert asyncio.get_running_loop().time() < 100.0 + 11.0
    # The source is no longer asked once its routes are up.
    asked = source.asked
    await asyncio.sleep(100.0)
    assert source.asked == asked
    await scene.close()


async def test_a_late_receipt_counts_and_brings_its_path_up() -> None:
    source = FakeSource(delay_s=None)
    scene = Scene({"a": source}, ("a", "r", "b"))
    delivery = asyncio.create_task(scene.deliver(rows("x")))
    await asyncio.sleep(DEADLINE_S + 30.0)
    assert scene.dispatcher.is_down(0)
    source.answer(source.orders[0])
    await asyncio.sleep(1.0)
    assert not scene.dispatcher.is_down(0)
    # The retry was not sent yet, and is no longer needed.
    ((outcomes, _),) = await delivery
    assert (outcomes[0].error, len(source.orders)) == (None, 1)
    assert scene.dispatcher.delivered_bytes() == {0: 10}
    await scene.close()


async def test_the_first_receipt_of_a_chunk_counts() -> None:
    """The receipt of the first attempt comes while the second is in flight."""
    source = FakeSource(delay_s=None)
    scene = Scene({"a": source}, ("a", "r", "b"), ("a", "q", "b"))
    delivery = asyncio.create_task(scene.deliver(rows("x")))
    await asyncio.sleep(1.0)
    scene.delivery.routes.take_down(0, "r hangs", needs_trial=True)
    await asyncio.sleep(1.0)
    first, second = source.orders
    assert (first.route, second.route) == (0, 1)
    source.answer(first)
    ((outcomes, _),) = await delivery
    assert outcomes[0].error is None
    assert asyncio.get_running_loop().time() == pytest.approx(2.0)
    assert not scene.dispatcher.is_down(0)
    assert scene.dispatcher.delivered_bytes() == {0: 10, 1: 0}
    source.answer(second)
    await asyncio.sleep(1.0)
    assert scene.dispatcher.delivered_bytes() == {0: 10, 1: 0}
    await scene.close()


async def test_a_late_refusal_of_a_given_up_attempt_changes_nothing() -> None:
    source = FakeSource(delay_s=None)
    scene = Scene({"a": source}, ("a", "r", "b"), ("a", "q", "b"))
    delivery = asyncio.create_task(scene.deliver(rows("x")))
    await asyncio.sleep(1.0)
    scene.delivery.routes.take_down(0, "r is gone")
    await asyncio.sleep(1.0)
    first, second = source.orders
    lost = RangeOutcome(GatewayLost("r is gone"))
    source.say(ChunkOutcome(first.chunk, first.attempt, (lost,)))
    await asyncio.sleep(1.0)
    source.answer(second)
    ((outcomes, attempts),) = await delivery
    assert (outcomes[0].error, attempts) == (None, 2)
    assert scene.dispatcher.reasons_down() == {}
    await scene.close()


async def test_a_delivery_on_another_path_extends_the_stall_deadline() -> None:
    """One path loses every chunk; a chunk that takes it repeatedly still arrives."""
    source = FakeSource(delay_s=None)
    scene = Scene({"a": source}, ("a", "r", "b"), ("a", "q", "b"), capacity=40)

    async def answer_one_way() -> None:
        answered = 0
        while True:
            await asyncio.sleep(30.0)
            for order in source.orders[answered:]:
                if order.route == 1:
                    source.answer(order)
            answered = len(source.orders)

    answering = asyncio.create_task(answer_one_way())
    results = await scene.deliver(*(rows(f"k{number}") for number in range(60)))
    assert all(outcomes[0].error is None for outcomes, _ in results)
    assert asyncio.get_running_loop().time() > 2 * STALL_S
    answering.cancel()
    await scene.close()


async def test_a_slow_path_that_delivers_is_not_lost() -> None:
    """Twenty chunks at once, one every 20 s: the last waits for three deadlines."""
    source = FakeSource(lambda order, wanted: None, delay_s=None)
    deliveries = asyncio.create_task(
        delivering(source, *(rows(f"k{number}") for number in range(20)))
    )
    for number in range(20):
        await asyncio.sleep(20.0)
        source.answer(source.orders[number])
    results = await deliveries
    assert [attempts for _, attempts in results] == [1] * 20


async def test_a_path_that_stops_to_deliver_is_down_one_deadline_later() -> None:
    source = FakeSource(delay_s=None)
    scene = Scene({"a": source}, ("a", "r", "b"))
    deliveries = asyncio.create_task(scene.deliver(*(rows(f"k{n}") for n in range(5))))
    for number in range(3):
        await asyncio.sleep(100.0)
        source.answer(source.orders[number])
    await asyncio.sleep(DEADLINE_S - 1.0)
    assert not scene.dispatcher.is_down(0)
    await asyncio.sleep(2.0)
    assert scene.dispatcher.is_down(0)
    *arrived, one, other = await deliveries
    assert [attempts for _, attempts in arrived] == [1, 1, 1]
    assert isinstance(one, GatewayLost)
    assert isinstance(other, GatewayLost)
    await scene.close()


async def test_a_refusal_does_not_extend_the_deadline_of_its_path() -> None:
    """A source that cannot read answers at once; that proves nothing about its path."""
    source = FakeSource(lambda order, wanted: NotFound("gone"), delay_s=None)
    scene = Scene({"a": source}, ("a", "r", "b"))
    deliveries = asyncio.create_task(scene.deliver(rows("lost"), rows("gone")))
    await asyncio.sleep(100.0)
    source.answer(source.orders[1])
    await asyncio.sleep(DEADLINE_S - 100.0 + 1.0)
    assert scene.dispatcher.is_down(0)
    lost, _ = await deliveries
    assert isinstance(lost, GatewayLost)
    await scene.close()


async def test_unknown_outcomes_are_ignored() -> None:
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


async def test_other_sources_send_the_chunks_of_a_lost_source() -> None:
    one, other = FakeSource(delay_s=None), FakeSource()
    scene = Scene({"a": one, "c": other}, ("a", "b"), ("c", "b"))
    delivery = asyncio.create_task(scene.deliver(*(rows(f"k{n}") for n in range(4))))
    await asyncio.sleep(1.0)
    one.broken = GatewayUnreachable("127.0.0.1:1 does not answer")
    results = await delivery
    assert sorted(attempts for _, attempts in results) == [1, 1, 2, 2]
    # Two failed polls.
    assert asyncio.get_running_loop().time() < 12.0
    assert scene.delivery.routes.lost_sources == {"a": "127.0.0.1:1 does not answer"}
    assert "source gateway a is lost" in scene.dispatcher.reasons_down()[0]
    # It comes back, and gets its share again.
    one.broken, one.delay_s = None, 0.0
    await asyncio.sleep(30.0)
    assert scene.delivery.routes.lost_sources == {}
    assert scene.dispatcher.reasons_down() == {}
    await scene.deliver(rows("y"))
    assert one.orders[-1].ranges == rows("y")
    await scene.close()


async def test_a_source_that_hangs_is_lost_after_one_deadline() -> None:
    hangs, other = FakeSource(), FakeSource()

    async def dispatch(orders: Sequence[ChunkOrder]) -> None:
        await asyncio.sleep(10_000.0)

    hangs.dispatch = dispatch  # type: ignore[method-assign]
    scene = Scene({"a": hangs, "c": other}, ("a", "b"), ("c", "b"))
    results = await scene.deliver(rows("x"), rows("y"))
    assert sorted(attempts for _, attempts in results) == [1, 2]
    assert asyncio.get_running_loop().time() == pytest.approx(DEADLINE_S, abs=1.0)
    await scene.close()


async def test_outcomes_of_a_restarted_source_are_collected() -> None:
    source = FakeSource()
    scene = Scene({"a": source}, ("a", "b"))
    await scene.deliver(*(rows(f"k{n}") for n in range(5)))
    source.broken = GatewayUnreachable("127.0.0.1:1 does not answer")
    await asyncio.sleep(15.0)
    source.broken = None
    source._ended.clear()
    source._numbers = itertools.count(1)
    ((outcomes, _),) = await scene.deliver(rows("x"))
    assert outcomes[0].error is None
    assert asyncio.get_running_loop().time() < 15.0 + DEADLINE_S
    await scene.close()


async def test_a_source_that_never_answers_ends_the_transfer() -> None:
    source = FakeSource()
    source.broken = GatewayUnreachable("127.0.0.1:1 does not answer")
    (error,) = await delivering(source, rows("x"))
    assert isinstance(error, GatewayLost)
    assert "does not answer" in error.message
    assert asyncio.get_running_loop().time() == pytest.approx(STALL_S, abs=1.0)


@pytest.mark.parametrize("kind", [StaleEpoch, UnknownTransfer])
async def test_a_lead_that_has_a_successor_stops_at_once(kind: type[SkyplaneError]) -> None:
    """Else it would record objects as failed while another lead copies them."""
    source = FakeSource(lambda order, wanted: kind("epoch 2 is in charge"))
    (error,) = await delivering(source, rows("x", "y"))
    assert isinstance(error, kind)
    assert asyncio.get_running_loop().time() < 1.0


async def test_a_sink_that_does_not_know_the_transfer_is_replaced_by_another() -> None:
    def fate(order: ChunkOrder, wanted: RangeOrder) -> SkyplaneError | None:
        return UnknownTransfer("started again") if order.route == 0 else None

    scene = Scene({"a": FakeSource(fate)}, ("a", "b"), ("a", "d"))
    results = await scene.deliver(*(rows(f"k{n}") for n in range(6)))
    assert all(outcomes[0].error is None for outcomes, _ in results)
    assert scene.dispatcher.reasons_down() == {0: "started again"}
    await scene.close()


async def test_a_full_sink_does_not_count_as_a_failed_attempt() -> None:
    def fate(order: ChunkOrder, wanted: RangeOrder) -> SkyplaneError | None:
        return Overloaded("full") if order.attempt < 9 else None

    ((outcomes, attempts),) = await delivering(FakeSource(fate), rows("x"))
    assert (outcomes[0].error, attempts) == (None, 9)


async def test_idle_paths_take_the_last_chunks_of_a_slow_one() -> None:
    """One path takes 1 s a chunk, the other a hundred: done in 1.5 times the healthy run."""

    async def run(slow_s: float) -> tuple[float, FakeSource, Scene]:
        source = FakeSource(delay_s=None)
        scene = Scene({"a": source}, ("a", "r", "b"), ("a", "q", "b"), capacity=80)
        ready_s = {0: 0.0, 1: 0.0}
        loop = asyncio.get_running_loop()
        began_s = loop.time()

        async def dispatch(orders: Sequence[ChunkOrder]) -> None:
            for order in orders:
                source.orders.append(order)
                takes_s = slow_s if order.route == 0 else 1.0
                ready_s[order.route] = max(ready_s[order.route], loop.time()) + takes_s
                loop.call_at(ready_s[order.route], source.answer, order)

        source.dispatch = dispatch  # type: ignore[method-assign]
        results = await scene.deliver(*(rows(f"k{number}") for number in range(100)))
        assert all(outcomes[0].error is None for outcomes, _ in results)
        took_s = loop.time() - began_s
        await scene.close()
        return took_s, source, scene

    healthy_s, source, _ = await run(1.0)
    assert len(source.orders) == 100
    took_s, source, scene = await run(100.0)
    # Half of the rate is lost.
    assert took_s <= 1.5 * 2 * healthy_s
    assert len(source.orders) <= 110
    assert sum(scene.dispatcher.delivered_bytes().values()) == 1000
    assert scene.dispatcher.reasons_down() == {}


@pytest.mark.parametrize(
    ("on_trees", "late_s", "is_sent_again"),
    [(False, 8.0, True), (True, 8.0, False), (True, 30.0, True)],
)
async def test_a_chunk_that_others_may_hold_up_is_not_sent_and_paid_again(
    on_trees: bool, late_s: float, is_sent_again: bool
) -> None:
    source = FakeSource(delay_s=None)
    scene = Scene({"a": source}, ("a", "r", "b"), ("a", "q", "b"), on_trees=on_trees)

    async def dispatch(orders: Sequence[ChunkOrder]) -> None:
        for order in orders:
            source.orders.append(order)
            is_late = order.chunk == 9 and order.attempt == 1
            asyncio.get_running_loop().call_later(late_s if is_late else 0.1, source.answer, order)

    source.dispatch = dispatch  # type: ignore[method-assign]
    await scene.deliver(*(rows(f"k{number}") for number in range(9)))
    await scene.close()
    assert (len(source.orders) > 9) == is_sent_again


events = st.lists(
    st.tuples(
        st.integers(0, 3),
        st.sampled_from(["lose", "hang", "revive", "hear", "unreachable", "answers"]),
        st.floats(0.1, 60.0),
    ),
    max_size=25,
)


@given(events, st.integers(0, 3), st.integers(1, 12), st.integers(20, 200))
@settings(
    deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_every_chunk_arrives_once_whatever_fails(
    virtual: Run,
    happenings: list[tuple[int, str, float]],
    survivor: int,
    chunks: int,
    capacity: int,
) -> None:
    """Four paths from two sources; one of them is up at the end."""

    async def scenario() -> None:
        sources = {"a": FakeSource(), "c": FakeSource()}
        paths = ("a", "b"), ("a", "r", "d"), ("c", "b"), ("c", "q", "d")
        scene = Scene(sources, *paths, capacity=capacity)
        hung: set[int] = set()
        withheld: list[tuple[FakeSource, ChunkOrder]] = []
        for source in sources.values():
            source.delay_s = None

        async def answer() -> None:
            seen = dict.fromkeys(sources, 0)
            while True:
                await asyncio.sleep(3.0)
                for node, source in sources.items():
                    for order in source.orders[seen[node] :]:
                        if order.route in hung:
                            withheld.append((source, order))
                        elif order.route not in source.down:
                            source.answer(order)
                    seen[node] = len(source.orders)

        def happen(number: int, event: str) -> None:
            source = sources[paths[number][0]]
            if event == "lose":
                source.down[number] = "broken"
                scene.delivery.routes.take_down(number, "broken")
            elif event == "hang":
                hung.add(number)
            elif event == "revive":
                source.down.pop(number, None)
                hung.discard(number)
                scene.delivery.routes.bring_up(number)
            elif event == "hear":
                for late in [late for late in withheld if late[1].route == number]:
                    late[0].answer(late[1])
                    withheld.remove(late)
            else:
                gone = GatewayUnreachable("gone") if event == "unreachable" else None
                source.broken = gone

        answering = asyncio.create_task(answer())
        delivery = asyncio.create_task(
            scene.deliver(*(rows(f"k{number}") for number in range(chunks)))
        )
        quiet_s = 0.0
        for number, event, pause in happenings:
            # Some path must work again within the stall deadline.
            if quiet_s + pause < 100.0:
                await asyncio.sleep(pause)
                quiet_s += pause
            happen(number, event)
        for event in ("answers", "revive"):
            happen(survivor, event)
        results = await delivery
        assert all(not isinstance(result, BaseException) for result in results), results
        assert all(outcomes[0].error is None for outcomes, _ in results)
        delivered = sum(scene.dispatcher.delivered_bytes().values())
        assert delivered == 10 * chunks
        answering.cancel()
        await scene.close()

    virtual(scenario())
