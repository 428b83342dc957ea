"""Limits how often the log repeats a line about the same problem."""

from __future__ import annotations

from typing import Final

_FIRST_SILENCE_S: Final = 5.0
_LONGEST_SILENCE_S: Final = 600.0


class LogThrottle:
    """Decides when to log a problem that repeats: the silence doubles after each line.

    After ten minutes without the problem, its next line is logged at once.
    """

    def __init__(self) -> None:
        self._silence_s = _FIRST_SILENCE_S
        self._logged_s: float | None = None
        self._occurred_s = 0.0
        self._suppressed = 0

    def suffix(self, now_s: float) -> str | None:
        """Count one occurrence; text to append to its log line, or None for no line."""
        if self._logged_s is not None and now_s - self._occurred_s >= _LONGEST_SILENCE_S:
            self._logged_s, self._silence_s = None, _FIRST_SILENCE_S
        self._occurred_s = now_s
        if self._logged_s is not None:
            if now_s - self._logged_s < self._silence_s:
                self._suppressed += 1
                return None
            self._silence_s = min(_LONGEST_SILENCE_S, 2 * self._silence_s)
        self._logged_s = now_s
        suppressed, self._suppressed = self._suppressed, 0
        return f" (and {suppressed} times since the last line)" if suppressed else ""
