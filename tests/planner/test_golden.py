"""The optima of the full integer model on the measured grid of 2022.

The plans of some problems lie within the twelve regions that are part of this repository.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.planner.conftest import DOZEN

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost, Objective
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import plan, violations

TOLERANCE = 1e-3
PROBLEMS: list[dict[str, Any]] = json.loads((DOZEN / "plans.json").read_text("utf-8"))["problems"]


def best(grid: Grid, problem: dict[str, Any], objective: Objective) -> TransferPlan:
    """A plan that holds, with the problem's instance limit."""
    limits = Limits(instance_limit=problem["instance_limit"])
    answer = plan(grid, problem["src"], problem["dst"], objective, limits=limits)
    assert violations(answer, grid, limits) == []
    assert len(answer.relays) <= problem["relays"]
    assert answer.grid.throughput == "measured"
    return answer


def agrees(grid: Grid, problem: dict[str, Any]) -> None:
    if "ceiling_usd_per_gb" in problem:
        ceiling = problem["ceiling_usd_per_gb"]
        answer = best(grid, problem, MaximizeThroughput(max_usd_per_gb=ceiling))
        assert answer.throughput_gbps == pytest.approx(problem["throughput_gbps"], rel=TOLERANCE)
        assert answer.cost.usd_per_gb <= ceiling * (1 + 1e-6)
        return
    goal = problem["goal_gbps"]
    exactly = best(grid, problem, MinimizeCost(goal, exactly=True))
    assert exactly.throughput_gbps == pytest.approx(goal)
    assert exactly.cost.usd_per_gb == pytest.approx(problem["usd_per_gb"], rel=TOLERANCE)
    or_more = best(grid, problem, MinimizeCost(goal))
    assert or_more.throughput_gbps >= goal * (1 - 1e-9)
    assert or_more.cost.usd_per_gb <= problem["usd_per_gb"] * (1 + TOLERANCE)


@pytest.mark.parametrize("problem", [one for one in PROBLEMS if one["of_few_regions"]])
def test_the_plan_on_twelve_regions_is_as_good(dozen: Grid, problem: dict[str, Any]) -> None:
    agrees(dozen, problem)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_plan_on_all_regions_is_as_good(measured: Grid, problem: dict[str, Any]) -> None:
    agrees(measured, problem)
