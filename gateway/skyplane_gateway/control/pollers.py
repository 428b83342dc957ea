"""The orchestrators that poll the transfers of a gateway."""

from __future__ import annotations

from collections import defaultdict
from typing import Final

from skyplane_gateway.common.clock import Clock

#: An orchestrator polls every second; after so long without a poll it does not count.
POLLER_TIMEOUT_S: Final = 5.0


class Pollers:
    """Sessions of orchestrators by transfer, each with the time of its last poll."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_s: defaultdict[str, dict[str, float]] = defaultdict(dict)

    def note(self, transfer: str, session: str) -> None:
        """Record a poll; a caller without a name has an empty session."""
        self._forget_silent(transfer)
        if session:
            self._seen_s[transfer][session] = self._clock.monotonic()

    def forget(self, transfer: str, session: str) -> None:
        """The session polls no more."""
        self._seen_s[transfer].pop(session, None)

    def count(self, transfer: str) -> int:
        """How many orchestrators poll the transfer now."""
        self._forget_silent(transfer)
        return len(self._seen_s[transfer])

    def _forget_silent(self, transfer: str) -> None:
        since_s = self._clock.monotonic() - POLLER_TIMEOUT_S
        seen_s = self._seen_s[transfer]
        self._seen_s[transfer] = {one: at_s for one, at_s in seen_s.items() if at_s > since_s}
