"""Threads for verbs: how long a call may wait, and for what."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import pytest

from skyplane_gateway.common.errors import StoreUnavailable, Throttled
from skyplane_gateway.sink.verb_threads import VerbThreads


async def call(threads: VerbThreads, work: Any, **more: Any) -> Any:
    limits = {"store_timeout_s": 20.0, "limit_s": 30.0, "what": "memory://b to 'head'", **more}
    return await threads.run(work, **limits)


async def test_a_call_gets_the_time_that_it_may_wait_for_its_store() -> None:
    threads = VerbThreads(1)
    assert 19.0 < await call(threads, lambda left_s: left_s) <= 20.0
    assert await call(threads, lambda left_s: left_s, store_timeout_s=math.inf) == math.inf
    threads.close()


async def test_a_call_that_has_no_turn_in_time_says_so() -> None:
    threads, release = VerbThreads(1), threading.Event()
    stuck = asyncio.create_task(call(threads, lambda _: release.wait(60)))
    late = asyncio.create_task(call(threads, lambda _: None, store_timeout_s=0.0))
    # Slow calls have threads of their own.
    assert await call(threads, lambda _: "read", is_slow=True) == "read"
    release.set()
    with pytest.raises(Throttled, match="too many requests wait"):
        await late
    assert await stuck
    threads.close()


async def test_a_store_that_does_not_respond_is_named() -> None:
    threads, release = VerbThreads(1), threading.Event()
    with pytest.raises(StoreUnavailable, match=r"memory://b to 'head' within 0\.01 s"):
        await call(threads, lambda _: release.wait(60), limit_s=0.01)
    finishing = asyncio.create_task(threads.finish())
    release.set()
    await finishing
    threads.close()
