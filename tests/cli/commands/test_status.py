"""The cost that `status` tells."""

from __future__ import annotations

from dataclasses import replace

from tests.transfer.samples import PLAN, A, fleet_of

from skyplane_orchestration.cli.commands.status import _cost
from skyplane_orchestration.model.fleet import FleetInstance
from skyplane_orchestration.model.plan import InstanceGroup


def test_the_cost_grows_only_while_a_gateway_answers() -> None:
    """The document of a fleet that ended last week cost more each hour."""
    plan = replace(PLAN, instances={A: InstanceGroup("x", 1, 0.36)})
    one = FleetInstance(f"{A}/0", A, "i-1", 1000.0)
    fleet = replace(fleet_of("ab", plan=plan), instances=(one,))
    cost = _cost(fleet, {"a": {"leading": {}}})
    assert cost is not None
    assert cost.instance_usd > 0
    assert _cost(fleet, {}) is None
