"""Whoever polls a transfer stops it when it has cost what it may, and leaves a handle."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from skyplane_orchestration.errors import (
    FleetLost,
    GatewayLost,
    GatewayUnreachable,
    StaleEpoch,
    Stopped,
    TransferFailed,
    UnknownTransfer,
)
from skyplane_orchestration.model.fleet import Fleet, GatewayHandle
from skyplane_orchestration.model.job import Policy, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanCost,
    PlanEdge,
    PlanPath,
    SolverReport,
    TransferPlan,
)
from skyplane_orchestration.model.resume_handle import ResumeHandle
from skyplane_orchestration.model.status import TransferStatus, empty_status
from skyplane_orchestration.recovery.failover import SILENT_POLLS, FleetView, Submit
from skyplane_orchestration.security.credentials import CredentialSources
from skyplane_orchestration.transfer.control import Steering, SubmittedTransfer
from skyplane_orchestration.transfer.finalize import conclude, require_success, with_handle
from skyplane_orchestration.transfer.monitor import Hands, Pauses, Watch

A, B = "aws:us-east-1", "aws:eu-west-3"
GB = 1_000_000_000
KEY = "ab" * 16

#: A GB over its one edge costs 0.1 USD, and nothing else costs anything.
PLAN = TransferPlan(
    A,
    B,
    {},
    1.0,
    None,
    None,
    0.0,
    PlanCost(None, None, None, None, 0.1),
    {A: InstanceGroup("process", 1), B: InstanceGroup("process", 1)},
    (PlanEdge(A, B, 1.0, 1, 1.0, 0.1),),
    (PlanPath((A, B), 1.0),),
    (),
    SolverReport("optimal", 0.0, 0.0, 0.0),
    GridReference("test", "2026-01-01", "measured"),
)
FLEET = Fleet(
    key=KEY,
    generation=0,
    deployment="test",
    provisioner="fake",
    plan=PLAN,
    gateways=tuple(GatewayHandle(node, node, ("h", 1), ("h", 2), "") for node in (A, B)),
    routes=({"number": 0, "nodes": [A, B]},),
    host="",
    provision_s=0.0,
    hard_end_unix_s=0.0,
)
JOB = TransferJob(Location("s3://src/p/", A), Location("s3://dst/q/", B))


NOBODY = FleetView((), (), None, None, 1)


def running(gb: float, epoch: int = 1) -> TransferStatus:
    return replace(
        empty_status(KEY, epoch),
        seconds=1.0,
        delivered_bytes={0: int(gb * GB)},
        copied=1,
        objects=1,
    )


def ended(status: TransferStatus, error: dict[str, Any] | None) -> TransferStatus:
    return replace(status, state="failed" if error else "succeeded", error=error)


@dataclass
class Lead:
    """Answers polls one after another; once it was told to stop, with its end."""

    answers: list[TransferStatus | Exception]
    view: FleetView = NOBODY
    hears: Callable[[int], bool] = lambda number: True
    done: list[str] = field(default_factory=list)
    reason: str = ""

    def status(self, submitted: SubmittedTransfer) -> TransferStatus:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return ended(answer, Stopped(self.reason).to_dict()) if self.reason else answer

    def stop(self, submitted: SubmittedTransfer, reason: str) -> None:
        self.done.append("stop")
        if not self.hears(self.done.count("stop")):
            raise GatewayUnreachable("no answer")
        self.reason = reason

    def look(self, key: str) -> FleetView:
        self.done.append("look")
        return self.view

    def take_over(self, key: str, job: Any, credentials: Any, order: Submit) -> SubmittedTransfer:
        self.done.append("take over")
        return SubmittedTransfer(key, order.tenure.epoch, order.tenure.lead, joined=False)

    def abort_left_uploads(self, *_: Any) -> tuple[str, ...]:
        self.done.append("abort")
        return ()

    def release(self, submitted: SubmittedTransfer) -> None:
        self.done.append("release")

    def release_success(self, submitted: SubmittedTransfer, *_: Any) -> tuple[str, ...]:
        self.done.append(f"release {submitted.epoch}")
        return ()


def watched(lead: Lead, most_usd: float | None) -> tuple[Watch, TransferStatus]:
    @contextmanager
    def open_(fleet: Fleet) -> Iterator[Steering]:
        yield cast(Steering, lead)

    def ensure(fleet: Fleet) -> Fleet:
        lead.done.append("ensure")
        return fleet

    hands = Hands(open_, ensure, lambda _: None, CredentialSources())
    job = replace(JOB, policy=Policy(max_job_usd=most_usd))
    watch = Watch(job, FLEET, SubmittedTransfer(KEY, 1, A, joined=False), hands)
    with watch:
        return watch, watch.run()


def test_pauses_between_polls_are_short_at_first_and_grow() -> None:
    slept: list[float] = []
    pauses = Pauses(1.0, slept.append)
    for _ in range(20):
        pauses(True)
    assert slept[0] == pytest.approx(0.05)
    assert sum(slept[:4]) < 0.5, "a job of a moment is not waited for"
    assert slept == sorted(slept)
    assert slept[-1] == pytest.approx(1.0)


def test_a_lead_that_is_silent_from_the_start_has_the_whole_pause_to_answer() -> None:
    slept: list[float] = []
    pauses = Pauses(1.0, slept.append)
    for has_answer in (True, False, False, True):
        pauses(has_answer)
    assert slept == pytest.approx([0.05, 1.0, 1.0, 0.065])


@pytest.mark.parametrize("most_usd", [None, 0.25])
def test_what_costs_less_than_it_may_runs_to_its_end(most_usd: float | None) -> None:
    lead = Lead([running(1.0), running(2.0), ended(running(2.4), None)])
    watch, status = watched(lead, most_usd)
    assert (status.state, lead.done) == ("succeeded", [])
    assert watch.spending.cost.total_usd == pytest.approx(0.24)


def test_one_that_has_cost_what_it_may_is_stopped_and_can_be_gone_on_with() -> None:
    lead = Lead([running(1.0), running(2.5), running(2.6)])
    watch, status = watched(lead, 0.25)
    assert lead.done == ["stop"]
    assert "0.25 USD" in lead.reason
    result = conclude(JOB, watch, status, CredentialSources(), manifest=None)
    result = watch.spending.entered_in(result)
    assert (result.state, result.error_code) == ("failed", "budget-reached")
    assert result.cost.total_usd == pytest.approx(0.26), "what was under way is paid as well"
    result = with_handle(result, JOB, watch, status, 0.0)
    assert ResumeHandle.from_text(result.resume_handle).transfer_key == KEY
    with pytest.raises(TransferFailed, match="max_job_usd") as caught:
        require_success(result, status)
    assert caught.value.is_permanent


def test_one_that_ends_at_the_last_moment_has_ended_well() -> None:
    lead = Lead([running(3.0), ended(running(3.1), None)])
    lead.stop = lambda submitted, reason: lead.done.append("stop")  # type: ignore[method-assign]
    _, status = watched(lead, 0.25)
    assert (status.state, status.error, lead.done) == ("succeeded", None, ["stop"])


def test_a_lead_that_did_not_hear_it_is_told_again() -> None:
    lead = Lead([running(3.0), GatewayUnreachable("x"), running(3.2), running(3.3)])
    lead.hears = lambda number: number > 1
    _, status = watched(lead, 0.25)
    assert lead.done == ["stop", "stop"]
    assert (status.error or {})["code"] == "budget-reached"


def test_nothing_is_brought_up_for_a_transfer_that_may_cost_no_more() -> None:
    silence = [GatewayUnreachable("x")] * SILENT_POLLS
    lost = ended(running(3.0), GatewayLost("all paths are down").to_dict())
    endings: list[list[TransferStatus | Exception]] = [[*silence], [lost]]
    for ending in endings:
        lead = Lead([running(3.0), *ending], FleetView((A,), (B,), None, None, 1))
        lead.hears = lambda number: False
        watch, status = watched(lead, 0.25)
        assert lead.done == ["stop"]
        assert watch.is_abandoned
        assert (status.error or {})["code"] == "budget-reached"
        assert "could not be told to stop" in (status.error or {})["message"]


def test_earlier_epochs_count() -> None:
    lost = ended(running(2.0), GatewayLost("all paths are down").to_dict())
    lead = Lead([lost, running(0.4, 2), running(0.6, 2), running(0.6, 2)])
    lead.view = FleetView((A,), (B,), None, None, 1)
    watch, status = watched(lead, 0.25)
    assert lead.done == ["ensure", "look", "take over", "stop"]
    assert (status.error or {})["code"] == "budget-reached"
    assert watch.spending.cost.total_usd == pytest.approx(0.26)


@pytest.mark.parametrize("error", [StaleEpoch("it is over"), UnknownTransfer("no sink of it")])
def test_a_transfer_whose_displaced_lead_has_no_successor_leaves_a_handle(
    error: StaleEpoch | UnknownTransfer,
) -> None:
    """Another orchestrator took over, and its fleet died: journal and uploads are kept."""
    lead = Lead([ended(running(1.0), error.to_dict())])
    watch, status = watched(lead, None)
    assert lead.done == ["look", "ensure", "look"]
    assert (status.error or {})["code"] == FleetLost.code
    result = conclude(JOB, watch, status, CredentialSources(), manifest=None)
    assert "abort" not in lead.done
    assert with_handle(result, JOB, watch, status, 0.0).resume_handle


@pytest.mark.parametrize("job", [JOB, replace(JOB, move=True)], ids=["copy", "move"])
def test_a_success_that_another_orchestrator_has_heard_of_is_one(job: TransferJob) -> None:
    """The ends were released, and the lead is gone: the transfer was begun again, and failed."""
    silence = [GatewayUnreachable("x")] * SILENT_POLLS
    lead = Lead([running(1.0), *silence])
    lead.view = FleetView((A,), (B,), None, None, 3, known=2, heard=2)
    watch, status = watched(lead, None)
    assert lead.done == ["look", "ensure", "look"]
    result = conclude(job, watch, status, CredentialSources(), manifest=None)
    assert (result.state, result.epoch, result.error) == ("succeeded", 2, "")
    assert any("another orchestrator" in text for text in result.warnings)
    assert lead.done[3:] == ["release 2"]


def test_a_lone_sink_that_was_started_again_is_attached_again() -> None:
    """It knows nothing of the transfer; its lead ends, and keeps everything for the next."""
    unknown = UnknownTransfer("the sink has no such transfer").to_dict()
    lead = Lead([ended(running(1.0), unknown), ended(running(2.0, 2), None)])
    lead.view = FleetView((A,), (B,), None, None, 2)
    _, status = watched(lead, None)
    assert (status.state, lead.done) == ("succeeded", ["look", "take over"])
