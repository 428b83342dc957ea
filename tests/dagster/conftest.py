"""A client that brings nothing up, and a resource that opens it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import dagster as dg
import pytest
from tests.transfer import samples

from skyplane_orchestration.dagster import SkyplaneResource
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.plan import PlanCost, PlanPath, TransferPlan
from skyplane_orchestration.model.result import CostOutcome, TransferResult
from skyplane_orchestration.model.sweep_report import SweepReport, SweptFleet
from skyplane_orchestration.provision.base import TeardownReport
from skyplane_orchestration.transfer.control import SubmittedTransfer

HERE = "local:here"

PLAN = replace(
    samples.PLAN,
    src=HERE,
    dst=HERE,
    cost=PlanCost(0.5, 0.25, 0.125, 0.875, 0.75),
    paths=(PlanPath((HERE,), 1.0),),
)


def result_of(job: TransferJob, state: Any = "succeeded") -> TransferResult:
    return TransferResult(
        transfer_key="ab",
        epoch=1,
        state=state,
        source=job.source.url,
        destination=job.destination.url,
        objects=3,
        copied=2,
        copied_earlier=1,
        skipped=1,
        failed=0,
        copied_bytes=1000,
        seconds=2.0,
        goodput_gbps=0.5,
        planned_gbps=1.0,
        edges=(),
        cost=CostOutcome(0.5, 0.25, 0.125),
        failures=(),
        manifest_uri="file:///manifest",
        gateways="local",
    )


@dataclass
class World:
    """What the fake clients were asked, and what they are to raise.

    Attributes:
        calls: verb and fleet key, transfer destination or identity.
        errors: verb -> errors to raise at its next calls, one each.
        moved_to: key of the fleet on which a transfer ends, if it is another.
    """

    calls: list[tuple[str, Any]] = field(default_factory=list)
    errors: dict[str, list[BaseException]] = field(default_factory=dict)
    moved_to: str = ""
    sweep: SweepReport = field(default_factory=lambda: SweepReport((), (), dry_run=False))

    @property
    def verbs(self) -> list[str]:
        return [verb for verb, _ in self.calls]

    def note(self, verb: str, what: Any) -> None:
        self.calls.append((verb, what))
        if self.errors.get(verb):
            raise self.errors[verb].pop(0)


class FakeClient:
    """As much of `Client` as the steps use."""

    def __init__(self, world: World, identity: RunIdentity) -> None:
        self._world = world
        self.identity = identity

    def check_destination(self, job: TransferJob) -> None:
        self._world.note("check_destination", job.destination.url)

    def check_move(self, job: TransferJob) -> None:
        if job.move:
            self._world.note("check_move", job.source.url)

    def plan(self, job: TransferJob) -> TransferPlan:
        self._world.note("plan", job.source.url)
        return PLAN

    def provision(self, plan: TransferPlan) -> Fleet:
        assert plan == PLAN
        key = self.identity.fleet_key()
        self._world.note("provision", key)
        deployment = self.identity.deployment
        return Fleet(key, 0, deployment, "local", plan, (), (), "host", 1.5, 9e9)

    def transfer(
        self,
        job: TransferJob,
        fleet: Fleet,
        *,
        on_submitted: Callable[[Fleet, SubmittedTransfer], None],
        on_status: object,
        manifest: str | None,
    ) -> TransferResult:
        where = replace(fleet, key=self._world.moved_to or fleet.key)
        on_submitted(where, SubmittedTransfer("ab", 1, "local:here/0", joined=False))
        self._world.note("transfer", (fleet.key, job.destination.url, manifest))
        return result_of(job)

    def teardown(self, fleet: Fleet | str) -> TeardownReport:
        self._world.note("teardown", fleet if isinstance(fleet, str) else fleet.key)
        return TeardownReport(("local:here/0",), {"local:here/0": "the end"})

    def teardown_after_error(self, fleet: Fleet) -> None:
        self.teardown(fleet)

    def sweep(self, **destinations: Any) -> SweepReport:
        self._world.note("sweep", (self.identity, destinations))
        return self._world.sweep


#: A resource is made anew for every run, from its settings: this is what survives.
_WORLDS: dict[str, World] = {}


class FakeResource(SkyplaneResource):
    """Opens fake clients of the world of its name."""

    world: str

    def client(self, identity: RunIdentity) -> Any:
        world = _WORLDS[self.world]
        world.calls.append(("identity", identity))
        return FakeClient(world, identity)


@dataclass
class Lab:
    """Materializes assets against one world."""

    world: World
    resource: FakeResource

    def fail(self, verb: str, *errors: SkyplaneError | BaseException) -> None:
        self.world.errors[verb] = list(errors)

    def orphan(self, error: str = "") -> None:
        self.world.sweep = SweepReport((SweptFleet("ab", "gone", (), error),), (), dry_run=False)

    def materialize(
        self,
        asset: dg.AssetsDefinition,
        partition_key: str | None = None,
        instance: dg.DagsterInstance | None = None,
        **resources: Any,
    ) -> dg.ExecuteInProcessResult:
        opened = nullcontext(instance) if instance else dg.DagsterInstance.ephemeral()
        with opened as used:
            return dg.materialize(
                [asset],
                resources={"skyplane": self.resource, **resources},
                instance=used,
                partition_key=partition_key,
                raise_on_error=False,
            )


@pytest.fixture
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    name = request.node.nodeid
    _WORLDS[name] = World()
    yield Lab(_WORLDS[name], FakeResource(deployment="test", world=name))
    del _WORLDS[name]
