"""A chunk that waits for a store that throttles is not lost, and is not sent again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.gateway.lead.delivery_lab import DEADLINE_S, FakeSource, Scene, rows

from skyplane_gateway.common.errors import GatewayUnreachable, StaleEpoch, Throttled

Run = Callable[[Any], Any]
TWO_PATHS = (("a", "r", "b"), ("a", "q", "b"))
FIRST = (1, 1)


@pytest.mark.parametrize("end", ["source", "sink"])
@pytest.mark.parametrize("paths", [TWO_PATHS[:1], TWO_PATHS])
async def test_a_chunk_is_in_flight_as_long_as_an_end_names_it(
    end: str, paths: tuple[tuple[str, ...], ...]
) -> None:
    """Longer than the stall deadline: the retries of the gateway limit it."""
    source = FakeSource(delay_s=None)
    scene = Scene({"a": source}, *paths)
    waiting = source if end == "source" else scene.sinks["b"]
    waiting.waits = [FIRST]
    delivery = asyncio.create_task(scene.deliver(rows("x")))
    await asyncio.sleep(900.0)
    assert not delivery.done()
    assert scene.dispatcher.reasons_down() == {}
    source.answer(source.orders[0])
    ((outcomes, attempts),) = await delivery
    assert (outcomes[0].error, attempts) == (None, 1)
    assert [(order.chunk, order.attempt) for order in source.orders] == [FIRST]
    assert scene.delivery.resent == 0
    await scene.close()


async def test_a_chunk_that_is_no_longer_named_is_lost_after_a_deadline() -> None:
    """The sink has written it, and its receipt was lost."""
    source = FakeSource(delay_s=None)
    scene = Scene({"a": source}, *TWO_PATHS)
    scene.sinks["b"].waits = [FIRST]
    delivery = asyncio.create_task(scene.deliver(rows("x")))
    await asyncio.sleep(3 * DEADLINE_S - 5.0)
    scene.sinks["b"].waits = []
    source.delay_s = 0.0
    ((outcomes, attempts),) = await delivery
    assert (outcomes[0].error, attempts) == (None, 2)
    assert asyncio.get_running_loop().time() == pytest.approx(4 * DEADLINE_S, abs=1.0)
    await scene.close()


@pytest.mark.parametrize("silence", ["hangs", "unreachable", "another's"])
async def test_an_end_that_does_not_answer_excuses_no_chunk(silence: str) -> None:
    source = FakeSource(delay_s=None)
    scene = Scene({"a": source}, *TWO_PATHS)
    if silence == "hangs":
        source.waits = None
    elif silence == "unreachable":
        scene.sinks["b"].broken = GatewayUnreachable("no route to host")
    else:
        scene.sinks["b"].broken = StaleEpoch("epoch 1 is over")
    delivery = asyncio.create_task(scene.deliver(rows("x")))
    await asyncio.sleep(1.0)
    source.delay_s = 0.0
    ((_, attempts),) = await delivery
    assert attempts == 2
    assert asyncio.get_running_loop().time() <= DEADLINE_S + 6.0
    await scene.close()


async def test_only_chunks_without_an_excuse_are_sent_again() -> None:
    source = FakeSource(delay_s=None)
    scene = Scene({"a": source}, ("a", "r", "b"))
    scene.sinks["b"].waits = [FIRST]
    delivery = asyncio.create_task(scene.deliver(rows("held"), rows("lost")))
    await asyncio.sleep(DEADLINE_S + 1.0)
    assert scene.dispatcher.is_down(0)
    source.answer(source.orders[0])  # The store has taken the first at last.
    await asyncio.sleep(1.0)
    assert not scene.dispatcher.is_down(0)
    source.answer(source.orders[-1])
    (held, lost) = await delivery
    assert (held[1], lost[1]) == (1, 2)
    assert len(source.orders) == 3
    await scene.close()


async def test_an_idle_path_does_not_take_an_excused_chunk() -> None:
    """The store would only get the same request again."""
    source = FakeSource(delay_s=None)
    scene = Scene({"a": source}, *TWO_PATHS)
    scene.sinks["b"].waits = [(chunk, 1) for chunk in range(1, 9)]
    delivery = asyncio.create_task(scene.deliver(*(rows(f"k{n}") for n in range(8))))
    await asyncio.sleep(1.0)
    for order in source.orders[:6]:
        source.answer(order)
    await asyncio.sleep(100.0)
    assert len(source.orders) == 8
    scene.sinks["b"].waits = []
    source.delay_s = 0.0
    results = await delivery
    assert asyncio.get_running_loop().time() < DEADLINE_S
    assert sorted(attempts for _, attempts in results) == [1] * 6 + [2] * 2
    await scene.close()


async def test_one_answer_serves_every_waiting_chunk() -> None:
    source = FakeSource(delay_s=None)
    scene = Scene({"a": source}, *TWO_PATHS)
    scene.sinks["b"].waits = [(chunk, 1) for chunk in range(1, 41)]
    delivery = asyncio.create_task(scene.deliver(*(rows(f"k{n}") for n in range(40))))
    await asyncio.sleep(10 * DEADLINE_S + 1.0)
    assert scene.sinks["b"].asked <= 10
    for order in source.orders:
        source.answer(order)
    results = await delivery
    assert [attempts for _, attempts in results] == [1] * 40
    await scene.close()


async def test_a_throttled_range_is_not_retried_by_the_lead() -> None:
    source = FakeSource(lambda order, wanted: Throttled("slow down"))
    scene = Scene({"a": source}, *TWO_PATHS)
    (((outcome,), attempts),) = await scene.deliver(rows("x"))
    assert isinstance(outcome.error, Throttled)
    assert not outcome.error.is_permanent
    assert attempts == len(source.orders) == 1
    await scene.close()
