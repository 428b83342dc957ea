"""Watches a submitted transfer from a process that decides nothing, such as a triggerer.

The process that submitted the transfer goes away in the meantime. It comes back when the watch
ends, and then fails over, stops, or takes the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.schema import decode, encode
from skyplane_orchestration.errors import GatewayDraining, GatewayUnreachable, UnknownTransfer
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.recovery.failover import SILENT_POLLS
from skyplane_orchestration.transfer.budget import Budget
from skyplane_orchestration.transfer.control import (
    FleetControl,
    SubmittedTransfer,
    TransferRequest,
)
from skyplane_orchestration.transfer.credential_renewal import CredentialRenewal
from skyplane_orchestration.transfer.monitor import OnStatus

#: Why a watch ends: the transfer has ended; its lead does not answer, or leads no longer; it has
#: cost its limit; the deadline of the task has passed.
WatchEnd = Literal["ended", "silent", "budget", "deadline"]

#: The first pause between two polls, and the factor from each to the next.
_FIRST_PAUSE_S: Final = 0.5
_GROWTH: Final = 1.5


@dataclass(frozen=True, slots=True)
class WatchedTransfer:
    """A submitted transfer as plain data, for a process that has no state of it.

    Args:
        owns_fleet: the fleet has been started for this transfer alone, and ends with it.
        deadline_unix_s: when the watch ends at the latest; None: never.
    """

    job: TransferJob
    fleet: Fleet
    submitted: SubmittedTransfer
    owns_fleet: bool = False
    deadline_unix_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON data without a secret."""
        return encode(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> WatchedTransfer:
        """Raises ConfigurationInvalid for a document of another version."""
        return decode(cls, document, "a watched transfer")


class TransferWatch:
    """Polls a transfer, one call at a time; renews its lease and its credentials.

    Args:
        control: opens the control sessions of a fleet.

    Attributes:
        has_answered: the lead has answered a poll.
    """

    def __init__(
        self,
        request: TransferRequest,
        watched: WatchedTransfer,
        control: Callable[[Fleet], AbstractContextManager[FleetControl]],
        clock: Clock,
        on_status: OnStatus | None = None,
    ) -> None:
        self.has_answered = False
        self._request = request
        self._watched = watched
        self._control = control
        self._clock = clock
        self._on_status = on_status
        self._budget = Budget(request.job.policy.max_job_usd, clock)
        self._renewal = CredentialRenewal(self._renew_credentials, clock)
        self._silent_polls = 0

    def poll(self) -> WatchEnd | None:
        """Ask the lead once; why the watch ends, or None while it continues."""
        watched = self._watched
        try:
            with self._control(watched.fleet) as control:
                status = control.status(watched.submitted)
        except (GatewayDraining, UnknownTransfer):
            return "silent"
        except GatewayUnreachable:
            self._silent_polls += 1
            return "silent" if self._silent_polls >= SILENT_POLLS else self._deadline()
        self._silent_polls = 0
        self.has_answered = True
        return self._verdict(status)

    def _verdict(self, status: TransferStatus) -> WatchEnd | None:
        self._budget.record(self._watched.fleet, status)
        if self._on_status is not None:
            self._on_status(replace(status, cost=self._budget.cost))
        if not status.is_running:
            return "ended"
        if self._budget.exceeded() is not None:
            return "budget"
        self._renewal.poll(status)
        return self._deadline()

    def _deadline(self) -> WatchEnd | None:
        end_s = self._watched.deadline_unix_s
        return None if end_s is None or self._clock.wall() < end_s else "deadline"

    def stop(self) -> None:
        """Tell the lead that this process follows the transfer no longer; best effort."""
        with self._control(self._watched.fleet) as control:
            control.followers(self._watched.submitted)

    def _renew_credentials(self) -> None:
        with self._control(self._watched.fleet) as control:
            control.renew_credentials(self._request, self._watched.submitted.epoch)


def pauses(longest_s: float) -> Iterator[float]:
    """The pauses between the polls of a watch, in seconds."""
    for number in itertools.count():
        pause_s = _FIRST_PAUSE_S * _GROWTH**number
        if pause_s >= longest_s:
            break
        yield pause_s
    yield from itertools.repeat(longest_s)


def follow(
    watch: TransferWatch, clock: Clock, *, for_s: float, longest_pause_s: float
) -> WatchEnd | None:
    """Poll a transfer for some seconds; why the watch has ended, or None if it has not."""
    end_s = clock.monotonic() + for_s
    for pause_s in pauses(longest_pause_s):
        end = watch.poll()
        left_s = end_s - clock.monotonic()
        if end is not None or left_s <= 0:
            break
        clock.sleep(min(pause_s, left_s))
    if end is None:
        watch.stop()
    return end
