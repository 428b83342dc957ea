from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skyplane_gateway.config import Route
from skyplane_gateway.errors import GatewayLost
from skyplane_gateway.lead.dispatcher import Dispatcher

Run = Callable[[Any], Any]


def route(number: int, *nodes: str, share_gbps: float = 1.0) -> Route:
    return Route(number, nodes, (1,) * (len(nodes) - 1), share_gbps)


async def settle() -> None:
    """Let everybody go on who can."""
    for _ in range(20):
        await asyncio.sleep(0)


shares = st.lists(st.floats(0.2, 10.0), min_size=1, max_size=4)


@given(shares, st.integers(8, 40), st.integers(1, 3))
@settings(deadline=None, max_examples=30)
def test_shares_follow_the_plan_while_every_path_delivers_its_rate(
    planned: list[float], capacity_chunks: int, sinks: int
) -> None:
    """Each route takes 1/share per chunk, one after the other: what the plan promised."""
    chunk, count = 1000, 300
    routes = [
        route(i, "a", f"r{i}", f"b{i % sinks}", share_gbps=share) for i, share in enumerate(planned)
    ]
    capacity = {r.nodes[-1]: capacity_chunks * chunk for r in routes}

    async def scenario() -> dict[int, int]:
        dispatcher = Dispatcher(routes, capacity)
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
            await dispatcher.release(ended, chunk, delivered=True)
        acquiring.cancel()
        return dispatcher.delivered_bytes()

    delivered = asyncio.run(scenario())
    assert sum(delivered.values()) == count * chunk
    for number, share in enumerate(planned):
        wanted = count * share / sum(planned)
        assert abs(delivered[number] / chunk - wanted) <= 2.0


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
        dispatcher = Dispatcher(routes, {"b": capacity, "c": capacity})
        held: list[tuple[Route, int]] = []

        async def send(length: int) -> None:
            held.append((await dispatcher.acquire(length), length))
            for sink in ("b", "c"):
                there = [size for granted, size in held if granted.nodes[-1] == sink and size]
                # A chunk that is larger than everything goes, but alone.
                assert sum(there) <= capacity or len(there) == 1

        tasks = [asyncio.create_task(send(length)) for length in lengths]
        while not all(task.done() for task in tasks):
            await settle()
            if held:
                await dispatcher.release(
                    *held.pop(rng.randrange(len(held))), delivered=rng.random() < 0.8
                )
        for task in tasks:
            task.result()

    asyncio.run(scenario())


def test_a_stuck_route_does_not_stop_the_others(virtual: Run) -> None:
    async def scenario() -> None:
        stuck, flows = route(0, "a", "r", "b", share_gbps=9.0), route(1, "a", "b")
        dispatcher = Dispatcher([stuck, flows], {"b": 1000})
        granted: dict[int, int] = {0: 0, 1: 0}
        for _ in range(200):
            lane = await dispatcher.acquire(50)
            granted[lane.number] += 1
            if lane.number == 1:
                await dispatcher.release(lane, 50, delivered=True)
        # The stuck one fills its window, nine tenths of the sink, and no more.
        assert granted == {0: 18, 1: 182}

    virtual(scenario())


def test_a_chunk_that_failed_counts_for_nothing(virtual: Run) -> None:
    async def scenario() -> None:
        one, two = route(0, "a", "b"), route(1, "a", "r", "b")
        dispatcher = Dispatcher([one, two], {"b": 1000})
        first = await dispatcher.acquire(10)
        await dispatcher.release(first, 10, delivered=False)
        assert await dispatcher.acquire(10) == first
        assert dispatcher.delivered_bytes() == {0: 0, 1: 0}

    virtual(scenario())


def test_a_route_that_breaks_wakes_everybody_who_waits(virtual: Run) -> None:
    async def scenario() -> None:
        dispatcher = Dispatcher([route(0, "a", "b")], {"b": 100})
        await dispatcher.acquire(100)
        waiting = [asyncio.create_task(dispatcher.acquire(100)) for _ in range(3)]
        await settle()
        assert not any(task.done() for task in waiting)
        await dispatcher.mark_down(0, "the relay is gone")
        for task in waiting:
            with pytest.raises(GatewayLost, match="the relay is gone"):
                await task
        with pytest.raises(GatewayLost, match="the relay is gone"):
            await dispatcher.acquire(1)

    virtual(scenario())


def test_nobody_who_gave_up_holds_room(virtual: Run) -> None:
    async def scenario() -> None:
        only = route(0, "a", "b")
        dispatcher = Dispatcher([only], {"b": 100})
        await dispatcher.acquire(100)
        impatient = asyncio.create_task(dispatcher.acquire(100))
        await settle()
        impatient.cancel()
        await asyncio.wait({impatient})
        await dispatcher.release(only, 100, delivered=True)
        assert await dispatcher.acquire(100) == only

    virtual(scenario())


def test_nothing_weighs_nothing(virtual: Run) -> None:
    """Any number of empty objects is under way at once: they take no room at the sink."""

    async def scenario() -> None:
        dispatcher = Dispatcher([route(0, "a", "b")], {"b": 100})
        await dispatcher.acquire(100)
        for _ in range(10):
            await dispatcher.acquire(0)

    virtual(scenario())
