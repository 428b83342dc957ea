"""How long to wait before the next try, and how often to speak of it."""

from __future__ import annotations

import random
from typing import Final

#: The first pause is short, since most breaks are over at once; the longest bounds what
#: a neighbour that is gone for hours costs, and how long its return goes unnoticed.
FIRST_PAUSE_S: Final = 0.05
LONGEST_PAUSE_S: Final = 10.0

#: What has held this long has worked, and its next trouble is a first one again.
STABLE_S: Final = 1.0

#: Least and greatest time between two lines of a log about the same trouble.
_FIRST_SILENCE_S: Final = 5.0
_LONGEST_SILENCE_S: Final = 600.0


def pause_s(setbacks: int, rng: random.Random) -> float:
    """Pause after so many setbacks in a row: doubles to a bound, half of it is jitter."""
    ceiling_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(setbacks, 32))
    return rng.uniform(ceiling_s / 2, ceiling_s)


class Seldom:
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
