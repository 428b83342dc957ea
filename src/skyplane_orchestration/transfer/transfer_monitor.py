"""Polls a transfer to its end: fails over when its lead is lost, and stops it at its budget."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import (
    BudgetReached,
    FleetLost,
    GatewayDraining,
    GatewayLost,
    GatewayUnreachable,
    SkyplaneError,
    StaleEpoch,
    Stopped,
    UnknownTransfer,
)
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.status import TransferStatus, empty_status
from skyplane_orchestration.recovery.failover import (
    Action,
    Answered,
    Broken,
    Displaced,
    EndWell,
    Event,
    Failover,
    FleetRestored,
    GiveUp,
    Inspect,
    Inspected,
    Poll,
    RestoreFailed,
    RestoreFleet,
    Silent,
    Submit,
    SubmitFailed,
    Submitted,
    Tenure,
)
from skyplane_orchestration.transfer.control import (
    FleetControl,
    SubmittedTransfer,
    TransferRequest,
)
from skyplane_orchestration.transfer.lead_poller import OnStatus, Poller, PollPauses

log = logging.getLogger(__name__)

#: Codes with which a lead ends that leads no longer: its epoch is over, or a gateway was
#: restarted and does not know the transfer.
_DISPLACED: Final = (StaleEpoch.code, UnknownTransfer.code)

#: Called with the fleet and the transfer on it: after the submit and after each failover.
OnSubmitted = Callable[[Fleet, SubmittedTransfer], None]


@dataclass(frozen=True, slots=True)
class StopAt:
    """When a transfer is stopped at the latest, in seconds since 1970, and why."""

    unix_s: float
    reason: str


@dataclass(frozen=True, slots=True)
class FleetAccess:
    """How a monitor reaches a fleet; `poll_s` is the longest pause between two polls.

    `restore` brings the fleet up again unless it was torn down; raises SkyplaneError.
    """

    control: Callable[[Fleet], AbstractContextManager[FleetControl]]
    restore: Callable[[Fleet], Fleet]
    poll_s: float
    clock: Clock
    stop_at: StopAt | None = None


class Monitor:
    """Follows one submitted transfer. A context manager.

    Attributes:
        fleet, submitted, control: where the transfer runs now.
        warnings: events that the user should see.
        budget: the cost so far.
        is_abandoned: no gateway leads the transfer any more; its last status is derived from
            what was known before, with the reason as its error unless it succeeded.
    """

    def __init__(
        self,
        request: TransferRequest,
        fleet: Fleet,
        submitted: SubmittedTransfer,
        access: FleetAccess,
        *,
        on_status: OnStatus | None = None,
        on_submitted: OnSubmitted | None = None,
    ) -> None:
        self.fleet = fleet
        self.submitted = submitted
        self.warnings: list[str] = []
        self._poller = Poller(request, access.clock, on_status)
        self.budget = self._poller.budget
        self.is_abandoned = False
        self._exceeded: BudgetReached | Stopped | None = None
        self._request = request
        self._access = access
        self._on_submitted = on_submitted
        self._failover = Failover(Tenure(submitted.lead, submitted.epoch))
        self._status = empty_status(submitted.transfer_key, submitted.epoch)
        self._pauses = PollPauses(access.poll_s)
        self._session = ExitStack()

    def __enter__(self) -> Monitor:
        self.control = self._session.enter_context(self._access.control(self.fleet))
        return self

    def __exit__(self, *error: object) -> None:
        self._session.close()

    def run(self) -> TransferStatus:
        """Poll until the end; the last status. Raises SkyplaneError where no failover can help."""
        action: Action = Poll(self._failover.tenure)
        while True:
            event = self._do(action)
            if event is None:
                return self._status
            action = self._failover.on(event)
            if isinstance(action, EndWell):
                return self._ended_well(action)
            if self._exceeded is not None and not isinstance(action, Poll):
                # No fleet is restored for a transfer that has to end.
                reason = f"{self._exceeded.message}. Its lead could not be told to stop"
                return self._abandoned(type(self._exceeded)(reason))
            if isinstance(action, GiveUp):
                return self._given_up(action)
            if isinstance(action, Poll):
                answer = self._status if isinstance(event, Answered) else None
                if pause_s := self._pauses.after(answer):
                    self._access.clock.sleep(pause_s)

    def _given_up(self, action: GiveUp) -> TransferStatus:
        # The last status of a displaced lead is not the end of the transfer.
        if self._status.is_running or _code_of(self._status) in _DISPLACED:
            error = FleetLost(
                f"{action.reason}. What was copied stays at the destination; resume the "
                "transfer, or run it again"
            )
            return self._abandoned(error)
        return self._status

    def _ended_well(self, action: EndWell) -> TransferStatus:
        """The success that another orchestrator has fetched, with the figures seen before."""
        self.is_abandoned = True
        self.submitted = replace(self.submitted, epoch=action.epoch)
        self.warnings.append(
            f"the transfer succeeded in epoch {action.epoch}, and another orchestrator has its "
            "result; the figures of this result are from the last status before that"
        )
        self._status = replace(
            self._status, state="succeeded", epoch=action.epoch, error=None, open_uploads=()
        )
        return self._status

    def _abandoned(self, error: SkyplaneError) -> TransferStatus:
        self.is_abandoned = True
        self._status = replace(self._status, state="failed", error=error.to_dict())
        return self._status

    def _do(self, action: Action) -> Event | None:
        """Run an action; None when the transfer has ended."""
        match action:
            case Poll(tenure):
                return self._poll(tenure)
            case Inspect():
                return Inspected(self.control.inspect(self.submitted.transfer_key))
            case Submit():
                return self._submit(action)
            case RestoreFleet():
                return self._restore()
            case GiveUp() | EndWell():
                return None

    def _poll(self, tenure: Tenure) -> Event | None:
        if tenure != Tenure(self.submitted.lead, self.submitted.epoch):
            self._lead_changed(tenure)
        self._exceeded = self._exceeded or self._overdue()
        try:
            status = self._poller.poll(
                self.control, self.fleet, self.submitted, self._pauses.wait_s
            )
        except (GatewayDraining, UnknownTransfer) as error:
            return Displaced(error.message)
        except GatewayUnreachable as error:
            return Silent(error.message)
        self._status = status
        code = _code_of(status)
        if status.state == "failed" and code in (*_DISPLACED, GatewayLost.code):
            reason = str((status.error or {}).get("message", code))
            return Broken(reason) if code == GatewayLost.code else Displaced(reason)
        self._poller.show(self.fleet, status)
        if not status.is_running:
            if self._exceeded is not None and code == Stopped.code:
                self._status = replace(status, error=self._exceeded.to_dict())
            return None
        self._exceeded = self._exceeded or self.budget.exceeded()
        if self._exceeded is not None and not self._stop(self._exceeded):
            return Silent("it does not answer")
        self._poller.renew_credentials(self.control, status, self.submitted.epoch)
        return Answered(status.epoch, _has_progress(status))

    def _overdue(self) -> Stopped | None:
        stop_at = self._access.stop_at
        if stop_at is None or self._access.clock.wall() < stop_at.unix_s:
            return None
        return Stopped(stop_at.reason)

    def _stop(self, exceeded: SkyplaneError) -> bool:
        """Tell the lead to stop; False if it does not answer."""
        log.warning("transfer %s: %s", self.submitted.transfer_key, exceeded.message)
        try:
            self.control.stop(self.submitted, exceeded.message)
        except GatewayUnreachable:
            return False
        return True

    def _lead_changed(self, tenure: Tenure) -> None:
        before = self.submitted
        self.submitted = replace(before, epoch=tenure.epoch, lead=tenure.lead)
        instead = "again" if tenure.lead == before.lead else f"in place of {before.lead}"
        text = f"{tenure.lead} leads {instead}, in epoch {tenure.epoch}"
        log.warning("transfer %s: %s", before.transfer_key, text)
        self.warnings.append(text)
        if self._on_submitted is not None:
            self._on_submitted(self.fleet, self.submitted)

    def _submit(self, order: Submit) -> Event:
        lead, epoch = order.tenure.lead, order.tenure.epoch
        key = self.submitted.transfer_key
        log.warning("transfer %s: asking %s to lead epoch %d", key, lead, epoch)
        try:
            submitted = self.control.take_over(self._request, order)
        except StaleEpoch as error:
            return Displaced(error.message)
        except SkyplaneError as error:
            return SubmitFailed(f"{lead} could not lead it: {error.message}")
        return Submitted(Tenure(submitted.lead, submitted.epoch))

    def _restore(self) -> Event:
        log.warning("fleet %s is broken; bringing it up again", self.fleet.key)
        try:
            self.fleet = self._access.restore(self.fleet)
        except SkyplaneError as error:
            return RestoreFailed(error.message)
        self._session.close()
        self.control = self._session.enter_context(self._access.control(self.fleet))
        self.warnings.append("the fleet was broken and was brought up again")
        if self._on_submitted is not None:
            self._on_submitted(self.fleet, self.submitted)
        return FleetRestored()


def _code_of(status: TransferStatus) -> str | None:
    return (status.error or {}).get("code")


def _has_progress(status: TransferStatus) -> bool:
    ended = (status.copied, status.skipped, status.failed)
    return any(ended) or any(status.delivered_bytes.values())
