"""A provision task that is tried again after it has planned again finds the fleet that runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.provision.fleet.harness import InstancesHarness
from tests.provision.fleet.memory_cloud import MemoryCloud
from tests.provision.samples import SECRET
from tests.transfer.samples import JOB

from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import QuotaExceeded
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import Limits, MinimizeCost
from skyplane_orchestration.operators import SkyplaneProvisionOperator

#: Needs relays, since instances are few.
FAST = replace(
    JOB, volume_gb=10.0, objects=5, objective=MinimizeCost(4.2), limits=Limits(instance_limit=1)
)


def test_a_retry_returns_the_fleet_and_the_plan_that_run(
    hook: Any, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try was killed before its fleet was in XCom, or the XCom was lost later."""
    harness = InstancesHarness()
    tags = load_grid().tags

    def regions(cloud: MemoryCloud) -> tuple[str, ...]:
        return tuple(tag for tag in tags if tag.startswith(f"{cloud.name}:"))

    monkeypatch.setattr(MemoryCloud, "regions", regions)

    def worker() -> Client:
        identity = RunIdentity("test", "dag", "run", "default")
        return Client(identity=identity, provisioner=harness.provisioner(), secret=SECRET)

    plan = worker().plan(FAST)
    relay = plan.relays[0]
    harness.account.refusals[f"{relay}/0"] = QuotaExceeded("no room")
    tries: list[Fleet] = []
    for _ in range(2):
        hook.clients["default"] = worker()
        operator = SkyplaneProvisionOperator(task_id="provision", plan=plan.to_dict(), job=FAST)
        tries.append(Fleet.from_dict(operator.execute(context)))
    first, second = tries
    assert relay not in first.plan.instances
    assert (second.plan, second.start_id) == (first.plan, first.start_id)
    assert len(harness.running()) == first.plan.instance_count
