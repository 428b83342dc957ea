"""A provision task that is tried again after it has planned again finds the fleet that runs."""

from __future__ import annotations

from typing import Any

import pytest
from tests.provision.fleet.replanning import FAST, refused_relay

from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.operators import SkyplaneProvisionOperator
from skyplane_orchestration.report.task_documents import PLAN_IN_PLACE, documents_of


def test_a_retry_returns_the_fleet_and_the_plan_that_run(
    hook: Any, context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first try was killed before its fleet was in XCom, or the XCom was lost later."""
    harness, worker, plan = refused_relay(monkeypatch)
    tries: list[Fleet] = []
    for _ in range(2):
        context["pushed"].clear()  # As Airflow does before each try.
        hook.clients["default"] = worker()
        operator = SkyplaneProvisionOperator(task_id="provision", plan=plan.to_dict(), job=FAST)
        tries.append(Fleet.from_dict(operator.execute(context)))
        in_place = {"provision": context["pushed"][PLAN_IN_PLACE]}
        of_plan_task = documents_of({"return_value": plan.to_dict()}, in_place)
        assert (of_plan_task.plan, of_plan_task.runs_in) == (tries[-1].plan, "provision")
    first, second = tries
    assert plan.relays[0] not in first.plan.instances
    assert (second.plan, second.start_id) == (first.plan, first.start_id)
    assert len(harness.running()) == first.plan.instance_count
