"""The clock that is passed to everything that measures time."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Clock:
    """Time of the system, or of a test.

    Coroutines sleep with `asyncio.sleep` and measure with `loop.time()`.

    Args:
        monotonic: seconds, for durations.
        wall: seconds since 1970, for values that other processes or stores read.
        sleep: blocks the thread for so many seconds.
        hear: takes the `Date` of an answer, for clocks that go by another machine's.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
    hear: Callable[[str | None], None] = lambda _: None


SYSTEM_CLOCK: Final = Clock()
