"""Retries of the lead: one policy, with the lead's random source."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type

from skyplane_gateway.common.errors import StoreError
from skyplane_gateway.common.retry import RetryBudget, RetryPolicy

T = TypeVar("T")

#: Limits of every call of a lead.
POLICY = RetryPolicy(attempts=5, first_pause_s=1.0, longest_pause_s=10.0)


class Retries:
    """The policy of one transfer, for the event loop."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._policy = POLICY

    @property
    def attempts(self) -> int:
        """Most failed attempts of one call, the first included."""
        return self._policy.attempts

    async def pause(self, attempt: int) -> None:
        """Wait after that attempt, counted from 1."""
        await asyncio.sleep(self._policy.pause_s(attempt, self._rng))

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of the call; repeats it while the store's error may pass."""
        clock = asyncio.get_running_loop().time
        budget = RetryBudget(self._policy, monotonic=clock, rng=self._rng)

        # tenacity looks at the function to know that it must be awaited.
        async def attempt() -> T:
            return await call()

        retrying = AsyncRetrying(
            retry=retry_if_exception_type(StoreError),
            wait=lambda state: budget.next_pause_s(_error_of(state)),
            sleep=asyncio.sleep,
        )
        return await retrying(attempt)


def _error_of(state: RetryCallState) -> StoreError:
    error = state.outcome.exception() if state.outcome is not None else None
    if not isinstance(error, StoreError):
        raise TypeError("tenacity asks for a pause without a store's error")
    return error
