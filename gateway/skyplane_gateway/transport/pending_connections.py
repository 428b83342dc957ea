"""Connections without proof of their peer: a limited number, of which the oldest is closed.

All peers behind one machine share an address, so nothing counts by address. A peer of the
fleet speaks within a round trip and proves itself within a few more. So the oldest pending
connection most likely belongs to nobody, and a peer that was closed dials again.
"""

from __future__ import annotations

import resource
from typing import Final, Generic, TypeVar

#: On the data port: four times the 64 connections of an instance.
DATA_PORT_LIMIT: Final = 256

#: On the control port, where TLS costs 300 KiB for a connection that has begun to speak.
CONTROL_PORT_LIMIT: Final = 64

#: A lower limit would not let in the peers of a small fleet.
_LOWEST_LIMIT: Final = 16

#: Silent and speaking connections at two ports take half of the open files at most.
_SHARE_OF_FILES: Final = 8

K = TypeVar("K")


class PendingConnections(Generic[K]):
    """Up to `limit` silent connections, and as many that speak.

    Each kind makes room only for its own. So silent connections cannot push out peers that
    are proving themselves, and speaking ones cannot push out peers that just connected.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._silent: dict[K, None] = {}
        self._speaking: dict[K, None] = {}

    def __len__(self) -> int:
        return len(self._silent) + len(self._speaking)

    def connected(self, connection: K) -> K | None:
        """Add a connection; returns the one to close, which is removed."""
        self._silent[connection] = None
        return self._evict(self._silent)

    def speaks(self, connection: K) -> K | None:
        """A silent connection has begun its handshake; returns the one to close."""
        if connection not in self._silent:
            return None
        del self._silent[connection]
        self._speaking[connection] = None
        return self._evict(self._speaking)

    def remove(self, connection: K) -> None:
        """The peer has proven itself, or is gone. Idempotent."""
        self._silent.pop(connection, None)
        self._speaking.pop(connection, None)

    def _evict(self, group: dict[K, None]) -> K | None:
        if len(group) <= self.limit:
            return None
        oldest = next(iter(group))
        del group[oldest]
        return oldest


def within_open_files(limit: int) -> int:
    """`limit`, or less where this process may open few files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return limit
    return max(_LOWEST_LIMIT, min(limit, files // _SHARE_OF_FILES))
