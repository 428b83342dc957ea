"""A semaphore of which each holder takes as much as it needs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class WeightedSemaphore:
    """Limits the sum of what all holders have taken.

    Args:
        capacity: the limit; a holder that asks for more takes all of it.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._free = capacity
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def acquire(self, count: int) -> AsyncIterator[None]:
        """Wait for `count`, and hold it for the time of the context."""
        count = min(count, self._capacity)
        while self._free < count:
            await self._changed.wait()
        self._free -= count
        try:
            yield
        finally:
            self._free += count
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()
