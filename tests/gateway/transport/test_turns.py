"""Frames that wait for a connection go in the order of their chunks."""

from __future__ import annotations

import asyncio

from skyplane_gateway.transport.route import Turns


async def test_waiters_go_on_by_their_turns() -> None:
    turns, gone = Turns(), list[float]()

    async def one(turn: float) -> None:
        await turns.wait(turn)
        gone.append(turn)

    async with asyncio.TaskGroup() as group:
        for turn in (3.0, 1.0, 2.0):
            group.create_task(one(turn))
        await asyncio.sleep(0)
        assert turns.waits_before(1.5)
        assert not turns.waits_before(1.0)
        turns.set()
    assert gone == [1.0, 2.0, 3.0]
    assert not turns.waits_before(9.0)


async def test_who_is_cancelled_is_waited_for_no_longer() -> None:
    turns = Turns()
    waiter = asyncio.create_task(turns.wait(1.0))
    await asyncio.sleep(0)
    waiter.cancel()
    await asyncio.wait({waiter})
    assert not turns.waits_before(2.0)


async def test_who_is_cancelled_when_its_turn_came_wakes_those_behind() -> None:
    turns = Turns()
    first = asyncio.create_task(turns.wait(1.0))
    await asyncio.sleep(0)

    async def come_between() -> None:
        turns.set()
        first.cancel()
        assert turns.waits_before(2.0)
        await turns.wait(2.0)

    async with asyncio.timeout(5.0):
        await asyncio.create_task(come_between())
