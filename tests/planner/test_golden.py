"""The optima of the full integer model on the measured grid of 2022."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost, Objective
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import plan, violations

TOLERANCE = 1e-3


@pytest.fixture(scope="module")
def problems(shared_dir: Path) -> list[dict[str, Any]]:
    text = (shared_dir / "golden" / "plans.json").read_text(encoding="utf-8")
    found: list[dict[str, Any]] = json.loads(text)["problems"]
    return found


@pytest.fixture(scope="module")
def goals(problems: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [problem for problem in problems if "goal_gbps" in problem]


def best(grid: Grid, problem: dict[str, Any], objective: Objective, **more: Any) -> TransferPlan:
    """A plan that holds, with the problem's instance limit."""
    limits = Limits(instance_limit=problem["instance_limit"])
    answer = plan(grid, problem["src"], problem["dst"], objective, limits=limits, **more)
    assert violations(answer, grid, limits) == []
    return answer


@pytest.mark.parametrize("number", range(8))
def test_the_cheapest_plan_at_a_goal_and_at_any_rate_from_it_up(
    measured: Grid, goals: list[dict[str, Any]], number: int
) -> None:
    problem, goal = goals[number], goals[number]["goal_gbps"]
    exactly = best(measured, problem, MinimizeCost(goal, exactly=True))
    assert exactly.throughput_gbps == pytest.approx(goal)
    assert exactly.cost.usd_per_gb == pytest.approx(problem["usd_per_gb"], rel=TOLERANCE)
    assert len(exactly.relays) <= problem["relays"]
    assert exactly.grid.throughput == "measured"
    or_more = best(measured, problem, MinimizeCost(goal))
    assert or_more.throughput_gbps >= goal * (1 - 1e-9)
    assert or_more.cost.usd_per_gb <= problem["usd_per_gb"] * (1 + TOLERANCE)


@pytest.mark.parametrize("number", range(4))
def test_the_fastest_plan_under_a_ceiling(
    measured: Grid, problems: list[dict[str, Any]], number: int
) -> None:
    problem = [one for one in problems if "ceiling_usd_per_gb" in one][number]
    ceiling = problem["ceiling_usd_per_gb"]
    answer = best(measured, problem, MaximizeThroughput(max_usd_per_gb=ceiling))
    assert answer.throughput_gbps == pytest.approx(problem["throughput_gbps"], rel=TOLERANCE)
    assert answer.cost.usd_per_gb <= ceiling * (1 + 1e-6)
    assert len(answer.relays) <= problem["relays"]


def test_with_time_the_optimum_is_proven(measured: Grid, goals: list[dict[str, Any]]) -> None:
    problem = goals[0]
    answer = best(measured, problem, MinimizeCost(problem["goal_gbps"], exactly=True), proof_s=60.0)
    assert answer.solver.status == "optimal"
    assert answer.solver.gap <= 1e-4
    assert answer.cost.usd_per_gb == pytest.approx(problem["usd_per_gb"], rel=2e-4)
