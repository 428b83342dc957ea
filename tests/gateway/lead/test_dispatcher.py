from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from skyplane_gateway.common.errors import GatewayLost, UnknownTransfer
from skyplane_gateway.config import Route
from skyplane_gateway.lead.dispatcher import Dispatcher

Run = Callable[[Any], Any]
STALL_S = 240.0


def route(number: int, *nodes: str, share_gbps: float = 1.0, over: float = 0.0) -> Route:
    hops = (1,) * (len(nodes) - 1)
    return Route(number, nodes, hops, share_gbps, over_ceiling_usd_per_gb=over)


async def settle() -> None:
    """Let all tasks run that can."""
    for _ in range(20):
        await asyncio.sleep(0)


shares = st.lists(st.floats(0.2, 10.0), min_size=1, max_size=4)


@given(shares, st.integers(8, 40), st.integers(1, 3))
@settings(deadline=None, max_examples=30)
def test_shares_follow_the_plan(planned: list[float], capacity_chunks: int, sinks: int) -> None:
    """Each route takes 1/share per chunk, one after the other: what the plan promised. They
    may be off by 5 % or two chunks, whichever is more."""
    chunk, count = 1000, 300
    routes = [
        route(i, "a", f"r{i}", f"b{i % sinks}", share_gbps=share) for i, share in enumerate(planned)
    ]
    capacity = {r.nodes[-1]: capacity_chunks * chunk for r in routes}

    async def scenario() -> dict[int, int]:
        dispatcher = Dispatcher(routes, capacity, STALL_S)
        now, free_at = 0.0, dict.fromkeys(range(len(routes)), 0.0)
        ends: list[tuple[float, int, Route]] = []
        order = itertools.count()
        acquiring = asyncio.ensure_future(dispatcher.acquire(chunk))
        for _ in range(count):
            await settle()
            while acquiring.done():
                granted = acquiring.result()
                free_at[granted.number] = max(now, free_at[granted.number]) + 1 / granted.share_gbps
                heapq.heappush(ends, (free_at[granted.number], next(order), granted))
                acquiring = asyncio.ensure_future(dispatcher.acquire(chunk))
                await settle()
            now, _, ended = heapq.heappop(ends)
            dispatcher.release(ended, chunk, delivered=True)
        acquiring.cancel()
        return dispatcher.delivered_bytes()

    delivered = asyncio.run(scenario())
    assert sum(delivered.values()) == count * chunk
    for number, share in enumerate(planned):
        wanted = count * share / sum(planned)
        assert abs(delivered[number] / chunk - wanted) <= max(0.05 * wanted, 2.0)


@given(
    st.lists(st.integers(0, 3000), min_size=1, max_size=60),
    st.integers(1000, 4000),
    st.randoms(use_true_random=False),
)
@settings(deadline=None)
def test_a_sink_never_holds_more_than_it_can(lengths: list[int], capacity: int, rng: Any) -> None:
    routes = [
        route(0, "a", "b", share_gbps=3.0),
        route(1, "a", "r", "b"),
        route(2, "a", "c", share_gbps=2.0),
    ]

    async def scenario() -> None:
        dispatcher = Dispatcher(routes, {"b": capacity, "c": capacity}, STALL_S)
        held: list[tuple[Route, int]] = []

        async def send(length: int) -> None:
            held.append((await dispatcher.acquire(length), length))
            for sink in ("b", "c"):
                there = [size for granted, size in held if granted.nodes[-1] == sink and size]
                # A chunk that is larger than the capacity is sent alone.
                assert sum(there) <= capacity or len(there) == 1

        tasks = [asyncio.create_task(send(length)) for length in lengths]
        while not all(task.done() for task in tasks):
            await settle()
            if held:
                dispatcher.release(
                    *held.pop(rng.randrange(len(held))), delivered=rng.random() < 0.8
                )
        for task in tasks:
            task.result()

    asyncio.run(scenario())


async def test_a_stuck_route_does_not_stop_other_routes() -> None:
    stuck, flows = route(0, "a", "r", "b", share_gbps=9.0), route(1, "a", "b")
    dispatcher = Dispatcher([stuck, flows], {"b": 1000}, STALL_S)
    granted: dict[int, int] = {0: 0, 1: 0}
    for _ in range(200):
        lane = await dispatcher.acquire(50)
        granted[lane.number] += 1
        if lane.number == 1:
            dispatcher.release(lane, 50, delivered=True)
    # The stuck route fills its window, nine tenths of the sink.
    assert granted == {0: 18, 1: 182}


