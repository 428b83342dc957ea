"""One attempt on the event loop: under the bucket's limit, and otherwise left to a thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.objects import IF_ABSENT, ObjectAttributes, ObjectInfo, StoreSpec
from skyplane_gateway.stores.async_requests import MAX_SMALL_BYTES, Unsettled, WholeObject
from skyplane_gateway.stores.wrappers.rate_limiter import HEAD_SHARE, RateLimiter, RateLimits
from skyplane_gateway.stores.wrappers.retrying import RetryingStore, try_put, try_read

BODY = b"body"
INFO = ObjectInfo("key", len(BODY), "etag", 0.0)


@dataclass
class Requests:
    """`AsyncRequests` that do as they are told."""

    fails: bool = False
    sent: int = 0
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    @asynccontextmanager
    async def _request(self) -> AsyncIterator[None]:
        self.sent += 1
        await self.gate.wait()
        if self.fails:
            raise Unsettled("told to")
        yield

    async def read(self, key: str, **_: Any) -> WholeObject:
        async with self._request():
            return WholeObject(BODY, ObjectAttributes(), ())

    async def put(self, key: str, data: Any, **_: Any) -> ObjectInfo:
        async with self._request():
            return INFO


@dataclass
class Place:
    """A store with requests over asyncio."""

    async_requests: Requests
    spec: StoreSpec = field(default_factory=lambda: StoreSpec("s3", "bkt"))


@dataclass
class Scene:
    requests: Requests
    limiter: RateLimiter
    store: RetryingStore

    @classmethod
    def of(cls, *, fails: bool = False, concurrent: int = 64) -> Scene:
        requests = Requests(fails)
        requests.gate.set()
        limiter = RateLimiter(RateLimits(concurrent=concurrent))
        place: Any = Place(requests)
        return cls(requests, limiter, RetryingStore(place, limiter))

    async def put(self, data: bytes = BODY) -> ObjectInfo | None:
        return await try_put(
            self.store,
            "key",
            data,
            attributes=ObjectAttributes(),
            precondition=IF_ABSENT,
            crc32c=0,
        )

    async def read(self) -> WholeObject | None:
        return await try_read(self.store, "key", length=len(BODY), if_match="etag")


async def test_a_request_that_succeeds_needs_no_thread() -> None:
    scene = Scene.of()
    found = await scene.read()
    assert found is not None
    assert found.data == BODY
    assert await scene.put() == INFO
    assert (scene.requests.sent, scene.limiter._in_flight) == (2, 0)


async def test_a_request_that_fails_is_left_to_a_thread() -> None:
    scene = Scene.of(fails=True)
    assert await scene.read() is None
    assert await scene.put() is None
    assert scene.limiter._in_flight == 0


@pytest.mark.parametrize(
    ("spoil", "data"),
    [
        pytest.param(lambda scene: scene.store.cancel(), BODY, id="cancelled"),
        pytest.param(lambda scene: throttle(scene.limiter), BODY, id="throttled"),
        pytest.param(lambda scene: None, bytes(MAX_SMALL_BYTES + 1), id="large"),
    ],
)
async def test_what_a_thread_does_from_the_start(
    spoil: Callable[[Scene], None], data: bytes
) -> None:
    scene = Scene.of()
    spoil(scene)
    assert await scene.put(data) is None
    assert (scene.requests.sent, scene.limiter._in_flight) == (0, 0)


def throttle(limiter: RateLimiter) -> None:
    limiter.throttled(limiter.acquire(threading.Event()), None)
    limiter.release()


async def test_a_store_without_such_requests_is_left_to_threads() -> None:
    class Plain:
        spec = StoreSpec("file", "/")

    plain: Any = Plain()
    assert await try_read(plain, "key", length=1, if_match=None) is None
    store = RetryingStore(plain, RateLimiter())
    assert await try_read(store, "key", length=1, if_match=None) is None


async def test_no_more_requests_than_the_limit_are_in_flight() -> None:
    scene = Scene.of(concurrent=2)
    scene.requests.gate.clear()
    tasks = [asyncio.create_task(scene.put()) for _ in range(5)]
    await asyncio.sleep(0)
    assert scene.requests.sent == 2
    tasks[2].cancel()  # One that waits; the others still get their turn.
    scene.requests.gate.set()
    found = await asyncio.gather(*tasks, return_exceptions=True)
    assert found.count(INFO) == 4
    assert scene.limiter._in_flight == 0


async def test_a_thread_that_releases_its_place_wakes_a_request() -> None:
    scene = Scene.of(concurrent=1)
    scene.limiter.acquire(threading.Event())
    task = asyncio.create_task(scene.put())
    await asyncio.sleep(0)
    assert scene.requests.sent == 0
    await asyncio.to_thread(scene.limiter.release)
    assert await task == INFO


async def test_cancel_ends_the_wait_for_a_place() -> None:
    scene = Scene.of(concurrent=1)
    scene.limiter.acquire(threading.Event())
    tasks = [asyncio.create_task(scene.put()) for _ in range(3)]
    await asyncio.sleep(0)
    await asyncio.to_thread(scene.store.cancel)
    assert await asyncio.gather(*tasks) == [None, None, None]


@pytest.mark.parametrize("share", [1.0, HEAD_SHARE])
async def test_the_rate_holds_on_the_loop(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    now_s = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    monkeypatch.setattr("asyncio.sleep", sleep)
    limits = RateLimits(ceiling=1000, growth_per_s=0)
    limiter = RateLimiter(limits, clock=Clock(monotonic=lambda: now_s))
    for _ in range(2001):
        assert await limiter.acquire_on_loop(threading.Event(), share) is not None
        limiter.release()
    assert now_s == pytest.approx(2.0 * share, abs=0.02)


async def test_a_store_that_throttled_gets_no_request_on_the_loop_for_a_while() -> None:
    now_s = 0.0
    limiter = RateLimiter(clock=Clock(monotonic=lambda: now_s))
    throttle(limiter)
    cancelled = threading.Event()
    assert await limiter.acquire_on_loop(cancelled) is None
    now_s = 1000.0
    assert await limiter.acquire_on_loop(cancelled) is not None
