"""The clock of a store's server, told by the `Date` of its answers."""

from __future__ import annotations

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.stores.error_rules import unix_s


class ServerClock:
    """By how much a server's clock is ahead of this machine's, by its last answer.

    `Date` has whole seconds, and an answer takes a while: it is known to a few seconds.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.ahead_s = 0.0

    def note(self, date: str | None) -> None:
        """Take the text of a `Date`; none, or one that is no time, changes nothing."""
        told_s = unix_s(date)
        if told_s is not None:
            self.ahead_s = told_s - self._clock.wall()


def ahead_s_of(store: object) -> float:
    """Of the clock of a store's server; 0.0 for a store on this machine, and before a listing."""
    found: ServerClock | None = getattr(store, "server_clock", None)
    return 0.0 if found is None else found.ahead_s
