"""The lease of a gateway, which is renewed, and its hard end, which is not.

Durations use the monotonic clock: a wall clock that jumps must not end a fleet, nor keep
it alive.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Hashable, Sequence
from typing import Protocol

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.errors import ConfigurationInvalid, SkyplaneError

log = logging.getLogger(__name__)


class Lease:
    """The remaining life of one gateway.

    Args:
        start_within_s: the first lease. It covers the wait in a scheduler's queue between
            provision and transfer.
        lease_s: every later lease.
        hard_end_s: the end of life, counted from now; no renewal exceeds it.
    """

    def __init__(
        self, clock: Clock, *, start_within_s: float, lease_s: float, hard_end_s: float
    ) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._hard_end = clock.monotonic() + hard_end_s
        self._end = min(clock.monotonic() + start_within_s, self._hard_end)

    def renew(self, lease_s: float | None = None) -> None:
        """Replace the lease by `lease_s` from now, even if that is shorter.

        So the first renewal ends the long first lease. An expired lease stays expired: its
        gateway is ending.
        """
        # NaN passes every comparison with the hard end.
        if lease_s is not None and not 0 < lease_s < math.inf:
            raise ConfigurationInvalid(f"a lease cannot be renewed for {lease_s!r} s")
        if not self.is_expired:
            wanted = self._clock.monotonic() + (self._lease_s if lease_s is None else lease_s)
            self._end = min(wanted, self._hard_end)

    @property
    def remaining_s(self) -> float:
        """Seconds to live; never negative."""
        return max(0.0, self._end - self._clock.monotonic())

    @property
    def is_expired(self) -> bool:
        return self._clock.monotonic() >= self._end


class LeaseClient(Protocol):
    """The part of a control client that renews a lease."""

    def renew(self, lease_s: float) -> None: ...


class LeaseRenewer:
    """Renews this gateway's lease and, as a lead, those of all others.

    Args:
        stall_deadline_s: a transfer without progress for this long renews no lease.
        progress: a value that changes while the led transfers make progress; None when none
            is running.
        others: names of the fleet's other gateways.
        connect: a control client for one of them.
    """

    def __init__(
        self,
        lease: Lease,
        *,
        lease_s: float,
        stall_deadline_s: float,
        progress: Callable[[], Hashable | None],
        others: Callable[[], Sequence[str]],
        connect: Callable[[str], LeaseClient],
        clock: Clock,
    ) -> None:
        self._lease = lease
        self._lease_s = lease_s
        self._stall_deadline_s = stall_deadline_s
        self._progress = progress
        self._others = others
        self._connect = connect
        self._clock = clock
        #: Renewals of other gateways in flight.
        self._in_flight: dict[str, asyncio.Task[None]] = {}
        self._last_progress: Hashable | None = None
        self._progress_at_s = clock.monotonic()

    async def run(self) -> None:
        """Renew the leases; returns when this gateway's own lease has expired."""
        step_s = min(1.0, self._lease_s / 4)
        renewed_at = self._clock.monotonic()
        while not self._lease.is_expired:
            if self.is_progressing() and self._clock.monotonic() - renewed_at >= self._lease_s / 3:
                renewed_at = self._clock.monotonic()
                await self.renew_fleet()
            await asyncio.sleep(step_s)

    def is_progressing(self) -> bool:
        """Whether the led transfers made progress within the stall deadline."""
        progress = self._progress()
        if progress is None:
            self._last_progress = None
            return False
        if progress != self._last_progress:
            self._last_progress, self._progress_at_s = progress, self._clock.monotonic()
        return self._clock.monotonic() - self._progress_at_s < self._stall_deadline_s

    async def renew_fleet(self) -> None:
        """Renew the leases of all gateways of the fleet.

        A gateway that hangs delays the others by a third of a lease at most. It gets no
        second request while the first is in flight.
        """
        self._lease.renew()
        for node in self._others():
            if node not in self._in_flight:
                self._in_flight[node] = asyncio.create_task(self._renew(node))
        if self._in_flight:
            await asyncio.wait(self._in_flight.values(), timeout=self._lease_s / 3)

    async def _renew(self, node: str) -> None:
        try:
            await asyncio.to_thread(self._connect(node).renew, self._lease_s)
        except SkyplaneError as error:
            log.warning("cannot renew the lease of %s: %s", node, error)
        finally:
            del self._in_flight[node]
