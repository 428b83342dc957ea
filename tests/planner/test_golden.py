"""The optima of the full integer model on the measured grid of 2022."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost
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


@pytest.mark.parametrize("number", range(8))
def test_the_cheapest_plan_at_a_goal(
    measured: Grid, goals: list[dict[str, Any]], number: int
) -> None:
    problem = goals[number]
    answer = plan(
        measured,
        problem["src"],
        problem["dst"],
        MinimizeCost(problem["goal_gbps"], exactly=True),
        limits=Limits(instance_limit=problem["instance_limit"]),
    )
    assert answer.throughput_gbps == pytest.approx(problem["goal_gbps"])
    assert answer.cost.usd_per_gb == pytest.approx(problem["usd_per_gb"], rel=TOLERANCE)
    assert len(answer.relays) <= problem["relays"]
    assert answer.grid.throughput == "measured"
    assert violations(answer, measured, Limits(instance_limit=problem["instance_limit"])) == []


@pytest.mark.parametrize("number", range(8))
def test_any_rate_from_the_goal_up_is_never_dearer(
    measured: Grid, goals: list[dict[str, Any]], number: int
) -> None:
    problem = goals[number]
    answer = plan(
        measured,
        problem["src"],
        problem["dst"],
        MinimizeCost(problem["goal_gbps"]),
        limits=Limits(instance_limit=problem["instance_limit"]),
    )
    assert answer.throughput_gbps >= problem["goal_gbps"] * (1 - 1e-9)
    assert answer.cost.usd_per_gb <= problem["usd_per_gb"] * (1 + TOLERANCE)
    assert violations(answer, measured, Limits(instance_limit=problem["instance_limit"])) == []


@pytest.mark.parametrize("number", range(4))
def test_the_fastest_plan_under_a_ceiling(
    measured: Grid, problems: list[dict[str, Any]], number: int
) -> None:
    problem = [one for one in problems if "ceiling_usd_per_gb" in one][number]
    answer = plan(
        measured,
        problem["src"],
        problem["dst"],
        MaximizeThroughput(max_usd_per_gb=problem["ceiling_usd_per_gb"]),
        limits=Limits(instance_limit=problem["instance_limit"]),
    )
    assert answer.throughput_gbps == pytest.approx(problem["throughput_gbps"], rel=TOLERANCE)
    assert answer.cost.usd_per_gb <= problem["ceiling_usd_per_gb"] * (1 + 1e-6)
    assert len(answer.relays) <= problem["relays"]
    assert violations(answer, measured, Limits(instance_limit=problem["instance_limit"])) == []


def test_with_time_the_optimum_is_proven(measured: Grid, goals: list[dict[str, Any]]) -> None:
    problem = goals[0]
    answer = plan(
        measured,
        problem["src"],
        problem["dst"],
        MinimizeCost(problem["goal_gbps"], exactly=True),
        proof_s=60.0,
        limits=Limits(instance_limit=problem["instance_limit"]),
    )
    assert answer.solver.status == "optimal"
    assert answer.solver.gap <= 1e-4
    assert answer.cost.usd_per_gb == pytest.approx(problem["usd_per_gb"], rel=2e-4)
