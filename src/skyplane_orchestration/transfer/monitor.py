"""Polls a transfer to its end, hands it to another lead when its own falls silent, and stops
it when it has cost what it may."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from typing import Final, TypedDict

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
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.status import TransferStatus, empty_status
from skyplane_orchestration.recovery.failover import (
    Action,
    Answered,
    Broken,
    Displaced,
    EndedWell,
    Ensured,
    EnsureFleet,
    Event,
    Failover,
    GiveUp,
    Look,
    NotEnsured,
    Poll,
    Refused,
    Seen,
    Silent,
    Submit,
    Taken,
    Tenure,
)
from skyplane_orchestration.security.credentials import CredentialSources
from skyplane_orchestration.transfer.budget import Spending
from skyplane_orchestration.transfer.control import Steering, SubmittedTransfer
from skyplane_orchestration.transfer.credential_renewal import RenewalWatch

log = logging.getLogger(__name__)

#: Codes of a lead that is not in charge any more: its epoch is over, or an end of it was
#: started again and knows nothing of the transfer.
_DISPLACED: Final = (StaleEpoch.code, UnknownTransfer.code)

#: The first pause between two polls, and by how much each is longer than the one before.
_FIRST_PAUSE_S: Final = 0.05
_GROWTH: Final = 1.3

#: Told how far a transfer is, after every poll.
OnStatus = Callable[[TransferStatus], None]

#: Told which transfer runs on which fleet: once it does, and whenever that changes.
OnSubmitted = Callable[[Fleet, SubmittedTransfer], None]


class Listeners(TypedDict):
    """Arguments of a call that runs a transfer."""

    on_submitted: OnSubmitted
    on_status: OnStatus


@dataclass(slots=True)
class Whereabouts:
    """Where a transfer runs now; as its `listeners` learn.

    Attributes:
        submitted: None before it runs anywhere.
        has_ended: its lead has said so.
    """

    fleet: Fleet
    submitted: SubmittedTransfer | None = None
    has_ended: bool = False

    def listeners(self, on_status: OnStatus | None) -> Listeners:
        """Whom to tell of the transfer; `on_status` is told as well."""

        def told_where(fleet: Fleet, submitted: SubmittedTransfer) -> None:
            self.fleet, self.submitted = fleet, submitted

        def told_how_far(status: TransferStatus) -> None:
            self.has_ended = not status.is_running
            if on_status is not None:
                on_status(status)

        return {"on_submitted": told_where, "on_status": told_how_far}


@dataclass(frozen=True, slots=True)
class Hands:
    """What a watch does things with.

    Attributes:
        open: the orchestrator's verbs on a fleet, for as long as it is entered.
        ensure: brings a fleet up again unless it was torn down meanwhile; raises
            SkyplaneError. None where the caller's fleet is not to be touched.
        pause: waits until the next poll; told whether the last one had an answer.
        credentials: for ends that are attached anew, or whose credentials end.
        now: monotonic seconds.
    """

    open: Callable[[Fleet], AbstractContextManager[Steering]]
    ensure: Callable[[Fleet], Fleet] | None
    pause: Callable[[bool], None]
    credentials: CredentialSources
    now: Callable[[], float] = time.monotonic


class Pauses:
    """Waits between polls: briefly at first, as a small job ends at once, then longer.

    After silence it is the longest at once: a lead counts as lost by the number of silent
    polls, and needs that time to answer again.

    Args:
        longest_s: the pause of a transfer that takes long.
        sleep: waits for so many seconds.
    """

    def __init__(self, longest_s: float, sleep: Callable[[float], None]) -> None:
        self._longest_s = longest_s
        self._sleep = sleep
        self._next_s = _FIRST_PAUSE_S

    def __call__(self, has_answer: bool) -> None:
        if not has_answer:
            self._sleep(self._longest_s)
            return
        self._sleep(min(self._next_s, self._longest_s))
        self._next_s = min(self._next_s * _GROWTH, self._longest_s)


class Watch:
    """Follows one submitted transfer.

    Attributes:
        fleet, submitted, steering: where it runs now.
        warnings: what happened on the way that somebody should see.
        spending: what it has cost so far.
        is_abandoned: nobody leads it any more; its last status is made up of what was
            known, with the reason as its error if it has not succeeded.
    """

    def __init__(
        self,
        job: TransferJob,
        fleet: Fleet,
        submitted: SubmittedTransfer,
        hands: Hands,
        *,
        on_status: OnStatus | None = None,
        on_submitted: OnSubmitted | None = None,
    ) -> None:
        self.fleet = fleet
        self.submitted = submitted
        self.warnings: list[str] = []
        self.spending = Spending(job.policy.max_job_usd)
        self.is_abandoned = False
        self._excess: BudgetReached | None = None
        self._job = job
        self._hands = hands
        self._on_status = on_status
        self._on_submitted = on_submitted
        self._failover = Failover(
            Tenure(submitted.lead, submitted.epoch), may_ensure=hands.ensure is not None
        )
        self._status = empty_status(submitted.transfer_key, submitted.epoch)
        self._renewal = RenewalWatch(self._renew_credentials, hands.now)
        self._open = ExitStack()

    def __enter__(self) -> Watch:
        self.steering = self._open.enter_context(self._hands.open(self.fleet))
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def run(self) -> TransferStatus:
        """The transfer's last status.

        Raises:
            SkyplaneError: a gateway answers with what no retry can mend.
        """
        action: Action = Poll(self._failover.tenure)
        while True:
            event = self._do(action)
            if event is None:
                return self._status
            action = self._failover.on(event)
            if isinstance(action, EndedWell):
                return self._ended_well(action)
            if self._excess is not None and not isinstance(action, Poll):
                # Nothing is brought up for a transfer that may cost no more.
                reason = f"{self._excess.message}. Its lead could not be told to stop"
                return self._abandoned(BudgetReached(reason))
            if isinstance(action, GiveUp):
                return self._given_up(action)
            if isinstance(action, Poll):
                self._hands.pause(isinstance(event, Answered))

    def _given_up(self, action: GiveUp) -> TransferStatus:
        # What a lead that was displaced says last is not the end of the transfer.
        if self._status.is_running or _code_of(self._status) in _DISPLACED:
            error = FleetLost(
                f"{action.reason}. What was copied stays at the destination; resume the "
                "transfer, or run it again"
            )
            return self._abandoned(error)
        return self._status

    def _ended_well(self, action: EndedWell) -> TransferStatus:
        """Another orchestrator has the result, and with it the figures."""
        self.is_abandoned = True
        self.submitted = replace(self.submitted, epoch=action.epoch)
        self.warnings.append(
            f"the transfer succeeded in epoch {action.epoch}, as another orchestrator has heard; "
            "the figures of this result are what was seen from here before"
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
        """What came of it; None when the transfer has ended."""
        match action:
            case Poll(tenure):
                return self._poll(tenure)
            case Look():
                return Seen(self.steering.look(self.submitted.transfer_key))
            case Submit():
                return self._hand_over(action)
            case EnsureFleet():
                return self._ensure()
            case GiveUp() | EndedWell():
                return None

    def _poll(self, tenure: Tenure) -> Event | None:
        if tenure != Tenure(self.submitted.lead, self.submitted.epoch):
            self._moved(tenure)
        try:
            status = self.steering.status(self.submitted)
        except (GatewayDraining, UnknownTransfer) as error:
            return Displaced(error.message)
        except GatewayUnreachable as error:
            return Silent(error.message)
        self._status = status
        self.spending.note(self.fleet, status)
        code = _code_of(status)
        if status.state == "failed" and code in (*_DISPLACED, GatewayLost.code):
            reason = str((status.error or {}).get("message", code))
            return Broken(reason) if code == GatewayLost.code else Displaced(reason)
        if self._on_status is not None:
            self._on_status(status)
        if not status.is_running:
            if self._excess is not None and code == Stopped.code:
                self._status = replace(status, error=self._excess.to_dict())
            return None
        self._excess = self._excess or self.spending.excess()
        if self._excess is not None and not self._stop(self._excess):
            return Silent("it does not answer")
        self._renewal.poll(status)
        return Answered(status.epoch, _has_progress(status))

    def _renew_credentials(self) -> None:
        self.steering.renew_credentials(self.submitted, self._job, self._hands.credentials)

    def _stop(self, excess: BudgetReached) -> bool:
        """Have the lead stop; whether it has heard it."""
        log.warning("transfer %s: %s", self.submitted.transfer_key, excess.message)
        try:
            self.steering.stop(self.submitted, excess.message)
        except GatewayUnreachable:
            return False
        return True

    def _moved(self, tenure: Tenure) -> None:
        """Somebody else leads now: remember it, say it, tell the caller."""
        before = self.submitted
        self.submitted = replace(before, epoch=tenure.epoch, lead=tenure.lead)
        instead = "again" if tenure.lead == before.lead else f"in place of {before.lead}"
        text = f"{tenure.lead} leads {instead}, in epoch {tenure.epoch}"
        log.warning("transfer %s: %s", before.transfer_key, text)
        self.warnings.append(text)
        if self._on_submitted is not None:
            self._on_submitted(self.fleet, self.submitted)

    def _hand_over(self, order: Submit) -> Event:
        log.warning(
            "transfer %s: asking %s to lead epoch %d",
            self.submitted.transfer_key,
            order.tenure.lead,
            order.tenure.epoch,
        )
        try:
            taken = self.steering.take_over(
                self.submitted.transfer_key, self._job, self._hands.credentials, order
            )
        except StaleEpoch as error:
            return Displaced(error.message)
        except SkyplaneError as error:
            return Refused(f"{order.tenure.lead} could not go on: {error.message}")
        return Taken(Tenure(taken.lead, taken.epoch))

    def _ensure(self) -> Event:
        if self._hands.ensure is None:
            return NotEnsured("it is not this call's to build")
        log.warning("fleet %s is broken; bringing it up again", self.fleet.key)
        try:
            self.fleet = self._hands.ensure(self.fleet)
        except SkyplaneError as error:
            return NotEnsured(error.message)
        self._open.close()
        self.steering = self._open.enter_context(self._hands.open(self.fleet))
        self.warnings.append("the fleet was broken and was brought up again")
        if self._on_submitted is not None:
            self._on_submitted(self.fleet, self.submitted)
        return Ensured()


def _code_of(status: TransferStatus) -> str | None:
    return (status.error or {}).get("code")


def _has_progress(status: TransferStatus) -> bool:
    ended = (status.copied, status.skipped, status.failed)
    return any(ended) or any(status.delivered_bytes.values())
