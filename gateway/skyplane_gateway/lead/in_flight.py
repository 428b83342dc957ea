"""Chunks in flight: sent, and not acknowledged yet."""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Final

from skyplane_gateway.source.chunk_orders import AttemptId, ChunkOrder, ChunkOutcome

#: Attempts that were given up and whose late outcomes are still matched.
_REMEMBERED: Final = 4096


@dataclass(slots=True)
class Attempt:
    """One attempt at a chunk.

    Attributes:
        future: its outcome, and the route that delivered it; an outcome of None means that
            the attempt was given up.
        excused_s: when it was last known to wait for its store.
        is_excused: whether an end of its route said so when it was last asked.
    """

    order: ChunkOrder
    sent_s: float
    future: asyncio.Future[tuple[ChunkOutcome | None, int]]
    excused_s: float = -math.inf
    is_excused: bool = False

    def update_excuse(self, named: Collection[AttemptId], now_s: float) -> bool:
        """Record what the ends of its route say; whether it has waited for its store.

        An attempt that was named before and is no longer has waited until now.
        """
        was_excused, self.is_excused = self.is_excused, self.order.id in named
        if was_excused or self.is_excused:
            self.excused_s = now_s
        return was_excused or self.is_excused

    def resolve(self, outcome: ChunkOutcome | None, route: int) -> None:
        """Set the outcome, unless there is one."""
        if not self.future.done():
            self.future.set_result((outcome, route))


class InFlight:
    """All attempts in flight, and given-up attempts that may still be acknowledged.

    Attributes:
        progress_s: when a chunk was last delivered, or known to wait for its store.
    """

    def __init__(self) -> None:
        self._waiting: dict[AttemptId, Attempt] = {}
        #: Chunk -> its newest attempt, also when that was given up a moment ago.
        self._current: dict[int, Attempt] = {}
        self.given_up: OrderedDict[AttemptId, Attempt] = OrderedDict()
        self.progress_s = 0.0

    def __iter__(self) -> Iterator[Attempt]:
        return iter(tuple(self._waiting.values()))

    def add(self, attempt: Attempt) -> None:
        self._waiting[attempt.order.id] = self._current[attempt.order.chunk] = attempt

    def remove(self, attempt: Attempt) -> None:
        """The attempt has ended."""
        self._waiting.pop(attempt.order.id, None)
        if self._current.get(attempt.order.chunk) is attempt:
            del self._current[attempt.order.chunk]

    def get(self, attempt_id: AttemptId) -> Attempt | None:
        return self._waiting.get(attempt_id)

    def current(self, chunk: int) -> Attempt | None:
        return self._current.get(chunk)

    def give_up(self, attempt: Attempt) -> None:
        """Wait no longer for its receipt; a late one still counts."""
        del self._waiting[attempt.order.id]
        self.given_up[attempt.order.id] = attempt
        while len(self.given_up) > _REMEMBERED:
            self.given_up.popitem(last=False)
        attempt.resolve(None, attempt.order.route)

    def forget_ranges(self, chunk: int, attempts: int) -> None:
        """The chunk has ended: late receipts of its attempts only count for their routes, so
        the names of its objects are no longer kept."""
        for number in range(1, attempts + 1):
            attempt = self.given_up.get((chunk, number))
            if attempt is not None:
                attempt.order = replace(attempt.order, ranges=())
