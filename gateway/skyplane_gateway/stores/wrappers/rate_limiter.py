"""One adaptive limit of requests per bucket, shared by all transfers of the process.

Additive increase, multiplicative decrease, as in TCP (Chiu and Jain 1989): throttling halves the
rate once per burst, success lets it grow steadily. The rate starts at the ceiling, where it
costs nothing.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from weakref import WeakValueDictionary

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.errors import Cancelled, Throttled
from skyplane_gateway.common.objects import StoreSpec

if TYPE_CHECKING:
    import asyncio

#: Waits so many seconds, or until the event is set: then True.
Pause = Callable[[threading.Event, float], bool]


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Limits of one bucket. Rates are requests per second.

    Attributes:
        ceiling: S3 accepts 3,500 writes and 5,500 reads per second and prefix.
        floor: the lowest rate, so that recovery is noticed.
        growth_per_s: growth of the rate in each second without throttling.
        concurrent: requests in flight at once, bodies that are read included.
    """

    ceiling: float = 3500.0
    floor: float = 5.0
    growth_per_s: float = 50.0
    concurrent: int = 64


#: What a HEAD takes of the rate, whose ceiling is that of writes.
HEAD_SHARE: Final = 3500 / 5500

_SHRINK: Final = 0.5
#: Slots that an event loop takes ahead; its timers are no finer than a millisecond.
_BURST_S: Final = 0.01
#: Window of the measured rate, and the longest time that one success adds growth for.
_WINDOW_S: Final = 1.0

#: How long a store counts as throttling after its last refusal: longer than the longest pause
#: between two attempts and a request together.
_THROTTLING_S: Final = 60.0

#: Of stores that never throttle, such as a file system.
UNMETERED: Final = RateLimits(ceiling=math.inf)


@dataclass(frozen=True, slots=True)
class Permit:
    """One request that was let through, after so many decreases of the rate."""

    burst: int


class RateLimiter:
    """Thread-safe. Call `release` once for each `acquire`."""

    def __init__(
        self,
        limits: RateLimits | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        pause: Pause = threading.Event.wait,
    ) -> None:
        self._limits = limits or RateLimits()
        self._clock = clock
        self._pause = pause
        self._condition = threading.Condition()
        self._in_flight = 0
        #: Coroutines that wait for a place, the first first.
        self._waiters: deque[tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]] = deque()
        self._rate = self._limits.ceiling
        self._next_slot_s = 0.0
        self._closed_until_s = 0.0
        self._throttling_until_s = -math.inf
        self._throttled_since_s = math.inf
        self._burst = 0
        self._grown_at_s = clock.monotonic()
        self._window_began_s = clock.monotonic()
        self._in_window = 0.0
        self._in_last_window = 0.0

    @property
    def is_throttling(self) -> bool:
        """The store throttled recently, so that requests may still wait."""
        with self._condition:
            return self._clock.monotonic() < self._throttling_until_s

    @property
    def throttled_since_s(self) -> float:
        """When the store began to throttle every request; infinity if it does not."""
        with self._condition:
            is_over = self._clock.monotonic() >= self._throttling_until_s
            return math.inf if is_over else self._throttled_since_s

    def acquire(self, cancelled: threading.Event, timeout_s: float = math.inf) -> Permit:
        """Wait for a free place, then for the rate and for the store's `Retry-After`.

        Raises:
            Cancelled: `cancelled` was set; call `wake` after setting it.
            Throttled: the wait would take longer than the timeout.
        """
        until_s = self._clock.monotonic() + timeout_s
        with self._condition:
            while self._in_flight >= self._limits.concurrent and not cancelled.is_set():
                self._condition.wait()
            _require_running(cancelled)
            self._in_flight += 1
        try:
            while (left_s := self._until_slot()) > 0:
                if self._clock.monotonic() + left_s > until_s:
                    raise Throttled(
                        "the store throttles for longer than this request may wait; try again "
                        "later, or with fewer gateways",
                        retry_after_s=left_s,
                    )
                self._pause(cancelled, left_s)
                _require_running(cancelled)
        except BaseException:
            self.release()
            raise
        with self._condition:
            return Permit(self._burst)

    async def acquire_on_loop(
        self, cancelled: threading.Event, share: float = 1.0
    ) -> Permit | None:
        """As `acquire`, on an event loop; None while the store throttles, and when cancelled.

        Args:
            share: of a slot that the request takes.
        """
        import asyncio  # Programs without an event loop do without it.

        loop = asyncio.get_running_loop()
        while True:
            with self._condition:
                if cancelled.is_set() or self._clock.monotonic() < self._throttling_until_s:
                    return None
                if self._in_flight < self._limits.concurrent:
                    self._in_flight += 1
                    break
                waiter = loop.create_future()
                self._waiters.append((loop, waiter))
            try:
                await waiter
            except asyncio.CancelledError:
                self._wake_waiters(1)  # It may have been woken for a place.
                raise
        try:
            while (left_s := self._until_slot(_BURST_S, share)) > 0:  # noqa: ASYNC110 (slots are times)
                await asyncio.sleep(left_s)
        except asyncio.CancelledError:
            self.release()
            raise
        return Permit(self._burst)

    def release(self) -> None:
        """The request and its body are finished."""
        with self._condition:
            self._in_flight -= 1
            self._condition.notify()
            if self._waiters:
                self._wake_waiters(1)

    def wake(self) -> None:
        """Make waiting calls check whether they are cancelled."""
        with self._condition:
            self._condition.notify_all()
        self._wake_waiters(len(self._waiters))

    def _wake_waiters(self, count: int) -> None:
        """Wake so many coroutines that wait for a place."""
        with self._condition:
            while self._waiters and count:
                loop, waiter = self._waiters.popleft()
                if waiter.done() or loop.is_closed():
                    continue
                if loop is _running_loop():
                    waiter.set_result(None)
                else:
                    # It writes to a pipe, which costs more than all else here.
                    loop.call_soon_threadsafe(_finish, waiter)
                count -= 1

    def succeeded(self) -> None:
        """The store answered: the rate grows by the time since its last change, at most 1 s."""
        with self._condition:
            self._throttled_since_s = math.inf
            now_s = self._clock.monotonic()
            since_s = min(now_s - self._grown_at_s, _WINDOW_S)
            self._rate = min(self._limits.ceiling, self._rate + self._limits.growth_per_s * since_s)
            self._grown_at_s = now_s

    def throttled(self, permit: Permit, retry_after_s: float | None) -> None:
        """The store throttled this request; no request is sent before `retry_after_s`.

        A request from before the last decrease does not decrease the rate again.
        """
        with self._condition:
            now_s = self._clock.monotonic()
            is_new = now_s >= self._throttling_until_s
            self._throttled_since_s = now_s if is_new else min(self._throttled_since_s, now_s)
            if retry_after_s is not None:
                self._closed_until_s = max(self._closed_until_s, now_s + retry_after_s)
            self._throttling_until_s = max(self._closed_until_s, now_s + _THROTTLING_S)
            if permit.burst == self._burst:
                self._burst += 1
                self._roll(now_s)
                used = min(self._rate, max(self._in_window, self._in_last_window) / _WINDOW_S)
                self._rate = max(self._limits.floor, used * _SHRINK)
                # The rate does not grow for the time of throttling.
                self._grown_at_s = now_s

    def _until_slot(self, burst_s: float = 0.0, share: float = 1.0) -> float:
        """Take the next slot if it is due, and return 0; else return the seconds until then.

        Slots are not reserved ahead, so that all waiting requests gain from a higher rate. A
        caller that cannot sleep for less than a millisecond takes slots of the next `burst_s`.
        """
        with self._condition:
            now_s = self._clock.monotonic()
            slot_s = max(self._next_slot_s, self._closed_until_s)
            if slot_s > now_s + burst_s:
                return slot_s - now_s
            self._next_slot_s = max(now_s, slot_s) + share / self._rate
            self._roll(now_s)
            self._in_window += share
            return 0.0

    def _roll(self, now_s: float) -> None:
        age_s = now_s - self._window_began_s
        if age_s >= _WINDOW_S:
            self._in_last_window = self._in_window if age_s < 2 * _WINDOW_S else 0.0
            self._in_window = 0.0
            self._window_began_s = now_s


def _running_loop() -> asyncio.AbstractEventLoop | None:
    """The event loop of this thread, if it runs one."""
    import asyncio  # Programs without an event loop do without it.

    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


def _require_running(cancelled: threading.Event) -> None:
    if cancelled.is_set():
        raise Cancelled("the transfer ended while it waited for the store")


_limiters: WeakValueDictionary[tuple[str, str, str], RateLimiter] = WeakValueDictionary()
_limiters_lock = threading.Lock()


def limiter_of(spec: StoreSpec, limits: RateLimits) -> RateLimiter:
    """The limiter of a bucket, made with these limits; all transfers of the process share it."""
    name = (spec.kind, spec.endpoint_url or "", spec.bucket)
    with _limiters_lock:
        found = _limiters.get(name)
        if found is None:
            found = _limiters[name] = RateLimiter(limits)
        return found
