"""A source that does not answer any more, and those that only look like it."""

from __future__ import annotations

import asyncio
import random
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from skyplane_gateway.errors import StoreUnavailable
from skyplane_gateway.lead import source_store as module
from skyplane_gateway.lead.source_store import SourceCalls
from skyplane_gateway.objects import StoreSpec
from skyplane_gateway.stores import open_store
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.memory import create_bucket

STALL_S = 0.2
#: So long nothing is said of a source that lives: several times what one may be silent.
LOOKED_AT_S = 3 * STALL_S
GUARD_S = 60.0


@pytest.fixture
def store() -> ObjectStore:
    spec = StoreSpec("memory", uuid.uuid4().hex)
    create_bucket(spec.bucket)
    return open_store(spec)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as found:
        yield found


def calls_of(store: ObjectStore, threads: ThreadPoolExecutor) -> SourceCalls:
    return SourceCalls(store, threads, stall_deadline_s=STALL_S, rng=random.Random(1))


async def verdict(calls: SourceCalls, progress: Callable[[], object] = lambda: 0) -> str:
    """What the watch says, in the time that is enough for it to say anything."""
    try:
        async with asyncio.timeout(LOOKED_AT_S):
            await calls.watch(progress)
    except TimeoutError:
        return ""
    except StoreUnavailable as error:
        return error.message
    raise AssertionError("it ended by itself")


def test_a_call_of_which_nothing_comes_is_found_out(
    store: ObjectStore, threads: ThreadPoolExecutor
) -> None:
    """A file server that is gone, say: it used to be waited for without an end."""
    answers = threading.Event()

    async def scenario() -> None:
        calls = calls_of(store, threads)
        hanging = asyncio.create_task(calls.run(answers.wait))
        try:
            with pytest.raises(StoreUnavailable, match="has not answered"):
                async with asyncio.timeout(GUARD_S):
                    await calls.watch(lambda: 0)
        finally:
            answers.set()
        await hanging
        assert await verdict(calls) == "", "it has answered"

    asyncio.run(scenario())


@pytest.mark.parametrize("lives", ["works", "moves elsewhere", "throttles", "no clock"])
def test_a_source_that_lives_may_take_its_time(
    lives: str, store: ObjectStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def slow() -> None:
        while not answers.is_set():
            if lives != "works":  # It reads a folder, or a body, or asks once more.
                answers.wait()

    if lives == "throttles":
        monkeypatch.setattr(module, "is_throttling", lambda _: True)
    if lives == "no clock":
        monkeypatch.setattr(module, "_HAS_CLOCKS", False)

    async def scenario() -> None:
        calls = calls_of(store, threads)
        calling = asyncio.create_task(calls.run(slow))
        looks = iter(range(1 << 20))
        try:
            progress: Any = (lambda: next(looks)) if lives == "moves elsewhere" else (lambda: 0)
            assert await verdict(calls, progress) == ""
        finally:
            answers.set()
        await calling

    asyncio.run(scenario())


def test_who_waits_for_a_thread_has_the_patience_of_those_who_hold_it(
    store: ObjectStore, threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be another transfer's, and wait for a store that throttles; not for ever."""
    answers = threading.Event()

    async def scenario() -> None:
        threads.submit(answers.wait)
        calls = calls_of(store, threads)
        waiting = asyncio.create_task(calls.run(store.check))
        try:
            assert await verdict(calls) == ""
            monkeypatch.setattr(module, "THROTTLED_WITHIN_S", 0.0)
            assert "has not answered" in await verdict(calls)
        finally:
            answers.set()
        await waiting

    asyncio.run(scenario())
