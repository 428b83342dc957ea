"""Connections that have not proven themselves yet: a bounded number, the oldest makes room.

All peers of a machine share one address there, so nothing is counted by address. A peer
of the fleet begins to speak within a round trip and proves itself within a few more; the
oldest is therefore most likely none, and a peer that had to go dials again.
"""

from __future__ import annotations

import resource
from typing import Final, Generic, TypeVar

#: On the data port: more than the 64 connections that an instance has, many times over.
MOST_ON_DATA_PORT: Final = 256

#: On the control port, where one that has begun to speak costs 300 KiB for TLS.
MOST_ON_CONTROL_PORT: Final = 64

#: What is not enough for the peers of a small fleet is no limit but a defect.
_FEWEST: Final = 16

#: Two kinds at two ports together take half of the open files at the most.
_PART_OF_FILES: Final = 8

K = TypeVar("K")


class PendingConnections(Generic[K]):
    """Who is there without proof: up to `limit` silent ones, and as many that speak.

    Each kind makes room only for its own: a crowd that says nothing does not push out those
    who are about to prove themselves, and a crowd that speaks not those who just came.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._silent: dict[K, None] = {}
        self._speaking: dict[K, None] = {}

    def __len__(self) -> int:
        return len(self._silent) + len(self._speaking)

    def came(self, who: K) -> K | None:
        """Someone has connected; returns who has to go for it, who counts no longer."""
        self._silent[who] = None
        return self._oldest_of(self._silent)

    def spoke(self, who: K) -> K | None:
        """One of them has begun to prove itself; returns who has to go for it."""
        if who not in self._silent:
            return None
        del self._silent[who]
        self._speaking[who] = None
        return self._oldest_of(self._speaking)

    def left(self, who: K) -> None:
        """It has proven itself, or is gone. Harmless for one that is not here."""
        self._silent.pop(who, None)
        self._speaking.pop(who, None)

    def _oldest_of(self, crowd: dict[K, None]) -> K | None:
        if len(crowd) <= self.limit:
            return None
        oldest = next(iter(crowd))
        del crowd[oldest]
        return oldest


def affordable(most: int) -> int:
    """`most`, or fewer where this process may open few files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return most
    return max(_FEWEST, min(most, files // _PART_OF_FILES))
