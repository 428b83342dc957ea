"""Has the copies of a transfer order their chunks in the order of the listing.

The transfers of a group share a chunk when all have ordered it. Each has a window of chunks in
flight: if they ordered in different orders, they would wait for each other with full windows.
Other transfers need no turns, and have none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any


class Turns:
    """The turns of one transfer; the first that is not over has its time."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Event, None] = {}

    def run(self, copy: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
        """The same copy with the next turn."""
        turn = asyncio.Event()
        self._open[turn] = None
        self._show_first()

        async def run() -> None:
            _current.set((self, turn))
            try:
                await copy
            finally:
                self.end(turn)

        return run()

    def end(self, turn: asyncio.Event) -> None:
        self._open.pop(turn, None)
        self._show_first()

    def _show_first(self) -> None:
        if first := next(iter(self._open), None):
            first.set()


_current: ContextVar[tuple[Turns, asyncio.Event] | None] = ContextVar("turn", default=None)


async def reach_turn() -> None:
    """Wait until the copy of this task may order its chunks."""
    if (found := _current.get()) is not None:
        await found[1].wait()


def end_turn() -> None:
    """The copy of this task has ordered all chunks that it begins with."""
    if (found := _current.get()) is not None:
        found[0].end(found[1])
