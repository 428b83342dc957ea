"""Which regions the restricted problem has, and how many instances its ends need."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.planner.formulation import cost_per_second
from skyplane_orchestration.planner.problem import PlanProblem, build_problem
from skyplane_orchestration.planner.search import regions
from skyplane_orchestration.planner.search.regions import least_instances, restricted_regions
from skyplane_orchestration.planner.solution import Relaxation
from skyplane_orchestration.planner.solve import relax


def relaxed_at_goal(problem: PlanProblem) -> tuple[PlanProblem, Relaxation]:
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    relaxed = relax(at_goal, cost_per_second(at_goal))
    assert relaxed is not None
    return at_goal, relaxed


def test_the_ends_need_at_least_what_their_best_edge_and_limit_allow(triangle: Grid) -> None:
    problem = build_problem(triangle, "aws:s", "gcp:t", goal_gbps=11.0)
    least = dict(zip(problem.tags, least_instances(problem), strict=True))
    assert least == {"aws:s": 3, "azure:r": 0, "gcp:t": 3}


def test_promising_regions_are_the_ends_the_used_and_the_nearest(
    small_grid: Callable[..., Grid], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regions, "FEW_REGIONS", 0)
    monkeypatch.setattr(regions, "EXTRA_RELAYS", 1)
    edges = {("aws:s", "gcp:t"): (5.0, 0.05)}
    for relay, price in (("azure:dear", 0.2), ("azure:near", 0.06)):
        edges |= {("aws:s", relay): (5.0, price), (relay, "gcp:t"): (5.0, 0.0)}
    problem = build_problem(small_grid(edges), "aws:s", "gcp:t", goal_gbps=1.0)
    _, relaxed = relaxed_at_goal(problem)
    chosen = np.array(problem.tags)[restricted_regions(problem, relaxed)]
    assert chosen.tolist() == ["aws:s", "azure:near", "gcp:t"]
