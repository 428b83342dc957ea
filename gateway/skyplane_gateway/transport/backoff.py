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


def pause_s(setbacks: int, rng: random.Random) -> float:
    """Pause after so many setbacks in a row: doubles to a bound, half of it is jitter."""
    ceiling_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(setbacks, 32))
    return rng.uniform(ceiling_s / 2, ceiling_s)
