"""A chunk on its way, and how long that usually takes."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass
from statistics import median
from typing import Final

from skyplane_gateway.chunk_orders import ChunkOrder, ChunkOutcome

#: (chunk, attempt).
Identity = tuple[int, int]

#: Sendings whose durations make the median, and how many of them it takes at least.
_MEASURED: Final = 64
_MEASURED_AT_LEAST: Final = 4

#: A chunk that is under way for so many medians is slow; none is before so many seconds.
_SLOW_MEDIANS: Final = 4.0
_SLOW_AT_LEAST_S: Final = 1.0


@dataclass(slots=True)
class Sending:
    """A chunk on its way; the future holds what became of it and the route that told.

    The outcome is None when it has lost its way.
    """

    order: ChunkOrder
    sent_s: float
    future: asyncio.Future[tuple[ChunkOutcome | None, int]]
    #: When it last only waited for its store, as far as is known, and whether an end of its
    #: route said so when it was last asked.
    excused_s: float = -math.inf
    is_excused: bool = False

    @property
    def identity(self) -> Identity:
        return (self.order.chunk, self.order.attempt)

    def excuse(self, named: Collection[Identity], now_s: float) -> bool:
        """Enter what the ends of its route say; whether it has waited for its store.

        One that was named and is not any more has waited until now: its time begins now.
        """
        was_excused, self.is_excused = self.is_excused, self.identity in named
        if was_excused or self.is_excused:
            self.excused_s = now_s
        return was_excused or self.is_excused

    def resolve(self, outcome: ChunkOutcome | None, heard_by: int) -> None:
        """Tell whoever waits for it; the first to tell is believed."""
        if not self.future.done():
            self.future.set_result((outcome, heard_by))


class Pace:
    """How long the sendings take that arrive."""

    def __init__(self) -> None:
        self._durations_s: deque[float] = deque(maxlen=_MEASURED)

    def arrived(self, after_s: float) -> None:
        self._durations_s.append(after_s)

    @property
    def slow_after_s(self) -> float | None:
        """What takes longer is slow; None while too few have arrived to tell."""
        if len(self._durations_s) < _MEASURED_AT_LEAST:
            return None
        return max(_SLOW_AT_LEAST_S, _SLOW_MEDIANS * median(self._durations_s))
