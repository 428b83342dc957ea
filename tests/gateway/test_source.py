"""The source's long poll for outcomes."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from skyplane_gateway.errors import UnknownTransfer
from skyplane_gateway.protocol import RawFrame
from skyplane_gateway.source import SourceTransfer
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import StoreSpec


async def _send_frame(frame: RawFrame) -> None:
    """Nobody sends anything here."""


def _source(threads: ThreadPoolExecutor) -> SourceTransfer:
    return SourceTransfer(
        fleet=bytes(8),
        transfer=bytes(16),
        epoch=1,
        store=open_store(StoreSpec("memory", "any")),
        send_frame=_send_frame,
        threads=threads,
        readers=1,
    )


@pytest.mark.parametrize("steps", range(6))
def test_a_poll_that_is_cancelled_as_news_comes_is_cancelled(steps: int) -> None:
    async def scenario() -> None:
        with ThreadPoolExecutor(1) as threads:
            source = _source(threads)
            poll = asyncio.create_task(source.outcomes(0, 60.0))
            await asyncio.sleep(0)
            closing = asyncio.create_task(source.close())
            for _ in range(steps):
                await asyncio.sleep(0)
            if poll.cancel():
                with pytest.raises(asyncio.CancelledError):
                    await poll
            else:
                assert isinstance(poll.exception(), UnknownTransfer)
            await closing

    asyncio.run(scenario())


def test_a_poll_without_news_ends_after_its_time() -> None:
    async def scenario() -> None:
        with ThreadPoolExecutor(1) as threads:
            source = _source(threads)
            assert await source.outcomes(7, 0.0) == (7, [])
            await source.close()

    asyncio.run(scenario())
