"""Polls a transfer to its end, and hands it to another lead when its own falls silent."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace

from skyplane_orchestration.credentials import CredentialSources
from skyplane_orchestration.errors import (
    FleetLost,
    GatewayLost,
    GatewayUnreachable,
    SkyplaneError,
    StaleEpoch,
    UnknownTransfer,
)
from skyplane_orchestration.failover import (
    Action,
    Answered,
    Broken,
    Displaced,
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
from skyplane_orchestration.fleet import Fleet
from skyplane_orchestration.job import TransferJob
from skyplane_orchestration.outcome import TransferStatus, empty_status
from skyplane_orchestration.steering import Steering, SubmittedTransfer

log = logging.getLogger(__name__)

#: Told how far a transfer is, after every poll.
OnStatus = Callable[[TransferStatus], None]

#: Told which transfer runs on which fleet: once it does, and whenever that changes.
OnSubmitted = Callable[[Fleet, SubmittedTransfer], None]


@dataclass(frozen=True, slots=True)
class Hands:
    """What a watch does things with.

    Attributes:
        open: the orchestrator's verbs on a fleet, for as long as it is entered.
        ensure: brings a fleet up again unless it was torn down meanwhile; raises
            SkyplaneError. None where the caller's fleet is not to be touched.
        pause: waits until the next poll.
        credentials: for ends that are attached anew.
    """

    open: Callable[[Fleet], AbstractContextManager[Steering]]
    ensure: Callable[[Fleet], Fleet] | None
    pause: Callable[[], None]
    credentials: CredentialSources


class Watch:
    """Follows one submitted transfer.

    Attributes:
        fleet, submitted, steering: where it runs now.
        warnings: what happened on the way that somebody should see.
        is_abandoned: nobody leads it any more; its last status is made up of what was
            known, with the reason as its error.
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
        self.is_abandoned = False
        self._job = job
        self._hands = hands
        self._on_status = on_status
        self._on_submitted = on_submitted
        self._failover = Failover(
            Tenure(submitted.lead, submitted.epoch), may_ensure=hands.ensure is not None
        )
        self._status = empty_status(submitted.transfer_key, submitted.epoch)
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
            if isinstance(action, GiveUp):
                return self._given_up(action)
            if isinstance(action, Poll):
                self._hands.pause()

    def _given_up(self, action: GiveUp) -> TransferStatus:
        if self._status.is_running:
            error = FleetLost(
                f"{action.reason}. What is committed is at the destination; go on with the "
                "resume handle, or run the transfer again"
            )
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
            case GiveUp():
                return None

    def _poll(self, tenure: Tenure) -> Event | None:
        if tenure != Tenure(self.submitted.lead, self.submitted.epoch):
            self._moved(tenure)
        try:
            status = self.steering.status(self.submitted)
        except GatewayUnreachable as error:
            return Silent(error.message)
        except UnknownTransfer as error:
            return Displaced(error.message)
        self._status = status
        code = (status.error or {}).get("code")
        if status.state == "failed" and code in (StaleEpoch.code, GatewayLost.code):
            reason = str((status.error or {}).get("message", code))
            return Displaced(reason) if code == StaleEpoch.code else Broken(reason)
        if self._on_status is not None:
            self._on_status(status)
        if not status.is_running:
            return None
        return Answered(status.epoch, _has_progress(status))

    def _moved(self, tenure: Tenure) -> None:
        """Somebody else leads now: remember it, say it, tell the caller."""
        before = self.submitted
        self.submitted = replace(before, epoch=tenure.epoch, lead=tenure.lead)
        instead = "again" if tenure.lead == before.lead else f"in place of {before.lead}"
        text = (
            f"{tenure.lead} leads {instead}, in epoch {tenure.epoch}; the figures of this "
            "result are of that epoch"
        )
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
        return Ensured()


def _has_progress(status: TransferStatus) -> bool:
    ended = (status.copied, status.skipped, status.failed)
    return any(ended) or any(status.delivered_bytes.values())
