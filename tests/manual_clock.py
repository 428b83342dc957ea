"""A clock that moves only when a test says so."""

from __future__ import annotations

from skyplane_gateway.common.clock import Clock


class ManualClock:
    """Its monotonic and wall time are both `now_s`; a sleep moves it on."""

    def __init__(self, now_s: float = 1000.0) -> None:
        self.now_s = now_s
        self.clock = Clock(monotonic=self._read, wall=self._read, sleep=self.advance)

    def _read(self) -> float:
        return self.now_s

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
