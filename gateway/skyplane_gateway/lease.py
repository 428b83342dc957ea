"""How long a gateway lives: a lease that is renewed, and a hard end that is not.

Durations are counted on a monotonic clock, which is injected: a wall clock that
jumps must neither end a fleet nor keep one alive.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from skyplane_gateway.errors import ConfigurationInvalid


class Lease:
    """The remaining life of one gateway.

    Args:
        clock: monotonic seconds.
        start_within_s: length of the first lease, which covers the wait in a
            scheduler's queue between provision and transfer.
        lease_s: length of every later one.
        hard_end_s: end of life counted from now; no renewal goes beyond it.
    """

    def __init__(
        self,
        clock: Callable[[], float],
        *,
        start_within_s: float,
        lease_s: float,
        hard_end_s: float,
    ) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._hard_end = clock() + hard_end_s
        self._end = min(clock() + start_within_s, self._hard_end)

    def renew(self, lease_s: float | None = None) -> None:
        """Live `lease_s` from now; what was left of an older lease is forgotten.

        The first renewal so ends the long wait for a start. An expired lease stays
        expired: its gateway is on the way out.

        Raises:
            ConfigurationInvalid: that is no length of time.
        """
        # NaN would win against the hard end in every comparison.
        if lease_s is not None and not 0 < lease_s < math.inf:
            raise ConfigurationInvalid(f"a lease cannot be renewed for {lease_s!r} s")
        if not self.is_expired:
            wanted = self._clock() + (self._lease_s if lease_s is None else lease_s)
            self._end = min(wanted, self._hard_end)

    @property
    def remaining_s(self) -> float:
        """Seconds to live; never negative."""
        return max(0.0, self._end - self._clock())

    @property
    def is_expired(self) -> bool:
        return self._clock() >= self._end
