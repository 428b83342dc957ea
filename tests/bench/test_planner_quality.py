"""Plans are compared with committed optima; here the comparison itself is tested."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from bench import fit_reference_plans, planner_quality

from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost
from skyplane_orchestration.planner import plan

SRC, DST = "aws:us-east-1", "gcp:us-east1"


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Grid:
    """Four regions, completed from what ships."""
    directory = tmp_path_factory.mktemp("few")
    tags = ("region", SRC, DST, "aws:us-east-2", "gcp:us-east4")
    (directory / "regions.csv").write_text("\n".join(tags), encoding="utf-8")
    return load_grid(directory)


def problem_of(**stated: float) -> dict[str, Any]:
    return {"src": SRC, "dst": DST, "instance_limit": 1, **stated}


def test_every_reference_is_an_optimum_of_a_problem_as_described() -> None:
    goals = planner_quality.reference_problems("goals")
    ceilings = planner_quality.reference_problems("ceilings")
    assert (len(goals), len(ceilings)) == (32, 12)
    assert {problem["instance_limit"] for problem in goals} <= set(range(1, 9))
    for problem in goals:
        assert problem["usd_per_gb"] == pytest.approx(problem["bound"], rel=2e-4)
    for problem in ceilings:
        assert problem["throughput_gbps"] == pytest.approx(problem["bound"], rel=2e-4)
    assert planner_quality.reference_problems("goals", 2) == goals[:2]


@pytest.mark.parametrize(("kind", "seed"), [("goals", 0), ("ceilings", 1)])
def test_the_problems_are_those_of_the_seed_in_order(
    shared_dir: Path, kind: str, seed: int
) -> None:
    measured = load_grid(shared_dir / "grids" / "skyplane-2022-01")
    chooser = random.Random(fit_reference_plans.SEED + seed)
    drawn = iter([fit_reference_plans.draw(chooser, measured) for _ in range(60)])
    for problem in planner_quality.reference_problems(kind):
        wanted = (problem["src"], problem["dst"], problem["instance_limit"])
        assert any((job.src, job.dst, job.instance_limit) == wanted for job in drawn)


def test_the_worst_cost_is_that_over_the_optimum(
    grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = plan(grid, SRC, DST, MinimizeCost(2.0, exactly=True), limits=Limits(instance_limit=1))
    dear = problem_of(goal_gbps=2.0, usd_per_gb=best.cost.usd_per_gb)
    cheap = problem_of(goal_gbps=2.0, usd_per_gb=best.cost.usd_per_gb / 1.25)
    monkeypatch.setattr(planner_quality, "reference_problems", lambda *_: [cheap, dear])
    worst, feasible, *_ = planner_quality.cost_cases(grid, 1)
    assert worst.value == pytest.approx(1.25)
    assert not worst.holds
    assert feasible.value == 2
    assert feasible.holds


def test_the_worst_rate_is_that_over_the_most_there_is(
    grid: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    best = plan(
        grid, SRC, DST, MaximizeThroughput(max_usd_per_gb=0.2), limits=Limits(instance_limit=1)
    )
    known = problem_of(ceiling_usd_per_gb=0.2, throughput_gbps=best.throughput_gbps)
    more = problem_of(ceiling_usd_per_gb=0.2, throughput_gbps=best.throughput_gbps * 2)
    monkeypatch.setattr(planner_quality, "reference_problems", lambda *_: [known, more])
    worst, feasible, *_ = planner_quality.ceiling_cases(grid, 1)
    assert worst.value == pytest.approx(0.5)
    assert not worst.holds
    assert feasible.holds


def test_the_plain_model_agrees_with_the_planner_on_few_regions(grid: Grid) -> None:
    found = fit_reference_plans.at_goal(grid, fit_reference_plans.Drawn(SRC, DST, 1, 0.0))
    assert found is not None
    objective = MinimizeCost(float(found["goal_gbps"]), exactly=True)
    ours = plan(grid, SRC, DST, objective, limits=Limits(instance_limit=1))
    assert found["usd_per_gb"] == pytest.approx(ours.cost.usd_per_gb, rel=3e-4)
