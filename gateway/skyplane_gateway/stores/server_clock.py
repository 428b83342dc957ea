"""The clock of a store's server, told by the `Date` of its answers."""

from __future__ import annotations

from email.utils import parsedate_to_datetime

from skyplane_gateway.clock import SYSTEM_CLOCK, Clock


class ServerClock:
    """By how much a server's clock is ahead of this machine's, by its last answer.

    `Date` has whole seconds, and an answer takes a while: it is known to a few seconds.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.ahead_s = 0.0

    def note(self, date: str | None) -> None:
        """Take the text of a `Date`; none, or one that is no time, changes nothing."""
        try:
            told_s = parsedate_to_datetime(date or "").timestamp()
        except ValueError:
            return
        self.ahead_s = told_s - self._clock.wall()


def ahead_s_of(store: object) -> float:
    """Of the clock of a store's server; 0.0 for a store on this machine, and before a listing."""
    found: ServerClock | None = getattr(store, "server_clock", None)
    return 0.0 if found is None else found.ahead_s
