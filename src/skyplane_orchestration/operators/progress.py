"""How far a transfer is, every few seconds in the task's log."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skyplane_orchestration.units import bytes_to_gb, gbps_of

if TYPE_CHECKING:
    from skyplane_orchestration.outcome import TransferStatus


@dataclass(slots=True)
class ProgressLog:
    """Called after every poll; logs when `every_s` has gone by.

    Args:
        log: takes a format and its values, as `Logger.info` does.
        clock: monotonic seconds.
    """

    log: Callable[..., None]
    every_s: float = 5.0
    clock: Callable[[], float] = time.monotonic
    _next_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._next_s = self.clock() + self.every_s

    def __call__(self, status: TransferStatus) -> None:
        now_s = self.clock()
        if now_s < self._next_s:
            return
        self._next_s = now_s + self.every_s
        self.log(
            "%d of %d%s objects, %.3f of %.3f GB, %.2f Gbit/s, %d failed",
            status.copied,
            status.objects,
            "" if status.listed else " or more",
            bytes_to_gb(status.copied_bytes),
            bytes_to_gb(status.size_bytes),
            _rate_gbps(status),
            status.failed,
        )


def _rate_gbps(status: TransferStatus) -> float:
    """Without what an earlier epoch copied; 0 for one that has just begun."""
    if status.seconds <= 0:
        return 0.0
    return gbps_of(status.copied_bytes - status.copied_earlier_bytes, status.seconds)
