"""How fast a bucket may be asked: one adaptive rate per bucket, for all transfers here.

Additive increase, multiplicative decrease, as TCP does it (Chiu and Jain 1989): a store
that throttles halves the rate at which this process asks it, once per burst; success lets
the rate grow steadily. The rate starts at the ceiling, where it costs nothing.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from weakref import WeakValueDictionary

from skyplane_gateway.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.errors import Cancelled, Throttled
from skyplane_gateway.objects import StoreSpec

#: Waits so many seconds, or until the event is set: then True.
Pause = Callable[[threading.Event, float], bool]


@dataclass(frozen=True, slots=True)
class Limits:
    """How a bucket is asked. Rates are requests per second.

    Attributes:
        ceiling: S3 takes 3,500 writes and 5,500 reads per second and prefix.
        floor: what is always tried, so that recovery is noticed.
        growth_per_s: by how much the rate grows in each second without throttling.
        concurrent: requests under way at once; bodies being read count.
    """

    ceiling: float = 3500.0
    floor: float = 5.0
    growth_per_s: float = 50.0
    concurrent: int = 64


_SHRINK: Final = 0.5
#: Over how long the rate in use is measured, and for how long one success lets it grow.
_WINDOW_S: Final = 1.0

#: For how long after its last refusal a store counts as throttling: longer than anybody
#: pauses between two attempts, with the time that a request takes.
_ECHO_S: Final = 60.0

#: Kinds of stores that ask for fewer requests; a file system never does.
_METERED: Final = frozenset({"s3"})
_UNMETERED: Final = Limits(ceiling=math.inf)


@dataclass(frozen=True, slots=True)
class Permit:
    """One request let through; `burst` is which decrease of the rate came before it."""

    burst: int


class RateLimiter:
    """Shared by threads. Every `acquire` ends in one `release`."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        clock: Clock = SYSTEM_CLOCK,
        pause: Pause = threading.Event.wait,
    ) -> None:
        self._limits = limits or Limits()
        self._clock = clock
        self._pause = pause
        self._room = threading.Condition()
        self._under_way = 0
        self._rate = self._limits.ceiling
        self._next_slot_s = 0.0
        self._closed_until_s = 0.0
        self._throttling_until_s = -math.inf
        self._refusing_since_s = math.inf
        self._burst = 0
        self._grown_at_s = clock.monotonic()
        self._window_began_s = clock.monotonic()
        self._in_window = 0
        self._in_last_window = 0

    @property
    def rate_per_s(self) -> float:
        """Requests per second that are let through now."""
        with self._room:
            return self._rate

    @property
    def under_way(self) -> int:
        """Requests that were let through and are not over."""
        with self._room:
            return self._under_way

    @property
    def is_throttling(self) -> bool:
        """The store has refused so shortly ago that requests may still wait for that."""
        with self._room:
            return self._clock.monotonic() < self._throttling_until_s

    @property
    def refusing_since_s(self) -> float:
        """Since when the store has done nothing but refuse; infinity where it has not."""
        with self._room:
            is_over = self._clock.monotonic() >= self._throttling_until_s
            return math.inf if is_over else self._refusing_since_s

    def acquire(self, ended: threading.Event, within_s: float = math.inf) -> Permit:
        """Wait for room, then for the rate and for what the store asked to wait.

        Raises:
            Cancelled: `ended` was set meanwhile; `wake` makes waiters look.
            Throttled: its turn does not come within so many seconds.
        """
        until_s = self._clock.monotonic() + within_s
        with self._room:
            while self._under_way >= self._limits.concurrent and not ended.is_set():
                self._room.wait()
            _require_running(ended)
            self._under_way += 1
        try:
            while (left_s := self._until_slot()) > 0:
                if self._clock.monotonic() + left_s > until_s:
                    raise Throttled(
                        "the store throttles for longer than this request is waited for; try again "
                        "later, or with fewer gateways",
                        retry_after_s=left_s,
                    )
                self._pause(ended, left_s)
                _require_running(ended)
        except BaseException:
            self.release()
            raise
        with self._room:
            return Permit(self._burst)

    def release(self) -> None:
        """The request is over, and its body if it has one."""
        with self._room:
            self._under_way -= 1
            self._room.notify()

    def wake(self) -> None:
        """Let waiters see that their transfer ended."""
        with self._room:
            self._room.notify_all()

    def succeeded(self) -> None:
        """The store answered: the rate grows by the time since it last changed.

        At most by that of a second: a long silence proves nothing about the store.
        """
        with self._room:
            self._refusing_since_s = math.inf
            now_s = self._clock.monotonic()
            since_s = min(now_s - self._grown_at_s, _WINDOW_S)
            self._rate = min(self._limits.ceiling, self._rate + self._limits.growth_per_s * since_s)
            self._grown_at_s = now_s

    def throttled(self, permit: Permit, retry_after_s: float | None) -> None:
        """The store asked to slow down; nobody asks it again before `retry_after_s`.

        What was under way when the rate was last decreased says nothing about the rate
        since, so it does not decrease it again.
        """
        with self._room:
            now_s = self._clock.monotonic()
            is_new = now_s >= self._throttling_until_s
            self._refusing_since_s = now_s if is_new else min(self._refusing_since_s, now_s)
            if retry_after_s is not None:
                self._closed_until_s = max(self._closed_until_s, now_s + retry_after_s)
            self._throttling_until_s = max(self._closed_until_s, now_s + _ECHO_S)
            if permit.burst == self._burst:
                self._burst += 1
                used = min(self._rate, self._rate_in_use(now_s))
                self._rate = max(self._limits.floor, used * _SHRINK)
                # Nothing was gained while the store refused.
                self._grown_at_s = now_s

    def _until_slot(self) -> float:
        """Take the next slot, if it has come: 0; else the seconds until it comes.

        Slots are not given away ahead, so a rate that grows again helps all who wait.
        """
        with self._room:
            now_s = self._clock.monotonic()
            slot_s = max(self._next_slot_s, self._closed_until_s)
            if slot_s > now_s:
                return slot_s - now_s
            self._next_slot_s = now_s + 1 / self._rate
            self._roll(now_s)
            self._in_window += 1
            return 0.0

    def _roll(self, now_s: float) -> None:
        age_s = now_s - self._window_began_s
        if age_s >= _WINDOW_S:
            self._in_last_window = self._in_window if age_s < 2 * _WINDOW_S else 0
            self._in_window = 0
            self._window_began_s = now_s

    def _rate_in_use(self, now_s: float) -> float:
        self._roll(now_s)
        return max(self._in_window, self._in_last_window) / _WINDOW_S


def _require_running(ended: threading.Event) -> None:
    if ended.is_set():
        raise Cancelled("the transfer ended while it waited for its turn at the store")


_limiters: WeakValueDictionary[tuple[str, str, str], RateLimiter] = WeakValueDictionary()
_limiters_lock = threading.Lock()


def limiter_of(spec: StoreSpec) -> RateLimiter:
    """The limiter of that bucket, the same for everybody in this process who holds one."""
    name = (spec.kind, spec.endpoint_url or "", spec.bucket)
    with _limiters_lock:
        found = _limiters.get(name)
        if found is None:
            limits = Limits() if spec.kind in _METERED else _UNMETERED
            found = _limiters[name] = RateLimiter(limits)
        return found
