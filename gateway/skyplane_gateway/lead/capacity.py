"""Room for so many of something at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Room:
    """Like a semaphore from which each takes as much as it needs.

    Args:
        capacity: how much there is; whoever needs more takes all of it.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._free = capacity
        self._changed = asyncio.Event()

    @asynccontextmanager
    async def taken(self, count: int) -> AsyncIterator[None]:
        """Wait until there is room for `count`, and keep it."""
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
