"""Pauses between attempts: they double, with full jitter, so that a crowd spreads out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final, TypeVar

from skyplane_gateway.errors import StoreError

T = TypeVar("T")

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


async def patiently(call: Callable[[], Awaitable[T]], randomness: random.Random) -> T:
    """What the call returns; called again with pauses while the store may yet do it.

    Raises:
        StoreError: it is permanent, or the attempts are used up.
    """
    for attempt in count(1):
        try:
            return await call()
        except StoreError as error:
            if error.is_permanent or attempt == MAX_ATTEMPTS:
                raise
        await asyncio.sleep(pause_s(attempt, randomness))
    raise AssertionError("the last attempt either returns or raises")
