"""A client that answers without gateways, and a context as Airflow gives it."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from tests.transfer.samples import PLAN

from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.fleet import Fleet, GatewayHandle
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.plan import PlanCost, TransferPlan
from skyplane_orchestration.model.result import CostOutcome, FailedObject, TransferResult
from skyplane_orchestration.model.sweep_report import SweepReport, SweptFleet, SweptPlace
from skyplane_orchestration.operators.base import SkyplaneOperator
from skyplane_orchestration.provision.base import TeardownReport
from skyplane_orchestration.transfer.control import SubmittedTransfer

A_PLAN = replace(
    PLAN,
    src="aws:ap-southeast-2",
    dst="aws:eu-west-3",
    throughput_gbps=3.0,
    cost=PlanCost(0.02, 0.01, None, 0.03, 0.03),
    notes=("a price was never verified",),
)


def a_fleet(key: str) -> Fleet:
    gateway = GatewayHandle(
        "aws:ap-southeast-2/0", "aws:ap-southeast-2", ("127.0.0.1", 1), ("127.0.0.1", 2), "ff"
    )
    return Fleet(key, 0, "local", "local", A_PLAN, (gateway,), (), "here/1", 1.5, 2e9)


def a_result(failed: int = 0) -> TransferResult:
    return TransferResult(
        transfer_key="k" * 32,
        epoch=1,
        state="failed" if failed else "succeeded",
        source="s3://src/",
        destination="s3://dst/",
        objects=30,
        copied=30 - failed,
        skipped=0,
        failed=failed,
        copied_bytes=1000,
        seconds=2.0,
        goodput_gbps=4e-6,
        planned_gbps=3.0,
        edges=(),
        cost=CostOutcome(1.0, 2.0, 3.0),
        failures=tuple(
            FailedObject(f"s3://src/{number}", "d", "not-found", "it is gone", 1)
            for number in range(failed)
        ),
        warnings=("an upload stays open",),
        gateways="local",
    )


@dataclass
class FakeClient:
    """Records what it is asked; raises what it is told to.

    `meanwhile` is called while a transfer runs.
    """

    identity: RunIdentity
    calls: list[tuple[str, Any]] = field(default_factory=list)
    error: SkyplaneError | None = None
    meanwhile: Callable[[], None] = lambda: None
    joined: bool = False
    orphans: tuple[SweptFleet, ...] = ()
    places: tuple[SweptPlace, ...] = ()

    def _note(self, verb: str, value: Any) -> None:
        self.calls.append((verb, value))
        if self.error is not None:
            raise self.error

    def check_destination(self, job: TransferJob) -> None:
        self._note("check_destination", job)

    def check_move(self, job: TransferJob) -> None:
        if job.move:
            self._note("check_move", job)

    def plan(self, job: TransferJob) -> TransferPlan:
        self._note("plan", job)
        return A_PLAN

    def provision(self, plan: TransferPlan) -> Fleet:
        self._note("provision", plan)
        self.meanwhile()
        return a_fleet(self.identity.fleet_key())

    def transfer(
        self, job: TransferJob, fleet: Fleet, *, on_submitted: Any, on_status: Any, manifest: Any
    ) -> TransferResult:
        on_submitted(fleet, SubmittedTransfer("k" * 32, 1, fleet.gateways[0].node, self.joined))
        self._note("transfer", (job, fleet, manifest))
        self.meanwhile()
        return a_result()

    def run(
        self, job: TransferJob, *, on_fleet: Any, on_status: Any, manifest: Any
    ) -> TransferResult:
        on_fleet(a_fleet(self.identity.fleet_key()))
        self._note("run", (job, manifest))
        self.meanwhile()
        return a_result()

    def cancel(self, fleet: Fleet, submitted: SubmittedTransfer) -> None:
        self.calls.append(("cancel", (fleet.key, submitted.transfer_key)))

    def teardown(self, fleet: Fleet | str) -> TeardownReport:
        self._note("teardown", fleet)
        self.meanwhile()
        lines = "\n".join(f"line {number}" for number in range(100))
        return TeardownReport(("aws:eu-west-3/0",), {"aws:eu-west-3/0": lines})

    def sweep(
        self, *, dry_run: bool, older_than_s: float | None, **destinations: Any
    ) -> SweepReport:
        self._note("sweep", (dry_run, older_than_s, destinations))
        return SweepReport(self.orphans, ("kept",), dry_run, self.places)


class FakeHook:
    """Hands out one client per fleet name."""

    def __init__(self) -> None:
        self.clients: dict[str, FakeClient] = {}

    def client(self, context: Any, fleet_name: str) -> FakeClient:
        if fleet_name not in self.clients:
            identity = RunIdentity("local", "dag", "run", fleet_name)
            self.clients[fleet_name] = FakeClient(identity)
        return self.clients[fleet_name]


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch) -> FakeHook:
    """In place of the hook of every operator."""
    fake = FakeHook()
    monkeypatch.setattr(SkyplaneOperator, "hook", fake)
    return fake


@pytest.fixture
def context() -> Any:
    """`context["pushed"]` holds what was put into XCom."""
    pushed: dict[str, Any] = {}
    instance = SimpleNamespace(xcom_push=lambda key, value: pushed.__setitem__(key, value))
    events: Any = defaultdict(lambda: SimpleNamespace(extra={}))
    return {"ti": instance, "outlet_events": events, "pushed": pushed}


@pytest.fixture
def failed_result() -> TransferResult:
    """A transfer of which 25 objects failed."""
    return a_result(failed=25)


@pytest.fixture
def task_log(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> Callable[[], str]:
    """What was logged; Airflow 3 logs past the standard library."""
    caplog.set_level(logging.INFO)
    return lambda: capsys.readouterr().out + caplog.text
