"""A provision op that is tried again after it has planned again finds the fleet that runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest
from tests.provision.fleet.replanning import FAST, refused_relay

from skyplane_orchestration.client import Client
from skyplane_orchestration.dagster import SkyplaneResource, ops
from skyplane_orchestration.dagster.metadata import plan_metadata
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.plan import TransferPlan

_WORKERS: list[Callable[[], Client]] = []


class WorkersResource(SkyplaneResource):
    """Each op is on a worker of its own."""

    def client(self, identity: RunIdentity, gateways: Any = "always") -> Any:
        return _WORKERS[-1]()


def test_a_retry_has_the_fleet_and_shows_the_plan_that_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first try failed after its fleet was up."""
    harness, worker, plan = refused_relay(monkeypatch)
    fleets: list[Fleet] = []

    def fail_once(_: object, fleet: Fleet) -> None:
        fleets.append(fleet)
        if len(fleets) == 1:
            raise RuntimeError("the worker broke")

    monkeypatch.setattr(ops, "log_fleet", fail_once)
    monkeypatch.setattr(ops, "plan_of", lambda client, jobs: client.plan(*jobs))
    retries = dg.RetryPolicy(max_retries=1)
    parts = ops.AssetTransfer(dg.AssetKey("paris"), FAST, retry_policy=retries)

    @dg.graph_asset(name="paris")
    def asset() -> Any:
        made = ops.plan_op(parts, ()).alias("plan")()
        return ops.provision_op(parts).alias("provision")(plan=made)

    _WORKERS.append(worker)
    resource = WorkersResource(deployment="test")
    result = dg.materialize([asset], resources={"skyplane": resource})
    first, second = fleets
    assert (second.plan, second.start_id) == (first.plan, first.start_id)
    assert plan.relays[0] not in second.plan.instances
    assert len(harness.running()) == second.plan.instance_count
    shown = {
        event.step_key.rpartition(".")[2]: event.step_output_data.metadata
        for event in result.all_events
        if event.event_type_value == "STEP_OUTPUT" and event.step_key
    }
    of_provision: Any = shown["provision"]["skyplane/plan"].value
    assert TransferPlan.from_dict(of_provision) == second.plan
    assert plan_metadata(second.plan).keys() <= shown["provision"].keys()
