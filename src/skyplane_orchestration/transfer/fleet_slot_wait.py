"""Waits until a deployment may start another fleet."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import TooManyFleets

Found = TypeVar("Found")

#: The first pause between two looks. A look asks all regions of all clouds.
_FIRST_PAUSE_S: Final = 30.0
#: Hundreds of runs of a backfill may wait at the same time.
_LONGEST_PAUSE_S: Final = 300.0
_GROWTH: Final = 1.5
#: Pauses differ by this share, so that runs that begin together do not look together.
_SPREAD: Final = 0.25


@dataclass(frozen=True, slots=True)
class FleetWait:
    """How long a run has waited for its fleet.

    Args:
        looks: how often it has found too many fleets.
        waited_s: the pauses since the first look, in seconds.
    """

    looks: int = 0
    waited_s: float = 0.0

    def pause_s(self, rng: random.Random) -> float:
        """The pause before the next look: 30 s at first and 300 s at last, more or less."""
        usual_s = min(_FIRST_PAUSE_S * _GROWTH**self.looks, _LONGEST_PAUSE_S)
        return usual_s * rng.uniform(1 - _SPREAD, 1 + _SPREAD)

    def after(self, pause_s: float) -> FleetWait:
        """The wait after one more look and pause."""
        return FleetWait(self.looks + 1, self.waited_s + pause_s)


#: Is told before each pause why the run waits, and for how long it has.
OnFull = Callable[[TooManyFleets, FleetWait], None]


def with_room(
    call: Callable[[], Found], on_full: OnFull | None, clock: Clock, rng: random.Random
) -> Found:
    """The answer of the call, once there is room. Raises TooManyFleets without `on_full`."""
    wait = FleetWait()
    while True:
        try:
            return call()
        except TooManyFleets as error:
            if on_full is None:
                raise
            on_full(error, wait)
            pause_s = wait.pause_s(rng)
            clock.sleep(pause_s)
            wait = wait.after(pause_s)
