"""How often and how long one call to a store is tried again.

Throttling and other failures in transit have budgets of their own: the first is certain to
pass and is waited out, the second may not. Waits are full jitter (Brooker, AWS Architecture
Blog, 2015): anything from nothing to a bound that doubles.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass

from skyplane_gateway.errors import Cancelled, StoreError, Throttled
from skyplane_gateway.stores.wrappers.rate_limiter import Clock, Pause


@dataclass(frozen=True, slots=True)
class Patience:
    """What one call may cost in waiting.

    Attributes:
        throttle_s: how long throttling is waited out, from its first answer.
        attempts: of a request that fails otherwise in transit, the first among them.
        base_s: the first wait is below this, each further one below twice as much,
        cap_s: but never more than this.
    """

    throttle_s: float = 300.0
    attempts: int = 6
    base_s: float = 0.2
    cap_s: float = 20.0


class Trials:
    """The budgets of one call. Not thread-safe, as a call is one thread's.

    Args:
        patience: the budgets.
        ended: set when nobody wants the answer any more.
        fraction: random numbers from 0 to 1.
        until_s: by that time it ends, whatever budget is left.
        refusing_since_s: since when the store has done nothing but throttle, whoever asked:
            all who ask it have one patience with that.
    """

    def __init__(
        self,
        patience: Patience,
        ended: threading.Event,
        *,
        clock: Clock,
        pause: Pause,
        fraction: Callable[[], float],
        until_s: float = math.inf,
        refusing_since_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self.ended = ended
        self._patience = patience
        self._until_s = until_s
        self._refusing_since_s = refusing_since_s
        self._clock = clock
        self._pause = pause
        self._fraction = fraction
        self._failures = 0
        self._throttles = 0
        self._throttled_since_s = 0.0

    @property
    def until_s(self) -> float:
        """By then this call ends, whatever it waits for."""
        return self._until_s

    @property
    def left_s(self) -> float:
        """How much longer this call waits for a store that throttles."""
        now_s = self._clock()
        since_s = self._throttled_since_s if self._throttles else now_s
        since_s = min(since_s, self._refusing_since_s())
        return min(since_s + self._patience.throttle_s, self._until_s) - now_s

    def went_on(self) -> None:
        """Something was achieved: what comes now is a new call."""
        self._failures = self._throttles = 0

    def wait(self, error: StoreError) -> None:
        """Wait before the next attempt.

        What a store asked to wait is the limiter's matter, since it holds for everybody.

        Raises:
            StoreError: the error again, when it is permanent or its budget is spent.
            Cancelled: nobody wants the answer any more.
        """
        if error.is_permanent:
            raise error
        round_number = self._count(error)
        bound_s = min(self._patience.cap_s, self._patience.base_s * 2.0 ** (round_number - 1))
        left_s = self.left_s if isinstance(error, Throttled) else self._until_s - self._clock()
        pause_s = min(bound_s * self._fraction(), left_s)
        if self._pause(self.ended, pause_s) or self.ended.is_set():
            raise Cancelled("the transfer ended while it waited for its store") from error

    def _count(self, error: StoreError) -> int:
        if not isinstance(error, Throttled):
            self._failures += 1
            if self._failures >= self._patience.attempts or self._clock() >= self._until_s:
                raise error
            return self._failures
        if self._throttles == 0:
            self._throttled_since_s = self._clock()
        self._throttles += 1
        if (error.retry_after_s or 0.0) >= self.left_s:
            raise error
        return self._throttles
