"""A transfer is polled to its end, fails over, is stopped at its budget, or only watched."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast
from unittest.mock import patch

import pytest
from tests.manual_clock import ManualClock
from tests.transfer.samples import GB, JOB, KEY, PRICED_PLAN, A, B, fleet_of

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    FleetLost,
    GatewayDraining,
    GatewayLost,
    GatewayUnreachable,
    QuotaExceeded,
    SkyplaneError,
    StaleEpoch,
    Stopped,
    UnknownTransfer,
)
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import MinimizeCost, Policy
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.recovery.failover_decisions import (
    SILENT_POLLS,
    FleetView,
    Submit,
    Tenure,
)
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.transfer.client_context import ClientContext, StopAt
from skyplane_orchestration.transfer.fleet_control import (
    FleetControl,
    SubmittedTransfer,
    TransferRequest,
)
from skyplane_orchestration.transfer.gateway_credentials import SentCredentials
from skyplane_orchestration.transfer.in_flight import InFlightPlanner, NextPlan
from skyplane_orchestration.transfer.transfer_monitor import (
    Monitor,
    PollPauses,
    RenewalSchedule,
)
from skyplane_orchestration.transfer.watched_transfer import WatchedTransfer

FLEET = fleet_of("ab", plan=PRICED_PLAN, regions={"a": A, "b": B})
NONE_LEADS = FleetView((), (), None, None, 1)
BOTH_ANSWER = FleetView(("a",), ("b",), None, None, 2)
SILENCE = [GatewayUnreachable("it does not answer")] * SILENT_POLLS
LOST = GatewayLost("all paths are down").to_dict()
SUBMITTED = SubmittedTransfer(KEY, 1, "a", joined=False)


def running(gb: float, epoch: int = 1) -> TransferStatus:
    return replace(
        TransferStatus(KEY, epoch),
        seconds=1.0,
        delivered_bytes={0: int(gb * GB)},
        copied=1,
        objects=1,
    )


def ended(status: TransferStatus, error: dict[str, Any] | None) -> TransferStatus:
    return replace(status, state="failed" if error else "succeeded", error=error)


@dataclass
class FakeControl:
    """Answers polls in turn; after a stop, with the end of the transfer."""

    answers: list[Any]
    view: FleetView = NONE_LEADS
    hears: Callable[[int], bool] = lambda number: True
    restore_error: SkyplaneError | None = None
    rebuild_error: SkyplaneError | None = None
    done: list[Any] = field(default_factory=list)
    told: list[SubmittedTransfer] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    waits_s: list[float] = field(default_factory=list)
    reason: str = ""

    def status(self, submitted: SubmittedTransfer, *, wait_s: float = 0.0) -> TransferStatus:
        self.waits_s.append(wait_s)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ended(answer, Stopped(self.reason).to_dict()) if self.reason else answer

    def stop(self, submitted: SubmittedTransfer, reason: str, *, goes_on: bool = False) -> None:
        self.done.append("stop, goes on" if goes_on else "stop")
        if not self.hears(self.done.count("stop")):
            raise GatewayUnreachable("no answer")
        self.reason = "" if goes_on else reason

    def inspect(self, key: str) -> FleetView:
        self.done.append("inspect")
        return self.view

    def take_over(self, request: TransferRequest, order: Submit) -> SubmittedTransfer:
        self.done.append(order)
        return SubmittedTransfer(KEY, order.tenure.epoch, order.tenure.lead, joined=False)

    def restore(self, fleet: Fleet) -> Fleet:
        self.done.append("restore")
        if self.restore_error is not None:
            raise self.restore_error
        return fleet

    def rebuild(self, fleet: Fleet) -> Fleet:
        self.done.append("rebuild")
        if self.rebuild_error is not None:
            raise self.rebuild_error
        return fleet

    def renew_credentials(self, request: TransferRequest, epoch: int) -> None:
        self.done.append(f"renew in epoch {epoch}")

    def followers(self, submitted: SubmittedTransfer) -> int:
        self.done.append("leave")
        return 0

    @contextmanager
    def control(self, fleet: Fleet) -> Iterator[FleetControl]:
        yield cast(FleetControl, self)

    @property
    def steps(self) -> list[str]:
        return ["submit" if isinstance(step, Submit) else step for step in self.done]


def monitor_of(
    control: FakeControl,
    clock: Clock,
    max_usd: float | None = None,
    stop_at: StopAt | None = None,
) -> Monitor:
    job = replace(JOB, policy=Policy(max_job_usd=max_usd))
    fleets: Any = control
    identity = RunIdentity("local", "dag", "run")
    sent = SentCredentials(CredentialSources())
    context = ClientContext(
        identity,
        fleets,
        sent,
        clock,
        random.Random(1),
        lambda: cast(Any, None),
        1.5,
        MinimizeCost(),
        stop_at,
    )
    return Monitor(
        TransferRequest(KEY, job, sent),
        FLEET,
        SUBMITTED,
        context,
        on_submitted=lambda _, where: control.told.append(where),
    )


def followed(
    control: FakeControl, max_usd: float | None = None, stop_at: StopAt | None = None
) -> tuple[Monitor, TransferStatus]:
    """Each poll takes a second of wall time."""
    clock = Clock(lambda: 0.0, lambda: float(len(control.waits_s)), sleep=control.slept.append)
    with monitor_of(control, clock, max_usd, stop_at) as monitor:
        return monitor, monitor.run()


def test_polls_wait_shortly_at_first_and_then_longer() -> None:
    pauses = PollPauses(1.0)
    waited = [pauses.next_s() for _ in range(20)]
    assert waited[0] == pytest.approx(0.05)
    assert sum(waited[:4]) < 0.5, "a short job ends without a long wait"
    assert waited == sorted(waited)
    assert waited[-1] == pytest.approx(1.0)


def test_an_answered_poll_is_followed_by_the_next_at_once() -> None:
    control = FakeControl([*[running(1.0)] * 20, ended(running(1.0), None)])
    _, status = followed(control)
    assert (status.state, control.slept) == ("succeeded", [])
    assert control.waits_s[:2] == pytest.approx([0.05, 0.065])
    assert control.waits_s[-1] == 1.5, "budget and lease are looked after at least this often"


# -- failover


def test_a_lead_that_stays_silent_is_replaced() -> None:
    control = FakeControl([running(1.0), *SILENCE, running(1.0, 2), ended(running(1.0, 2), None)])
    control.view = FleetView(("b",), ("b",), None, None, 1)
    monitor, status = followed(control)
    order = Submit(Tenure("b", 2), ("b",), ("b",))
    assert (status.state, control.done) == ("succeeded", ["inspect", order])
    assert [(row.lead, row.epoch) for row in control.told] == [("b", 2)]
    assert "b leads in place of a, in epoch 2" in monitor.warnings[0]
    assert control.slept == [1.5] * 5


def test_a_broken_fleet_is_brought_up_again_once() -> None:
    first, second = ended(running(1.0), LOST), ended(running(1.0, 2), LOST)
    control = FakeControl([first, ended(running(1.0, 2), None)], BOTH_ANSWER)
    monitor, status = followed(control)
    assert (status.state, control.steps) == ("succeeded", ["restore", "inspect", "submit"])
    assert "the fleet was broken and was brought up again" in monitor.warnings
    assert [row.epoch for row in control.told] == [1, 2], "the fleet changes before the lead does"
    _, status = followed(FakeControl([first, running(1.0, 2), second], BOTH_ANSWER))
    assert status.error == LOST, "the second time its error is the result"


def test_the_refusal_of_a_repair_is_told_beside_what_the_lead_has_lost() -> None:
    """The result had neither the reason nor the quota."""
    refused = QuotaExceeded("the quota L-1 is used up")
    monitor, status = followed(FakeControl([ended(running(1.0), LOST)], restore_error=refused))
    assert status.error == LOST
    said = "The fleet cannot be brought up again: the quota L-1 is used up"
    assert monitor.warnings == [said]


def test_a_silent_lead_of_a_fleet_that_was_torn_down_ends_the_transfer() -> None:
    control = FakeControl([running(1.0), *SILENCE], restore_error=FleetLost("it was torn down"))
    monitor, status = followed(control)
    error = status.error or {}
    assert (status.state, error["code"], monitor.is_abandoned) == ("failed", "fleet-lost", True)
    assert "a is lost: it does not answer" in error["message"]
    assert not error["is_permanent"]


@pytest.mark.parametrize(
    "answer",
    [ended(running(1.0), StaleEpoch("it is over").to_dict()), UnknownTransfer("it was restarted")],
)
def test_the_newer_epoch_of_another_orchestrator_is_followed(answer: Any) -> None:
    newer = Tenure("b", 7)
    control = FakeControl([answer, ended(running(1.0, 7), None)])
    control.view = FleetView(("a",), ("b",), newer, newer, 8)
    _, status = followed(control)
    assert (status.state, status.epoch, control.done) == ("succeeded", 7, ["inspect"])


@pytest.mark.parametrize("error", [StaleEpoch("it is over"), UnknownTransfer("no sink of it")])
def test_a_displaced_lead_without_successor_abandons_the_transfer(error: SkyplaneError) -> None:
    control = FakeControl([ended(running(1.0), error.to_dict())])
    monitor, status = followed(control)
    assert control.done == ["inspect", "restore", "inspect"]
    assert ((status.error or {})["code"], monitor.is_abandoned) == (FleetLost.code, True)


def test_a_success_that_another_orchestrator_has_fetched_is_a_success() -> None:
    control = FakeControl([running(1.0), *SILENCE])
    control.view = FleetView(("a",), ("b",), None, None, 3, newest_epoch=2, acknowledged_epoch=2)
    monitor, status = followed(control)
    assert control.done == ["inspect", "restore", "inspect"]
    assert (status.state, status.epoch, status.error) == ("succeeded", 2, None)
    assert (monitor.submitted.epoch, monitor.is_abandoned) == (2, True)
    assert any("another orchestrator" in text for text in monitor.warnings)


def test_a_lone_sink_that_was_restarted_is_attached_again() -> None:
    unknown = UnknownTransfer("the sink has no such transfer").to_dict()
    control = FakeControl([ended(running(1.0), unknown), ended(running(2.0, 2), None)])
    control.view = BOTH_ANSWER
    _, status = followed(control)
    assert (status.state, control.steps) == ("succeeded", ["inspect", "submit"])


def test_credentials_are_renewed_when_the_lead_asks_for_them() -> None:
    asking = replace(running(1.0), needs_credentials=("source",))
    control = FakeControl([asking, ended(running(2.0), None)])
    _, status = followed(control)
    assert (status.state, control.done) == ("succeeded", ["renew in epoch 1"])


# -- another plan in mid-transfer

NEXT: Final = NextPlan(replace(FLEET, plan=replace(PRICED_PLAN, throughput_gbps=0.5)), "replanned")
OVER: Final = ended(running(1.2), StaleEpoch("replanned").to_dict())
MOVE: Final = ["stop, goes on", "rebuild", "inspect", "submit"]


def planned_again(control: FakeControl) -> tuple[Monitor, TransferStatus]:
    """A transfer for which another plan is found after its first poll."""
    found: list[NextPlan | None] = [NEXT]
    control.view = BOTH_ANSWER
    with patch.object(InFlightPlanner, "look", lambda *_: found.pop() if found else None):
        return followed(control)


def test_the_lead_is_stopped_at_its_journal_and_the_next_epoch_has_the_next_plan() -> None:
    control = FakeControl([running(1.0), OVER, running(0.5, 2), ended(running(0.8, 2), None)])
    monitor, status = planned_again(control)
    assert (status.state, status.epoch, control.steps) == ("succeeded", 2, MOVE)
    assert (monitor.fleet, monitor.warnings[0]) == (NEXT.fleet, "replanned")
    assert [row.epoch for row in control.told] == [1, 2]
    usd = monitor.budget.cost.egress_usd
    assert usd == pytest.approx(0.2), "what came until the stop counts as well"


@pytest.mark.parametrize("error", [None, GatewayLost("all paths are down")])
def test_a_transfer_that_ends_before_the_stop_is_left_alone(error: SkyplaneError | None) -> None:
    last = ended(running(1.2), error.to_dict() if error else None)
    control = FakeControl([running(1.0), last, last, ended(running(0.8, 2), None)])
    _, status = planned_again(control)
    assert status.state == "succeeded"
    assert "rebuild" not in control.steps


def test_a_lead_that_is_lost_at_its_stop_is_replaced_with_the_old_plan() -> None:
    control = FakeControl([running(1.0), *SILENCE, ended(running(1.0, 2), None)])
    monitor, status = planned_again(control)
    assert (status.state, control.steps) == ("succeeded", ["stop, goes on", "inspect", "submit"])
    assert monitor.fleet is FLEET


def test_a_fleet_that_does_not_take_the_next_plan_keeps_the_old_one() -> None:
    control = FakeControl([running(1.0), OVER, ended(running(0.8, 2), None)])
    control.rebuild_error = FleetLost("a gateway did not connect")
    monitor, status = planned_again(control)
    assert status.state == "succeeded"
    assert control.steps == ["stop, goes on", "rebuild", "restore", "inspect", "submit"]
    assert (monitor.fleet, "replanned" in monitor.warnings) == (FLEET, False)
    both = FakeControl([running(1.0), OVER], restore_error=FleetLost("it was torn down"))
    both.rebuild_error = FleetLost("a gateway did not connect")
    _, status = planned_again(both)
    assert (status.state, both.steps[-1]) == ("failed", "restore")


def test_a_process_that_only_watches_leaves_the_change_to_another() -> None:
    control = FakeControl([running(1.0), running(1.1)])
    found: list[NextPlan | None] = [NEXT, None]
    with patch.object(InFlightPlanner, "look", lambda *_: found.pop()):
        watch = monitor_of(control, ManualClock().clock)
        assert [watch.poll(), watch.poll()] == [None, "slow"]
    assert control.done == []


def test_a_fleet_that_does_not_come_back_may_do_without_a_region() -> None:
    control = FakeControl([ended(running(1.0), LOST), ended(running(1.0, 2), None)], BOTH_ANSWER)
    control.restore_error = QuotaExceeded("the quota L-1 is used up")
    with patch.object(InFlightPlanner, "without_lost", lambda *_: NEXT):
        monitor, status = followed(control)
    assert (status.state, control.steps) == (
        "succeeded",
        ["restore", "rebuild", "inspect", "submit"],
    )
    assert monitor.fleet == NEXT.fleet


# -- budget


@pytest.mark.parametrize("max_usd", [None, 0.25])
def test_a_transfer_below_its_budget_runs_to_its_end(max_usd: float | None) -> None:
    control = FakeControl([running(1.0), running(2.0), ended(running(2.4), None)])
    monitor, status = followed(control, max_usd)
    assert (status.state, control.done) == ("succeeded", [])
    assert monitor.budget.cost.total_usd == pytest.approx(0.24)


def test_a_transfer_is_stopped_at_its_budget() -> None:
    control = FakeControl([running(1.0), running(2.5), running(2.6)])
    monitor, status = followed(control, 0.25)
    error = status.error or {}
    assert control.done == ["stop"]
    assert "0.25 USD" in control.reason
    assert (error["code"], error["is_permanent"]) == ("budget-reached", True)
    assert monitor.budget.cost.total_usd == pytest.approx(0.26), "bytes in flight count as well"


def test_a_transfer_that_ends_before_it_is_stopped_has_succeeded() -> None:
    control = FakeControl([running(3.0), ended(running(3.1), None)])
    control.stop = lambda *_, **__: control.done.append("stop")  # type: ignore[method-assign]
    _, status = followed(control, 0.25)
    assert (status.state, status.error, control.done) == ("succeeded", None, ["stop"])


def test_a_lead_that_did_not_hear_the_stop_is_told_again() -> None:
    control = FakeControl([running(3.0), GatewayUnreachable("x"), running(3.2), running(3.3)])
    control.hears = lambda number: number > 1
    _, status = followed(control, 0.25)
    assert control.done == ["stop", "stop"]
    assert (status.error or {})["code"] == "budget-reached"


@pytest.mark.parametrize("ending", [SILENCE, [ended(running(3.0), LOST)]], ids=["silent", "lost"])
def test_no_fleet_is_brought_up_for_a_transfer_at_its_budget(ending: list[Any]) -> None:
    control = FakeControl([running(3.0), *ending], BOTH_ANSWER)
    control.hears = lambda number: False
    monitor, status = followed(control, 0.25)
    assert (control.done, monitor.is_abandoned) == (["stop"], True)
    assert (status.error or {})["code"] == "budget-reached"
    assert "could not be told to stop" in (status.error or {})["message"]


# -- the end of the task's time


IN_TIME: Final = StopAt(2.0, "the task has an execution_timeout of 1 min")


def test_a_transfer_is_stopped_before_its_task_ends() -> None:
    control = FakeControl([running(1.0), running(2.5), running(2.6), running(2.6)])
    _, status = followed(control, stop_at=IN_TIME)
    error = status.error or {}
    assert (control.done, control.reason) == (["stop"], IN_TIME.reason)
    assert (error["code"], error["is_permanent"]) == ("stopped", False)


def test_a_transfer_that_ends_in_time_is_not_stopped() -> None:
    control = FakeControl([running(1.0), ended(running(2.4), None)])
    _, status = followed(control, stop_at=IN_TIME)
    assert (status.state, control.done) == ("succeeded", [])


def test_no_fleet_is_brought_up_after_that_time() -> None:
    control = FakeControl([running(3.0), *SILENCE], BOTH_ANSWER)
    monitor, status = followed(control, stop_at=IN_TIME)
    assert (control.done, monitor.is_abandoned) == ([], True)
    assert IN_TIME.reason in (status.error or {})["message"]


def test_earlier_epochs_count_for_the_budget() -> None:
    control = FakeControl(
        [ended(running(2.0), LOST), running(0.4, 2), running(0.6, 2), running(0.6, 2)], BOTH_ANSWER
    )
    monitor, status = followed(control, 0.25)
    assert control.steps == ["restore", "inspect", "submit", "stop"]
    assert (status.error or {})["code"] == "budget-reached"
    assert monitor.budget.cost.total_usd == pytest.approx(0.26)


# -- a watch, which decides nothing


def test_a_watched_transfer_is_plain_data() -> None:
    watched = WatchedTransfer(JOB, FLEET, SUBMITTED)
    document = json.loads(json.dumps(watched.to_dict()))
    assert WatchedTransfer.from_dict(document) == watched


ENDED = ended(running(1.0), None)
NO_ANSWER: Final = GatewayUnreachable("no answer")


@pytest.mark.parametrize(
    ("answers", "ends"),
    [
        ([running(1.0), ENDED], [None, "ended"]),
        ([*SILENCE[1:], running(1.0), *SILENCE], [None] * (2 * SILENT_POLLS - 1) + ["silent"]),
        ([GatewayDraining("ends")], ["silent"]),
        ([UnknownTransfer("which?")], ["silent"]),
        ([ended(running(1.0), LOST)], ["silent"]),
        ([running(2.4), running(2.6)], [None, "budget"]),
    ],
)
def test_a_watch_tells_why_it_ends(answers: list[Any], ends: list[Any]) -> None:
    control = FakeControl([*answers])
    watch = monitor_of(control, ManualClock().clock, 0.25)
    assert [watch.poll() for _ in ends] == ends
    assert control.done == [], "another process decides"
    assert set(control.waits_s) == {0.0}, "a poll of a triggerer blocks no thread"
    assert watch.has_answered == any(isinstance(one, TransferStatus) for one in answers)


def test_the_deadline_ends_a_watch_also_while_the_lead_is_silent() -> None:
    clock = ManualClock()
    control = FakeControl([running(1.0), running(1.0), NO_ANSWER])
    watch = monitor_of(control, clock.clock, stop_at=StopAt(clock.now_s + 10, "its time is over"))
    assert watch.poll() is None
    clock.advance(10)
    assert (watch.poll(), watch.poll()) == ("deadline", "deadline")


@pytest.mark.parametrize("polls", [1, 2, 5])
def test_a_transfer_that_ends_within_the_time_is_followed_to_its_end(polls: int) -> None:
    clock = ManualClock()
    control = FakeControl([*[running(1.0)] * (polls - 1), ENDED])
    assert monitor_of(control, clock.clock).follow(15.0) == "ended"
    assert control.done == [], "who follows it to the end asks for its result"
    assert clock.now_s < 1015.0


def test_a_longer_transfer_is_followed_for_that_time_and_then_left() -> None:
    clock = ManualClock()
    control = FakeControl([running(1.0)] * 100)
    assert monitor_of(control, clock.clock).follow(15.0) is None
    assert (clock.now_s, control.done) == (1015.0, ["leave"])


# -- fresh credentials


def test_credentials_are_renewed_at_once_when_the_lead_asks_and_else_at_intervals() -> None:
    asking = replace(running(1.0), needs_credentials=("source",))
    now_s, renewals = 0.0, list[float]()

    def renew() -> None:
        renewals.append(now_s)

    renewal = RenewalSchedule(Clock(lambda: now_s))
    for second in range(100):
        now_s = float(second)
        renewal.poll(asking if 40 <= second < 80 else running(1.0), renew)
    assert renewals == [30.0, 40.0, 70.0]


@pytest.mark.parametrize("kind", [ConfigurationInvalid, ConnectionError])
def test_credentials_that_cannot_be_had_are_tried_again(
    kind: type[Exception], caplog: pytest.LogCaptureFixture
) -> None:
    """A resolver may ask another service, which raises errors of its own."""
    asking = replace(running(1.0), needs_credentials=("source",))
    now_s, renewals = 0.0, list[float]()

    def renew() -> None:
        renewals.append(now_s)
        raise kind("there is no connection 'conn'")

    renewal = RenewalSchedule(Clock(lambda: now_s))
    for second in range(40):
        now_s = float(second)
        renewal.poll(asking, renew)
    assert renewals == [0.0, 30.0]
    assert "no connection 'conn'" in caplog.text
