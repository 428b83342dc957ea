"""The rate at which a route delivers."""

from __future__ import annotations

from collections import deque
from typing import Final

#: It is that of the deliveries of so many seconds, of so many at least and at most.
_OF_S: Final = 5.0
_AT_LEAST: Final = 4
_AT_MOST: Final = 64


class DeliveryRate:
    """Of one route; times are of the event loop."""

    def __init__(self) -> None:
        self._deliveries: deque[tuple[float, int]] = deque(maxlen=_AT_MOST)

    def add(self, now_s: float, length: int) -> None:
        self._deliveries.append((now_s, length))

    def bytes_per_s(self, now_s: float) -> float:
        """0 while too few deliveries are known; less and less once the next one is late."""
        recent = [row for row in self._deliveries if row[0] >= now_s - _OF_S]
        if len(recent) < _AT_LEAST:
            recent = [*self._deliveries][-_AT_LEAST:]
        if len(recent) < _AT_LEAST or recent[0][0] >= recent[-1][0]:
            return 0.0
        (first_s, _), (last_s, next_bytes) = recent[0], recent[-1]
        size_bytes = sum(length for _, length in recent[1:])
        return min(size_bytes / (last_s - first_s), (size_bytes + next_bytes) / (now_s - first_s))

    @property
    def newest_s(self) -> float:
        """Time of the last delivery."""
        return self._deliveries[-1][0] if self._deliveries else 0.0
