"""Limits how often the log repeats a line about the same trouble."""

from __future__ import annotations

from typing import Final

#: Least and greatest time between two lines of a log about the same trouble.
_FIRST_SILENCE_S: Final = 5.0


_LONGEST_SILENCE_S: Final = 600.0


class LogThrottle:
    """Says when to write a line about a trouble that comes again and again.

    The silence after each line is twice the one before it, so hours of it cost a dozen
    lines; after ten minutes without any trouble the next one is written at once again.
    """

    def __init__(self) -> None:
        self._silence_s = _FIRST_SILENCE_S
        self._spoken_s: float | None = None
        self._heard_s = 0.0
        self._kept_back = 0

    def ask(self, now_s: float) -> str | None:
        """What to write behind the line; None: do not write it."""
        if self._spoken_s is not None and now_s - self._heard_s >= _LONGEST_SILENCE_S:
            self._spoken_s, self._silence_s = None, _FIRST_SILENCE_S
        self._heard_s = now_s
        if self._spoken_s is not None:
            if now_s - self._spoken_s < self._silence_s:
                self._kept_back += 1
                return None
            self._silence_s = min(_LONGEST_SILENCE_S, 2 * self._silence_s)
        self._spoken_s = now_s
        kept_back, self._kept_back = self._kept_back, 0
        return f" (and {kept_back} times since the last line)" if kept_back else ""
