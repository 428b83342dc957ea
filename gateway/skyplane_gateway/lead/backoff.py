"""Retries of the lead: one policy, with the lead's random source."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from skyplane_gateway.common.errors import StoreError
from skyplane_gateway.common.retry import RetryBudget, RetryPolicy

T = TypeVar("T")

#: Limits of every call of a lead.
POLICY = RetryPolicy(attempts=5, first_pause_s=1.0, longest_pause_s=10.0)


class Retries:
    """The policy of one transfer, for the event loop."""

    #: Most failed attempts of one call, the first included.
    attempts: Final = POLICY.attempts

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def pause(self, attempt: int) -> None:
        """Wait after that attempt, counted from 1."""
        await asyncio.sleep(POLICY.pause_s(attempt, self._rng))

    async def run(self, call: Callable[[], Awaitable[T]]) -> T:
        """The result of the call; repeats it while the store's error may pass."""
        clock = asyncio.get_running_loop().time
        budget = RetryBudget(POLICY, monotonic=clock, rng=self._rng)
        while True:
            try:
                return await call()
            except StoreError as error:
                pause_s = budget.next_pause_s(error)
            await asyncio.sleep(pause_s)
