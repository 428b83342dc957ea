"""Pauses between attempts: they double, with full jitter, so that a crowd spreads out."""

from __future__ import annotations

import random
from typing import Final

#: First and longest pause.
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 10.0

#: Attempts that brought nothing home, one after another, before something is given up.
MAX_ATTEMPTS: Final = 5


def pause_s(attempt: int, randomness: random.Random) -> float:
    """How long to wait after that attempt (1 is the first)."""
    # The exponent is bounded, so that attempts without number do not overflow.
    longest_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(attempt, 16))
    return randomness.uniform(0, longest_s)
