"""The long poll of a lead for outcomes."""

from __future__ import annotations

import asyncio

import pytest

from skyplane_gateway.common.errors import UnknownTransfer
from skyplane_gateway.source.chunk_orders import ChunkOutcome
from skyplane_gateway.source.outcomes import OutcomeLog


@pytest.mark.parametrize("steps", range(6))
async def test_a_poll_that_is_cancelled_as_news_comes_is_cancelled(steps: int) -> None:
    log = OutcomeLog()
    poll = asyncio.create_task(log.after(0, 60.0))
    await asyncio.sleep(0)
    asyncio.get_running_loop().call_soon(log.close)
    for _ in range(steps):
        await asyncio.sleep(0)
    if poll.cancel():
        with pytest.raises(asyncio.CancelledError):
            await poll
    else:
        assert isinstance(poll.exception(), UnknownTransfer)


async def test_a_poll_without_news_ends_after_its_time() -> None:
    assert await OutcomeLog().after(7, 0.0) == (7, [])


async def test_an_outcome_is_told_until_its_number_is_named() -> None:
    log, rows = OutcomeLog(), [ChunkOutcome(chunk, 1, ()) for chunk in (1, 2)]
    for row in rows:
        log.add(row)
    assert await log.after(0, 0.0) == (2, rows)
    assert await log.after(1, 0.0) == (2, rows[1:])
    log.close()
    assert await log.after(1, 0.0) == (2, rows[1:])
    with pytest.raises(UnknownTransfer):
        await log.after(2, 0.0)
