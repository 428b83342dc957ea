"""Polls a submitted transfer: to its end, or in a process that decides nothing.

The first fails over when the lead is lost, and stops the transfer at its budget. The second, such
as a triggerer, only tells when a process that can do so is needed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
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
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.recovery.failover_decisions import (
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
from skyplane_orchestration.transfer.budget import Budget
from skyplane_orchestration.transfer.client_context import ClientContext
from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer, TransferRequest
from skyplane_orchestration.transfer.in_flight import InFlightPlanner, NextPlan
from skyplane_orchestration.transfer.run_options import OnStatus, OnSubmitted
from skyplane_orchestration.transfer.watched_transfer import WatchEnd

log = logging.getLogger(__name__)

#: Codes with which a lead ends that leads no longer: its epoch is over, or a gateway was
#: restarted and does not know the transfer.
_DISPLACED: Final = (StaleEpoch.code, UnknownTransfer.code)

#: Seconds between two checks of all gateways. Each poll tells what the lead's gateway needs.
_CHECK_INTERVAL_S: Final = 30.0

#: How long the first poll waits, and the factor from each wait to the next.
_FIRST_PAUSE_S: Final = 0.05
_GROWTH: Final = 1.3


class Monitor:
    """Follows one submitted transfer. `run` needs its context manager; `poll` does not.

    Attributes:
        request, context: the transfer as a fleet gets it, and the run that follows it.
        fleet, submitted, control: where the transfer runs now.
        warnings: events that the user should see.
        budget: the cost so far.
        has_answered: the lead has answered a poll.
        is_abandoned: no gateway leads the transfer any more; its last status is derived from
            what was known before, with the reason as its error unless it succeeded.
    """

    def __init__(
        self,
        request: TransferRequest,
        fleet: Fleet,
        submitted: SubmittedTransfer,
        context: ClientContext,
        *,
        on_status: OnStatus | None = None,
        on_submitted: OnSubmitted | None = None,
    ) -> None:
        self.fleet = fleet
        self.submitted = submitted
        self.warnings: list[str] = []
        self.budget = Budget(request.job.policy.max_job_usd, context.clock)
        self.has_answered = False
        self.is_abandoned = False
        self._exceeded: BudgetReached | Stopped | None = None
        self.request = request
        self.context = context
        self._on_status = on_status
        self._on_submitted = on_submitted
        self._failover = Failover(Tenure(submitted.lead, submitted.epoch))
        self._status = TransferStatus(submitted.transfer_key, submitted.epoch)
        self._pauses = PollPauses(context.poll_s)
        self._renewal = RenewalSchedule(context.clock)
        self._planner = InFlightPlanner(self)
        self._session = ExitStack()

    def __enter__(self) -> Monitor:
        self.control = self._session.enter_context(self.context.fleets.control(self.fleet))
        return self

    def __exit__(self, *error: object) -> None:
        self._session.close()

    # -- without a decision

    def poll(self) -> WatchEnd | None:
        """Ask the lead once; why another process has to go on, or None while that can wait."""
        with self:
            event = self._ask()
            if event is None:
                return "ended"
            if not isinstance(self._failover.on(event), Poll):
                return "silent"
            if self._exceeded is not None:
                return "deadline" if isinstance(self._exceeded, Stopped) else "budget"
            if isinstance(event, Answered):
                self._renew_credentials()
                if self._planner.look(self._status) is not None:
                    return "slow"
            return None

    def follow(self, for_s: float) -> WatchEnd | None:
        """Poll for some seconds; why another process has to go on, or None if none has to."""
        clock = self.context.clock
        end_s = clock.monotonic() + for_s
        while (end := self.poll()) is None and (left_s := end_s - clock.monotonic()) > 0:
            clock.sleep(min(self._pauses.next_s(), left_s))
        if end is None:
            self.leave()
        return end

    def leave(self) -> None:
        """Tell the lead that this process follows the transfer no longer; best effort."""
        with self:
            self.control.followers(self.submitted)

    # -- to the end

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
                if isinstance(event, Answered):
                    self._pauses.next_s()
                else:
                    # It counts as lost after a number of polls, and needs time to answer again.
                    self.context.clock.sleep(self.context.poll_s)

    def _given_up(self, action: GiveUp) -> TransferStatus:
        # The last status of a displaced lead is not the end of the transfer.
        if self._status.is_running or _code_of(self._status) in _DISPLACED:
            error = FleetLost(
                f"{action.reason}. What was copied stays at the destination; resume the "
                "transfer, or run it again"
            )
            return self._abandoned(error)
        # That status tells only what the lead has lost, and not why nobody could help.
        log.warning("transfer %s: %s", self.submitted.transfer_key, action.reason)
        lost = str((self._status.error or {}).get("message", ""))
        self.warnings.append(action.reason.removeprefix(f"{lost}. "))
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
            case Poll():
                return self._poll()
            case Inspect():
                return Inspected(self.control.inspect(self.submitted.transfer_key))
            case Submit():
                return self._submit(action)
            case RestoreFleet():
                return self._restore()
            case GiveUp() | EndWell():
                return None

    def _poll(self) -> Event | None:
        event = self._ask(self._pauses.wait_s)
        if event is None and self._exceeded is not None and _code_of(self._status) == Stopped.code:
            self._status = replace(self._status, error=self._exceeded.to_dict())
        if isinstance(event, Answered):
            if self._exceeded is not None:
                log.warning("transfer %s: %s", self.submitted.transfer_key, self._exceeded.message)
                try:
                    self.control.stop(self.submitted, self._exceeded.message)
                except GatewayUnreachable:
                    return Silent("it does not answer")
            self._renew_credentials()
            found = None if self._exceeded is not None else self._planner.look(self._status)
            return event if found is None else self._move(found)
        return event

    def _move(self, found: NextPlan) -> Event:
        """Stop the lead at its journal, and give the fleet the routes of another plan."""
        try:
            self.control.stop(self.submitted, found.reason, goes_on=True)
            status = self.control.status(self.submitted)
        except GatewayUnreachable as error:
            return Silent(error.message)
        # What arrived since the last poll is paid too.
        self.budget.record(self.fleet, status)
        if status.is_running or _code_of(status) not in (StaleEpoch.code, Stopped.code):
            return Answered(status.epoch, has_progress=True)  # It has just ended by itself.
        try:
            self._use(self._moved(found))
        except SkyplaneError as error:
            return Broken(f"the fleet could not get its routes: {error.message}")
        return Displaced(found.reason, has_other_plan=True)

    def _moved(self, found: NextPlan) -> Fleet:
        """The fleet with the next plan, or as it was. Raises as `Provisioner.ensure`."""
        fleets = self.context.fleets
        try:
            fleet = fleets.rebuild(found.fleet)
        except SkyplaneError as error:
            log.warning("the plan stays, since the fleet did not take another: %s", error.message)
            return fleets.restore(self.fleet)
        log.warning("transfer %s: %s", self.submitted.transfer_key, found.reason)
        self.warnings.append(found.reason)
        return fleet

    def _ask(self, wait_s: float = 0.0) -> Event | None:
        """The lead's answer after up to `wait_s`; None when the transfer has ended."""
        if self._failover.tenure != Tenure(self.submitted.lead, self.submitted.epoch):
            self._lead_changed(self._failover.tenure)
        stop_at = self.context.stop_at
        if stop_at is not None and self.context.clock.wall() >= stop_at.unix_s:
            self._exceeded = self._exceeded or Stopped(stop_at.reason)
        try:
            status = self.control.status(self.submitted, wait_s=wait_s)
        except (GatewayDraining, UnknownTransfer) as error:
            return Displaced(error.message)
        except GatewayUnreachable as error:
            return Silent(error.message)
        self.has_answered = True
        self.budget.record(self.fleet, status)
        self._status = status
        code = _code_of(status)
        if status.state == "failed" and code in (*_DISPLACED, GatewayLost.code):
            reason = str((status.error or {}).get("message", code))
            return Broken(reason) if code == GatewayLost.code else Displaced(reason)
        if self._on_status is not None:
            # With the cost so far, and the estimate of the plan that runs.
            estimated_usd = self.fleet.plan.cost.total_usd
            self._on_status(replace(status, cost=self.budget.cost, estimated_usd=estimated_usd))
        if not status.is_running:
            return None
        self._exceeded = self._exceeded or self.budget.exceeded()
        ended = status.copied + status.skipped + status.failed
        return Answered(status.epoch, any((ended, *status.delivered_bytes.values())))

    def _renew_credentials(self) -> None:
        epoch = self.submitted.epoch
        self._renewal.poll(
            self._status, lambda: self.control.renew_credentials(self.request, epoch)
        )

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
            submitted = self.control.take_over(self.request, order)
        except StaleEpoch as error:
            return Displaced(error.message)
        except SkyplaneError as error:
            return SubmitFailed(f"{lead} could not lead it: {error.message}")
        return Submitted(Tenure(submitted.lead, submitted.epoch))

    def _restore(self) -> Event:
        log.warning("fleet %s is broken; bringing it up again", self.fleet.key)
        try:
            self._use(self._restored())
        except SkyplaneError as error:
            return RestoreFailed(error.message)
        return FleetRestored()

    def _restored(self) -> Fleet:
        """The fleet as it was, or without the regions that do not come back."""
        try:
            fleet = self.context.fleets.restore(self.fleet)
        except SkyplaneError as error:
            found = self._planner.without_lost(self._status, error.message)
            if found is None:
                raise
            return self._moved(found)
        self.warnings.append("the fleet was broken and was brought up again")
        return fleet

    def _use(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self._session.close()
        self.control = self._session.enter_context(self.context.fleets.control(fleet))
        if self._on_submitted is not None:
            self._on_submitted(fleet, self.submitted)


def _code_of(status: TransferStatus) -> str | None:
    return (status.error or {}).get("code")


class RenewalSchedule:
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

    Attributes:
        wait_s: how long the next poll waits.
    """

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self.wait_s = min(_FIRST_PAUSE_S, longest_s)

    def next_s(self) -> float:
        """The pause after a poll that waits for nothing."""
        pause_s, self.wait_s = self.wait_s, min(self.wait_s * _GROWTH, self._longest_s)
        return pause_s
