"""Retries: the policy, the pauses between attempts, and the budget of one call.

Pauses double and have full jitter (Brooker, AWS Architecture Blog, 2015).

Not by tenacity: one call has two limits, of attempts for failures and of time for throttling, and
the time may have begun in another call.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from skyplane_gateway.common.errors import WAITED_FOR, SkyplaneError, Throttled


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Limits of one call.

    Attributes:
        attempts: most failed attempts, the first included. Throttling does not count.
        throttle_s: longest wait for a store that throttles, from its first refusal.
        first_pause_s: upper bound of the first pause; it doubles with each attempt.
        longest_pause_s: upper bound of every pause.
    """

    attempts: int = 6
    throttle_s: float = 300.0
    first_pause_s: float = 0.2
    longest_pause_s: float = 20.0

    def pause_s(self, attempt: int, rng: random.Random) -> float:
        """A random pause after that attempt, counted from 1."""
        # The exponent is bounded, so that endless retries do not overflow.
        bound_s = min(self.longest_pause_s, self.first_pause_s * 2.0 ** min(attempt - 1, 32))
        return rng.uniform(0.0, bound_s)


class RetryBudget:
    """What one call has left of its policy. Not thread-safe.

    Throttling and expired credentials pass by themselves, so they have a time limit.
    Other temporary failures have a limit of attempts.

    Args:
        deadline_s: the call ends by this time of the clock.
        throttled_since_s: when the store began to throttle, as other calls see it.
    """

    def __init__(
        self,
        policy: RetryPolicy,
        *,
        monotonic: Callable[[], float],
        rng: random.Random,
        deadline_s: float = math.inf,
        throttled_since_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        self.deadline_s = deadline_s
        self._policy = policy
        self._monotonic = monotonic
        self._rng = rng
        self._throttled_since_s = throttled_since_s
        self._failures = 0
        self._throttles = 0
        self._first_throttle_s = 0.0

    @property
    def throttle_left_s(self) -> float:
        """How much longer this call waits for a store that throttles."""
        now_s = self._monotonic()
        since_s = self._first_throttle_s if self._throttles else now_s
        since_s = min(since_s, self._throttled_since_s())
        return min(since_s + self._policy.throttle_s, self.deadline_s) - now_s

    def reset(self) -> None:
        """The call made progress: its next failure is a first one."""
        self._failures = self._throttles = 0

    def next_pause_s(self, error: SkyplaneError) -> float:
        """Count a failed attempt; the pause before the next one.

        Raises:
            SkyplaneError: `error` itself, when it is permanent or its budget is spent.
        """
        if error.is_permanent:
            raise error
        if not isinstance(error, WAITED_FOR):
            self._failures += 1
            left_s = self.deadline_s - self._monotonic()
            if self._failures >= self._policy.attempts or left_s <= 0:
                raise error
            return min(self._policy.pause_s(self._failures, self._rng), left_s)
        if self._throttles == 0:
            self._first_throttle_s = self._monotonic()
        self._throttles += 1
        wanted_s = error.retry_after_s if isinstance(error, Throttled) else None
        left_s = self.throttle_left_s
        if (wanted_s or 0.0) >= left_s:
            raise error
        return min(self._policy.pause_s(self._throttles, self._rng), left_s)
