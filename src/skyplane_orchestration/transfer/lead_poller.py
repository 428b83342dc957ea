"""Polls the lead of a transfer: its status, the cost so far, fresh credentials."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.transfer.budget import Budget
from skyplane_orchestration.transfer.control import (
    FleetControl,
    SubmittedTransfer,
    TransferRequest,
)

log = logging.getLogger(__name__)

#: Seconds between two checks of all gateways. Each poll tells what the lead's gateway needs.
_CHECK_INTERVAL_S: Final = 30.0

#: How long the first poll waits, and the factor from each wait to the next.
_FIRST_PAUSE_S: Final = 0.05
_GROWTH: Final = 1.3

#: Called with each status, after every poll.
OnStatus = Callable[[TransferStatus], None]


class Poller:
    """The polls of one transfer, on whatever fleet and lead; it decides nothing.

    Attributes:
        budget: the cost so far.
    """

    def __init__(self, request: TransferRequest, clock: Clock, on_status: OnStatus | None) -> None:
        self.budget = Budget(request.job.policy.max_job_usd, clock)
        self._request = request
        self._on_status = on_status
        self._renewal = CredentialRenewal(clock)

    def poll(
        self,
        control: FleetControl,
        fleet: Fleet,
        submitted: SubmittedTransfer,
        wait_s: float = 0.0,
    ) -> TransferStatus:
        """The status, after up to `wait_s`; raises as `FleetControl.status`."""
        status = control.status(submitted, wait_s=wait_s)
        self.budget.record(fleet, status)
        return status

    def show(self, fleet: Fleet, status: TransferStatus) -> None:
        """Call `on_status`, with the cost so far and the estimate of the plan that runs."""
        if self._on_status is not None:
            estimated_usd = fleet.plan.cost.total_usd
            self._on_status(replace(status, cost=self.budget.cost, estimated_usd=estimated_usd))

    def renew_credentials(self, control: FleetControl, status: TransferStatus, epoch: int) -> None:
        """Send fresh credentials to the gateways that ask for them, at intervals."""
        self._renewal.poll(status, lambda: control.renew_credentials(self._request, epoch))


class CredentialRenewal:
    """Renews credentials in the course of polling."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._checked_s = clock.monotonic()
        self._was_needed = False

    def poll(self, status: TransferStatus, renew: Callable[[], None]) -> None:
        """Renew when the lead begins to ask for credentials, and at intervals."""
        is_new = bool(status.needs_credentials) and not self._was_needed
        self._was_needed = bool(status.needs_credentials)
        if not is_new and self._clock.monotonic() - self._checked_s < _CHECK_INTERVAL_S:
            return
        self._checked_s = self._clock.monotonic()
        try:
            renew()
        except SkyplaneError as error:
            log.warning("no fresh credentials for the gateways: %s", error)
        except Exception:  # An orchestrator's resolver may raise anything; the next call may work.
            log.exception("no fresh credentials for the gateways")


class PollPauses:
    """How long each poll waits for the end: short at first, for an early progress, then longer.

    A gateway of the previous release answers at once. Then the same time is the pause until the
    next poll. After an unanswered poll the pause is `longest_s`: a lead counts as lost after a
    number of polls, and needs time to answer again.

    Attributes:
        wait_s: how long the next poll waits.
    """

    def __init__(self, longest_s: float, first_s: float = _FIRST_PAUSE_S) -> None:
        self._longest_s = longest_s
        self.wait_s = min(first_s, longest_s)

    def after(self, status: TransferStatus | None) -> float:
        """The pause after a poll, by its answer; None without an answer."""
        if status is None:
            return self._longest_s
        pause_s = self.next_s()
        return 0.0 if status.waited else pause_s

    def next_s(self) -> float:
        """The pause after a poll that waits for nothing."""
        pause_s, self.wait_s = self.wait_s, min(self.wait_s * _GROWTH, self._longest_s)
        return pause_s
