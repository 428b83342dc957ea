"""How long a gateway lives: a lease that is renewed, and a hard end that is not.

Durations are counted on a monotonic clock, which is injected: a wall clock that
jumps must neither end a fleet nor keep one alive.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Hashable, Sequence
from types import TracebackType
from typing import Protocol, Self

from skyplane_gateway.clock import Clock
from skyplane_gateway.errors import ConfigurationInvalid, SkyplaneError


class Lease:
    """The remaining life of one gateway.

    Args:
        clock: measures the time.
        start_within_s: length of the first lease, which covers the wait in a
            scheduler's queue between provision and transfer.
        lease_s: length of every later one.
        hard_end_s: end of life counted from now; no renewal goes beyond it.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        start_within_s: float,
        lease_s: float,
        hard_end_s: float,
    ) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._hard_end = clock.monotonic() + hard_end_s
        self._end = min(clock.monotonic() + start_within_s, self._hard_end)

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
            wanted = self._clock.monotonic() + (self._lease_s if lease_s is None else lease_s)
            self._end = min(wanted, self._hard_end)

    @property
    def remaining_s(self) -> float:
        """Seconds to live; never negative."""
        return max(0.0, self._end - self._clock.monotonic())

    @property
    def is_expired(self) -> bool:
        return self._clock.monotonic() >= self._end


log = logging.getLogger(__name__)


class LeaseClient(Protocol):
    """A connection to the control API of one other gateway."""

    def renew(self, lease_s: float) -> None: ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


class LeaseRenewer:
    """Renews this gateway's lease and, as a lead, those of all others.

    Args:
        lease: this gateway's own.
        lease_s: what the others are renewed for.
        patience_s: how long a led transfer may show no progress and still count.
        progress: how far the led transfers are, as a value that changes while they move;
            None when none is running.
        others: names of the fleet's other gateways.
        connect: a control client for one of them.
        clock: measures the time.
    """

    def __init__(
        self,
        lease: Lease,
        *,
        lease_s: float,
        patience_s: float,
        progress: Callable[[], Hashable | None],
        others: Callable[[], Sequence[str]],
        connect: Callable[[str], LeaseClient],
        clock: Clock,
    ) -> None:
        self._lease = lease
        self._lease_s = lease_s
        self._patience_s = patience_s
        self._progress = progress
        self._others = others
        self._connect = connect
        self._clock = clock
        #: Renewals of others that are under way.
        self._asked: dict[str, asyncio.Task[None]] = {}
        self._seen: Hashable | None = None
        self._moved_at = clock.monotonic()

    async def run(self) -> None:
        """Watch over the leases; returns when this gateway's own has run out."""
        step_s = min(1.0, self._lease_s / 4)
        renewed_at = self._clock.monotonic()
        while not self._lease.is_expired:
            if self.moves() and self._clock.monotonic() - renewed_at >= self._lease_s / 3:
                renewed_at = self._clock.monotonic()
                await self.renew_fleet()
            await asyncio.sleep(step_s)

    def moves(self) -> bool:
        """Whether what is led has moved within the patience."""
        progress = self._progress()
        if progress is None:
            self._seen = None
            return False
        if progress != self._seen:
            self._seen, self._moved_at = progress, self._clock.monotonic()
        return self._clock.monotonic() - self._moved_at < self._patience_s

    async def renew_fleet(self) -> None:
        """Renew this gateway's lease and that of every other one of the fleet.

        One that hangs is not waited for beyond a third of a lease, nor asked a second time
        meanwhile: the others' leases must not run out over it.
        """
        self._lease.renew()
        for node in self._others():
            if node not in self._asked:
                self._asked[node] = asyncio.create_task(self._renew(node))
        if self._asked:
            await asyncio.wait(self._asked.values(), timeout=self._lease_s / 3)

    async def _renew(self, node: str) -> None:
        try:
            await asyncio.to_thread(self._call, node)
        except SkyplaneError as error:
            log.warning("cannot renew the lease of %s: %s", node, error)
        finally:
            del self._asked[node]

    def _call(self, node: str) -> None:
        with self._connect(node) as client:
            client.renew(self._lease_s)