async def test_a_failed_chunk_does_not_count_for_its_route() -> None:
    one, two = route(0, "a", "b"), route(1, "a", "r", "b")
    dispatcher = Dispatcher([one, two], {"b": 1000}, STALL_S)
    first = await dispatcher.acquire(10)
    dispatcher.release(first, 10, delivered=False)
    assert await dispatcher.acquire(10) == first
    assert dispatcher.delivered_bytes() == {0: 0, 1: 0}


async def test_a_route_that_is_down_is_not_granted() -> None:
    one, two = route(0, "a", "r", "b", share_gbps=9.0), route(1, "a", "b")
    dispatcher = Dispatcher([one, two], {"b": 1000}, STALL_S)
    dispatcher.mark_down(0, "the relay is gone")
    assert [await dispatcher.acquire(10) for _ in range(3)] == [two] * 3
    assert dispatcher.reasons_down() == {0: "the relay is gone"}
    dispatcher.mark_up(0)
    assert await dispatcher.acquire(10) == one
    assert dispatcher.reasons_down() == {}


async def test_waiting_chunks_take_the_first_route_that_is_up() -> None:
    one, two = route(0, "a", "r", "b"), route(1, "a", "b")
    dispatcher = Dispatcher([one, two], {"b": 1000}, STALL_S)
    dispatcher.mark_down(0, "x")
    dispatcher.mark_down(1, "y")
    waiting = [asyncio.create_task(dispatcher.acquire(10)) for _ in range(3)]
    await asyncio.sleep(STALL_S - 1)
    assert not any(task.done() for task in waiting)
    dispatcher.mark_up(1)
    assert await asyncio.gather(*waiting) == [two] * 3


async def test_without_any_route_a_chunk_waits_for_the_stall_deadline() -> None:
    loop = asyncio.get_running_loop()
    dispatcher = Dispatcher([route(0, "a", "r", "b"), route(1, "a", "b")], {"b": 100}, STALL_S)
    dispatcher.mark_down(0, "the relay is gone")
    await asyncio.sleep(50)
    dispatcher.mark_down(1, "cut off")
    began_s = loop.time()
    await asyncio.sleep(100)
    with pytest.raises(GatewayLost) as caught:
        await dispatcher.acquire(1)
    # The time counts from the last route that went down, for every caller.
    assert loop.time() - began_s == pytest.approx(STALL_S)
    assert "a -> r -> b: the relay is gone" in caught.value.message
    assert "a -> b: cut off" in caught.value.message


async def test_a_route_is_avoided_while_there_is_another() -> None:
    slow, idle = route(0, "a", "r", "b", share_gbps=9.0), route(1, "a", "b")
    dispatcher = Dispatcher([slow, idle], {"b": 1000}, STALL_S)
    assert dispatcher.free_bytes_beside(0) == 100
    assert await dispatcher.acquire(60, avoid=0) == idle
    assert dispatcher.free_bytes_beside(0) == 40
    waiting = asyncio.create_task(dispatcher.acquire(60, avoid=0))
    await settle()
    assert dispatcher.waiting == 1
    dispatcher.mark_down(1, "gone")
    assert await waiting == slow
    assert (dispatcher.waiting, dispatcher.free_bytes_beside(0)) == (0, 0)


async def test_a_route_on_trial_takes_one_chunk_until_it_has_delivered() -> None:
    tried, good = route(0, "a", "r", "b", share_gbps=9.0), route(1, "a", "b")
    dispatcher = Dispatcher([tried, good], {"b": 1000}, STALL_S)
    dispatcher.mark_down(0, "silent")
    dispatcher.mark_up(0, on_trial=True)
    assert [await dispatcher.acquire(10) for _ in range(3)] == [tried, good, good]
    dispatcher.release(tried, 10, delivered=True)
    assert [await dispatcher.acquire(10) for _ in range(3)] == [tried] * 3


async def test_a_lead_that_every_route_refuses_fails_at_once() -> None:
    dispatcher = Dispatcher([route(0, "a", "r", "b"), route(1, "a", "b")], {"b": 100}, STALL_S)
    dispatcher.mark_down(0, "x", UnknownTransfer("let go"))
    assert (await dispatcher.acquire(1)).number == 1
    dispatcher.mark_down(1, "x", UnknownTransfer("let go"))
    with pytest.raises(UnknownTransfer, match="let go"):
        await dispatcher.acquire(1)


async def test_a_cancelled_chunk_holds_no_room() -> None:
    only = route(0, "a", "b")
    dispatcher = Dispatcher([only], {"b": 100}, STALL_S)
    await dispatcher.acquire(100)
    impatient = asyncio.create_task(dispatcher.acquire(100))
    await settle()
    impatient.cancel()
    await asyncio.wait({impatient})
    dispatcher.release(only, 100, delivered=True)
    assert await dispatcher.acquire(100) == only


