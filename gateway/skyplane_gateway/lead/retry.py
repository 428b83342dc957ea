"""Pauses between attempts: they double, with full jitter, so that a crowd spreads out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception

from skyplane_gateway.errors import WAITED_FOR, StoreError
from skyplane_gateway.retry import RetryPolicy

T = TypeVar("T")

Sleep = Callable[[float], Awaitable[None]]

#: First and longest pause.
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 10.0

#: Attempts that brought nothing home, one after another, before something is given up.
MAX_ATTEMPTS: Final = 5

#: How long a store that throttles is asked: as long as any gateway asks its own.
THROTTLED_WITHIN_S: Final = RetryPolicy().throttle_s


def pause_s(attempt: int, rng: random.Random) -> float:
    """How long to wait after that attempt (1 is the first)."""
    # The exponent is bounded, so that attempts without number do not overflow.
    longest_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(attempt, 16))
    return rng.uniform(0, longest_s)


async def patiently(
    call: Callable[[], Awaitable[T]],
    rng: random.Random,
    *,
    sleep: Sleep = asyncio.sleep,
) -> T:
    """What the call returns; called again with pauses while the store may yet do it.

    Throttling is certain to pass, and is waited out for `THROTTLED_WITHIN_S` from the first
    call, as are credentials that have expired; other failures are borne `MAX_ATTEMPTS` times.

    Raises:
        StoreError: it is permanent, or the patience is at its end.
    """

    async def attempt() -> T:
        return await call()

    retrying = AsyncRetrying(
        sleep=sleep,
        stop=_Patience(asyncio.get_running_loop().time),
        wait=lambda state: pause_s(state.attempt_number, rng),
        retry=retry_if_exception(_may_pass),
        reraise=True,
    )
    return await retrying(attempt)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, StoreError) and not error.is_permanent


class _Patience:
    """When to stop; what a gateway waits for uses up no attempts of other failures."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_s = clock()
        self._failures = 0

    def __call__(self, state: RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome is not None else None
        if isinstance(error, WAITED_FOR):
            return self._clock() - self._began_s >= THROTTLED_WITHIN_S
        self._failures += 1
        return self._failures >= MAX_ATTEMPTS
