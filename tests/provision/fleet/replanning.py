"""A job whose plan needs a relay, and workers that plan and provision it in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.provision.fleet.harness import InstancesHarness
from tests.provision.fleet.memory_cloud import MemoryCloud
from tests.provision.samples import SECRET
from tests.transfer.samples import JOB

from skyplane_orchestration.client import Client
from skyplane_orchestration.errors import QuotaExceeded
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import Limits, MinimizeCost
from skyplane_orchestration.model.plan import TransferPlan

#: Needs relays, since instances are few.
FAST = replace(
    JOB, volume_gb=10.0, objects=5, objective=MinimizeCost(4.2), limits=Limits(instance_limit=1)
)


def refused_relay(
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[InstancesHarness, Callable[[], Client], TransferPlan]:
    """The cloud, a maker of workers, and the plan of `FAST`, whose relay the cloud refuses."""
    harness = InstancesHarness()
    tags = load_grid().tags

    def regions(cloud: MemoryCloud) -> tuple[str, ...]:
        return tuple(tag for tag in tags if tag.startswith(f"{cloud.name}:"))

    def worker() -> Client:
        identity = RunIdentity("test", "dag", "run", "default")
        return Client(identity=identity, provisioner=harness.provisioner(), secret=SECRET)

    monkeypatch.setattr(MemoryCloud, "regions", regions)
    plan = worker().plan(FAST)
    harness.account.refusals[f"{plan.relays[0]}/0"] = QuotaExceeded("no room")
    return harness, worker, plan
