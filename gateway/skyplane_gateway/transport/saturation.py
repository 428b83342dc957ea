"""When the network, and not a store, limits a route: the rate of such times is that of the edge."""

from __future__ import annotations

from typing import Final

#: Time between two samples while there is something to send, in seconds.
SAMPLE_S: Final = 1.0
#: Bytes wait for the network if they do in one of so many connections. Of 64 connections on a full
#: line of 0.4 Gbit/s they did in 18 to 56, in 11 of 12 samples.
WAITING_PARTS: Final = 8
#: A longer time between two samples is of a route that stood still, and does not count.
_LONGEST_S: Final = 5.0


class SaturationMeter:
    """Counts the times between samples in which bytes waited for the network.

    The start, the tail and times in which a store is slow are left out so.

    Attributes:
        seconds: of the times that count.
        sent_bytes: that went onto the network in these times.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sent_bytes = 0
        self._last_s = float("-inf")
        self._last_bytes: int | None = None

    def sample(self, now_s: float, on_network_bytes: int, *, waits: bool) -> None:
        """The connections have sent so many bytes since they began; `waits`: more wait there."""
        length_s, before = now_s - self._last_s, self._last_bytes
        self._last_s, self._last_bytes = now_s, on_network_bytes if waits else None
        if before is not None and waits and length_s <= _LONGEST_S and on_network_bytes > before:
            self.seconds += length_s
            self.sent_bytes += on_network_bytes - before
