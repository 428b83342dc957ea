"""The search for the most throughput."""

from __future__ import annotations

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.planner.problem import build_problem
from skyplane_orchestration.planner.search.optimum import cheapest, fastest


@pytest.mark.parametrize(
    "pair",
    [("gcp:europe-west12", "gcp:europe-north2"), ("aws:ca-central-1", "aws:sa-west-1")],
)
def test_the_fastest_plan_is_the_cheapest_of_its_rate(shipped: Grid, pair: tuple[str, str]) -> None:
    """Under a ceiling that does not bind; the regions of the fastest alone were 26 % dearer."""
    problem = build_problem(shipped, *pair, goal_gbps=1.0, limits=Limits(instance_limit=1))
    most = fastest(problem, 1.0)
    assert most is not None
    rate = most.solution.throughput_gbps
    least = cheapest(problem.with_goal(rate, rate), exactly=True)
    assert least is not None
    assert most.solution.usd_per_gbit <= least.solution.usd_per_gbit * 1.001
