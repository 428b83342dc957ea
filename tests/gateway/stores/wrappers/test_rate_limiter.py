"""The rate limit of one bucket falls once per burst of throttling, and recovers."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.errors import Cancelled
from skyplane_gateway.stores import Credentials, StoreSpec, open_store
from skyplane_gateway.stores.wrappers.rate_limiter import RateLimiter, RateLimits

KEYS = Credentials({"access_key_id": "a", "secret_access_key": "b"})


@dataclass
class VirtualTime:
    """A clock that only pauses move."""

    now_s: float = 0.0
    pauses_s: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = Clock(monotonic=lambda: self.now_s)

    def pause(self, ended: threading.Event, seconds: float) -> bool:
        self.pauses_s.append(seconds)
        self.now_s += seconds
        return ended.is_set()


@pytest.fixture
def time() -> VirtualTime:
    return VirtualTime()


@pytest.fixture
def running() -> threading.Event:
    return threading.Event()


def limiter_in(time: VirtualTime, limits: RateLimits) -> RateLimiter:
    return RateLimiter(limits, clock=time.clock, pause=time.pause)


def ask(limiter: RateLimiter, running: threading.Event, times: int = 1) -> None:
    for _ in range(times):
        limiter.acquire(running)
        limiter.succeeded()
        limiter.release()


def test_requests_wait_for_the_rate(time: VirtualTime, running: threading.Event) -> None:
    limiter = limiter_in(time, RateLimits(ceiling=10, growth_per_s=0))
    ask(limiter, running, 21)
    assert time.now_s == pytest.approx(2.0)


def test_one_burst_of_throttling_halves_the_rate_once(
    time: VirtualTime, running: threading.Event
) -> None:
    limiter = limiter_in(time, RateLimits(ceiling=100, growth_per_s=0))
    ask(limiter, running, 200)
    assert time.now_s == pytest.approx(2.0, abs=0.02)
    permits = [limiter.acquire(running) for _ in range(8)]
    for permit in permits:
        limiter.throttled(permit, None)
        limiter.release()
    assert limiter._rate == pytest.approx(50, abs=1)
    limiter.throttled(limiter.acquire(running), None)
    assert limiter._rate < 30


def test_throttling_halves_the_rate_in_use(time: VirtualTime, running: threading.Event) -> None:
    limiter = limiter_in(time, RateLimits(ceiling=3500))
    for _ in range(40):
        ask(limiter, running)
        time.now_s += 0.1
    limiter.throttled(limiter.acquire(running), None)
    assert limiter._rate == pytest.approx(5, abs=1)


def test_the_rate_never_falls_below_its_floor(time: VirtualTime, running: threading.Event) -> None:
    limiter = limiter_in(time, RateLimits(floor=2))
    for _ in range(20):
        limiter.throttled(limiter.acquire(running), None)
        limiter.release()
    assert limiter._rate == 2


def test_success_brings_the_rate_back_to_its_ceiling(
    time: VirtualTime, running: threading.Event
) -> None:
    limiter = limiter_in(time, RateLimits(ceiling=100, growth_per_s=10))
    limiter.throttled(limiter.acquire(running), None)
    limiter.release()
    low = limiter._rate
    before_s = time.now_s
    while limiter._rate < 100:
        ask(limiter, running)
    # The rate grows by time, not by the number of requests.
    assert time.now_s - before_s == pytest.approx((100 - low) / 10, rel=0.2)
    ask(limiter, running, 100)
    assert limiter._rate == 100


def test_no_request_is_sent_before_retry_after(time: VirtualTime, running: threading.Event) -> None:
    limiter = limiter_in(time, RateLimits())
    first, second = limiter.acquire(running), limiter.acquire(running)
    limiter.throttled(first, 7.0)
    limiter.throttled(second, 3.0)
    limiter.acquire(running)
    assert time.now_s == pytest.approx(7.0, abs=0.01)


def test_a_request_above_the_limit_waits_for_another_to_end(running: threading.Event) -> None:
    limiter = RateLimiter(RateLimits(concurrent=3))
    for _ in range(3):
        limiter.acquire(running)
    fourth = threading.Thread(target=limiter.acquire, args=(running,))
    fourth.start()
    fourth.join(0.05)
    assert fourth.is_alive()
    assert limiter._in_flight == 3
    limiter.release()
    fourth.join(10)
    assert limiter._in_flight == 3


def test_a_wait_for_a_free_place_can_be_cancelled() -> None:
    limiter = RateLimiter(RateLimits(concurrent=1))
    limiter.acquire(threading.Event())
    ended, raised = threading.Event(), []

    def wait() -> None:
        try:
            limiter.acquire(ended)
        except Cancelled as error:
            raised.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    ended.set()
    limiter.wake()
    thread.join(10)
    assert len(raised) == 1
    limiter.release()
    limiter.acquire(threading.Event())  # The place is free again.


def test_a_wait_for_the_rate_can_be_cancelled(time: VirtualTime) -> None:
    ended = threading.Event()

    def end(event: threading.Event, seconds: float) -> bool:
        ended.set()
        return True

    limiter = RateLimiter(RateLimits(concurrent=1), clock=time.clock, pause=end)
    limiter.throttled(limiter.acquire(ended), 60.0)
    limiter.release()
    with pytest.raises(Cancelled):
        limiter.acquire(ended)
    time.now_s = 100.0
    limiter.acquire(threading.Event())  # The place is free again.


def test_transfers_of_one_bucket_share_its_limiter() -> None:
    def limiter(kind: str, bucket: str, url: str | None = None, **more: Any) -> RateLimiter:
        store = open_store(StoreSpec(kind, bucket, url, "r1", **more), KEYS)
        store.close()
        return store.attempts.limiter

    one = limiter("s3", "a", "http://h")
    assert limiter("s3", "a", "http://h", options=(("checksum", "none"),)) is one
    assert limiter("s3", "b", "http://h") is not one
    assert limiter("s3", "a", "http://other") is not one
    # A file system never throttles.
    assert one._rate < float("inf")
    assert limiter("file", "/")._rate == float("inf")
