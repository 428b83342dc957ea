"""A file system that does not answer any more, and sources that may take their time."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from skyplane_gateway.common.errors import StoreUnavailable
from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.lead.backoff import Retries
from skyplane_gateway.lead.source_store import SourceStore
from skyplane_gateway.stores import open_store

DEADLINE_S = 0.05
GUARD_S = 60.0


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as found:
        yield found


def source_of(
    spec: StoreSpec, threads: ThreadPoolExecutor, progress: Callable[[], object] = lambda: 0
) -> SourceStore:
    retries = Retries(random.Random(1))
    return SourceStore(
        open_store(spec), threads, deadline_s=DEADLINE_S, progress=progress, retries=retries
    )


def test_a_file_system_that_hangs_ends_the_transfer(
    tmp_path: Path, threads: ThreadPoolExecutor
) -> None:
    answers = threading.Event()

    async def scenario() -> None:
        source = source_of(StoreSpec("file", str(tmp_path)), threads)
        hanging = asyncio.create_task(source.run(answers.wait))
        try:
            with pytest.raises(StoreUnavailable, match="has not answered"):
                async with asyncio.timeout(GUARD_S):
                    await source.watch()
        finally:
            answers.set()
        await hanging

    asyncio.run(scenario())


@pytest.mark.parametrize("why", ["progress", "large", "waits for a thread", "other store"])
def test_a_source_may_take_its_time(why: str, tmp_path: Path, threads: ThreadPoolExecutor) -> None:
    answers = threading.Event()
    if why == "waits for a thread":
        threads.submit(answers.wait)

    async def scenario() -> None:
        looks = iter(range(1 << 20))
        progress: Any = (lambda: next(looks)) if why == "progress" else (lambda: 0)
        spec = (
            StoreSpec("memory", "b") if why == "other store" else StoreSpec("file", str(tmp_path))
        )
        source = source_of(spec, threads, progress)
        size = 10**9 if why == "large" else 0
        calling = asyncio.create_task(source.run(answers.wait, size_bytes=size))
        try:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(5 * DEADLINE_S):
                    await source.watch()
        finally:
            answers.set()
        await calling

    asyncio.run(scenario())
