"""Time as a parameter, so that no test waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """Where a provisioner gets its time from.

    Args:
        monotonic: seconds, for durations.
        wall: seconds since the epoch, for what other processes must understand.
        sleep: waits for so many seconds.
    """

    monotonic: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep
