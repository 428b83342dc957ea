"""Watches a submitted transfer from a process that decides nothing, such as a triggerer.

The process that submitted the transfer goes away in the meantime. It comes back when the watch
ends, and then fails over, stops, or takes the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.common.schema import decode, encode
from skyplane_orchestration.errors import GatewayDraining, GatewayUnreachable, UnknownTransfer
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.recovery.failover import SILENT_POLLS
from skyplane_orchestration.transfer.control import (
    FleetControl,
    SubmittedTransfer,
    TransferRequest,
)
from skyplane_orchestration.transfer.lead_poller import OnStatus, Poller, PollPauses

#: Why a watch ends: the transfer has ended; its lead does not answer, or leads no longer; it has
#: cost its limit; the deadline of the task has passed.
WatchEnd = Literal["ended", "silent", "budget", "deadline"]

#: The first pause between two polls: a triggerer watches many transfers.
_FIRST_PAUSE_S: Final = 0.5


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
        self._watched = watched
        self._control = control
        self._clock = clock
        self._poller = Poller(request, clock, on_status)
        self._silent_polls = 0

    def poll(self) -> WatchEnd | None:
        """Ask the lead once; why the watch ends, or None while it continues."""
        watched = self._watched
        try:
            with self._control(watched.fleet) as control:
                status = self._poller.poll(control, watched.fleet, watched.submitted)
                self._silent_polls = 0
                self.has_answered = True
                return self._verdict(control, status)
        except (GatewayDraining, UnknownTransfer):
            return "silent"
        except GatewayUnreachable:
            self._silent_polls += 1
            return "silent" if self._silent_polls >= SILENT_POLLS else self._deadline()

    def _verdict(self, control: FleetControl, status: TransferStatus) -> WatchEnd | None:
        watched = self._watched
        self._poller.show(watched.fleet, status)
        if not status.is_running:
            return "ended"
        if self._poller.budget.exceeded() is not None:
            return "budget"
        self._poller.renew_credentials(control, status, watched.submitted.epoch)
        return self._deadline()

    def _deadline(self) -> WatchEnd | None:
        end_s = self._watched.deadline_unix_s
        return None if end_s is None or self._clock.wall() < end_s else "deadline"

    def stop(self) -> None:
        """Tell the lead that this process follows the transfer no longer; best effort."""
        with self._control(self._watched.fleet) as control:
            control.followers(self._watched.submitted)

    def follow(self, *, for_s: float, longest_pause_s: float) -> WatchEnd | None:
        """Poll for some seconds; why the watch has ended, or None if it has not."""
        end_s = self._clock.monotonic() + for_s
        pauses = pauses_of(longest_pause_s)
        while (end := self.poll()) is None and (left_s := end_s - self._clock.monotonic()) > 0:
            self._clock.sleep(min(pauses.next_s(), left_s))
        if end is None:
            self.stop()
        return end


def pauses_of(longest_s: float) -> PollPauses:
    """The pauses between the polls of a watch."""
    return PollPauses(longest_s, _FIRST_PAUSE_S)
