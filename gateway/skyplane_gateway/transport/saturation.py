"""When the network, and not a store, limits a route: the rate of such times is that of the edge."""

from __future__ import annotations

from typing import Final

#: Least length of a window, in seconds.
_WINDOW_S: Final = 1.0
#: A longer one without a frame (1 MiB) is of a route that has broken, and does not count.
_LONGEST_WINDOW_S: Final = 5.0
#: A window counts if a frame waited in at least this share of it.
_LEAST_SHARE: Final = 0.8


class SaturationMeter:
    """Counts windows in which frames waited, because no connection of the next hop took one.

    The start, the tail and times in which a store is slow are left out so.

    Attributes:
        seconds: of the windows that count.
        sent_bytes: that the connections took in these windows.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sent_bytes = 0
        self._began_s: float | None = None
        self._last_s = 0.0
        self._waited_s = 0.0
        self._window_bytes = 0
        self._waits = False

    def note(self, now_s: float, *, waits: bool, sent_bytes: int = 0) -> None:
        """The connections have taken so many bytes; `waits`: from now on a frame waits."""
        if self._began_s is None:
            self._began_s = self._last_s = now_s
        if self._waits:
            self._waited_s += now_s - self._last_s
        self._last_s, self._waits = now_s, waits
        length_s = now_s - self._began_s
        if length_s >= _WINDOW_S:
            waited = self._waited_s >= _LEAST_SHARE * length_s
            if waited and length_s <= _LONGEST_WINDOW_S:
                self.seconds += length_s
                self.sent_bytes += self._window_bytes
            self._began_s, self._waited_s, self._window_bytes = now_s, 0.0, 0
        self._window_bytes += sent_bytes