async def test_empty_chunks_need_no_room() -> None:
    """Any number of empty objects may be in flight at once."""
    dispatcher = Dispatcher([route(0, "a", "b")], {"b": 100}, STALL_S)
    await dispatcher.acquire(100)
    for _ in range(10):
        await dispatcher.acquire(0)


prices = st.lists(st.integers(-3, 3), min_size=1, max_size=4).map(lambda more: [-1, *more])


@given(
    prices,
    st.lists(st.tuples(st.integers(1, 400), st.none() | st.integers(0, 4)), min_size=1),
    st.randoms(use_true_random=False),
)
@settings(deadline=None)
def test_the_bytes_of_all_routes_keep_the_ceiling(
    over: list[int], chunks: list[tuple[int, int | None]], rng: Any
) -> None:
    """Whichever route has room, as long as none of its bytes is lost."""
    routes = [route(i, "a", f"r{i}", "b", over=float(usd)) for i, usd in enumerate(over)]

    async def scenario() -> None:
        dispatcher = Dispatcher(routes, {"b": 2000}, STALL_S)
        held: list[tuple[Route, int]] = []
        sent = dict.fromkeys(range(len(routes)), 0)

        async def send(length: int, avoid: int | None) -> None:
            granted = await dispatcher.acquire(length, avoid)
            held.append((granted, length))
            sent[granted.number] += length
            assert sum(sent[i] * usd for i, usd in enumerate(over)) <= 0

        tasks = [asyncio.create_task(send(*chunk)) for chunk in chunks]
        while not all(task.done() for task in tasks):
            await settle()
            if held:
                dispatcher.release(*held.pop(rng.randrange(len(held))), delivered=True)
        for task in tasks:
            task.result()

    asyncio.run(scenario())


async def test_a_dear_route_goes_on_once_a_cheap_one_has_taken_enough() -> None:
    cheap, dear = route(0, "a", "b", over=-1.0), route(1, "a", "r", "b", over=2.0)
    dispatcher = Dispatcher([cheap, dear], {"b": 200}, STALL_S)
    assert [await dispatcher.acquire(50) for _ in range(2)] == [cheap, cheap]
    # 33 bytes less on the cheap route leave 67 of the 100 USD per GB for 66 of them.
    assert dispatcher.free_bytes_beside(0) == 33
    # What is above the ceiling for all of it waits, though its route has room.
    large, small = (asyncio.create_task(dispatcher.acquire(length)) for length in (60, 50))
    await settle()
    assert (large.done(), small.done()) == (False, True)
    assert await small == dear
    # A chunk that avoids the cheap route takes it nevertheless, rather than wait for money.
    dispatcher.release(cheap, 50, delivered=True)
    dispatcher.release(dear, 50, delivered=True)
    assert await dispatcher.acquire(40, avoid=0) == cheap
    await settle()
    assert not large.done()
    # One that the cheap route had taken long ago.
    dispatcher.credit(0, 80)
    assert await large == dear


async def test_a_grant_of_a_cheap_route_wakes_the_chunk_that_waits_for_a_dear_one() -> None:
    cheap, dear = route(0, "a", "b", over=-1.0), route(1, "a", "r", "b", over=1.0)
    dispatcher = Dispatcher([cheap, dear], {"b": 200}, STALL_S)
    assert await dispatcher.acquire(60) == cheap
    waiting = asyncio.create_task(dispatcher.acquire(70))
    await settle()
    assert not waiting.done()
    assert await dispatcher.acquire(30, avoid=1) == cheap
    await settle()
    assert waiting.done()
    assert await waiting == dear


@pytest.mark.parametrize("on_trial", [False, True])
async def test_dear_routes_carry_all_while_no_cheap_one_delivers(
    on_trial: bool, caplog: pytest.LogCaptureFixture
) -> None:
    cheap, dear = route(0, "a", "b", over=-0.01), route(1, "a", "r", "b", over=0.01)
    dispatcher = Dispatcher([cheap, dear], {"b": 200}, STALL_S)
    assert await dispatcher.acquire(80) == cheap
    waiting = asyncio.create_task(dispatcher.acquire(90))
    await settle()
    dispatcher.mark_down(0, "cut off")
    if on_trial:
        dispatcher.mark_up(0, on_trial=True)
    assert await waiting == dear
    dispatcher.release(dear, 90, delivered=True)
    assert await dispatcher.acquire(70) == dear
    assert [record.message for record in caplog.records] == [
        "no path below the price ceiling is up: dearer ones carry its bytes"
    ]
    # What they have cost is saved again before they go on.
    dispatcher.mark_up(0)
    assert not (waiting := asyncio.create_task(dispatcher.acquire(30, avoid=0))).done()
    await settle()
    assert not waiting.done()
    dispatcher.release(cheap, 80, delivered=True)
    await settle()
    assert await waiting == cheap
