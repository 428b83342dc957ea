from __future__ import annotations

import asyncio
from contextlib import closing

from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes, ObjectInfo, Precondition
from skyplane_gateway.lead.pipeline import DeferredObjects
from skyplane_gateway.selection.selector import Selection


def row(number: int) -> Selection:
    attributes = ObjectAttributes(content_type="text/plain") if number % 2 else None
    source = ObjectInfo(f"a\nb/é{number:04}", number, f'"{number}"', 1.5, number, attributes)
    fence = IF_ABSENT if number % 3 else Precondition(if_match=f'"{number}"')
    return Selection(source, f"to/{number:04}", None, "copy", "why", fence)


def test_objects_come_back_in_order_from_memory_and_from_disk() -> None:
    async def scenario(count: int) -> None:
        with closing(DeferredObjects()) as waiting:
            rows = [row(number) for number in range(count)]
            for one in rows:
                waiting.add(one)
            assert [one async for one in waiting.rows()] == rows

    for count in (0, 1, 5000):
        asyncio.run(scenario(count))


async def test_other_tasks_run_while_objects_are_read() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    with closing(DeferredObjects()) as waiting:
        for number in range(1000):
            waiting.add(row(number))
        task = asyncio.create_task(other())
        assert len([one async for one in waiting.rows()]) == 1000
        task.cancel()
    assert turns >= 4
