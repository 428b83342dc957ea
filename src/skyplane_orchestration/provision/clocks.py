"""Clocks of clouds and hosts, which decide how old a fleet is, beside that of this machine."""

from __future__ import annotations

import logging
from dataclasses import replace
from email.utils import parsedate_to_datetime
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.formatting import duration

log = logging.getLogger(__name__)

#: Two clocks that differ by less are taken for equal: answers take time, and have whole seconds.
_MOST_SECONDS_OFF: Final = 120.0


def corrected(clock: Clock) -> Clock:
    """The clock, by the `Date` of the answers that it hears once that is minutes off."""
    ahead_s = 0.0

    def hear(date: str | None) -> None:
        nonlocal ahead_s
        try:
            found_s = parsedate_to_datetime(date or "").timestamp() - clock.wall()
        except (OverflowError, ValueError):
            return
        is_off = abs(found_s) >= _MOST_SECONDS_OFF
        if is_off and not ahead_s:
            name_difference("the cloud", found_s)
        ahead_s = found_s if is_off else 0.0

    return replace(clock, wall=lambda: clock.wall() + ahead_s, hear=hear)


def name_difference(whose: str, ahead_s: float) -> bool:
    """Whether another clock is minutes off; then a line of the log says so."""
    is_off = abs(ahead_s) >= _MOST_SECONDS_OFF
    if is_off:
        log.warning(
            "the clock of this machine is %s %s that of %s, which counts; set both by NTP",
            duration(abs(ahead_s)),
            "behind" if ahead_s > 0 else "ahead of",
            whose,
        )
    return is_off
