"""The search on grids where not every region is promising, against the model solved at once."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np
import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.job import Limits
from skyplane_orchestration.planner import bound, few
from skyplane_orchestration.planner.bound import least_instances, most_promising, useless_regions
from skyplane_orchestration.planner.formulation import cost_per_second, end_instances
from skyplane_orchestration.planner.problem import PlanProblem, build_problem
from skyplane_orchestration.planner.search import OPTIMAL_GAP, cheapest
from skyplane_orchestration.planner.solve import relax, solve_integers

REGIONS = 11


def random_problem(grid_of: Callable[..., Grid], seed: int) -> PlanProblem:
    """Eleven regions, rates and prices at random, one or two instances each."""
    chooser = random.Random(seed)
    tags = ["aws:s", "gcp:t", *(f"azure:r{number}" for number in range(REGIONS - 2))]
    edges = {
        (src, dst): (chooser.uniform(0.5, 6.0), round(chooser.uniform(0.01, 0.2), 3))
        for src in tags
        for dst in tags
        if src != dst
    }
    limit = chooser.choice([1, 2])
    goal = chooser.uniform(0.3, 0.9) * 5.0 * limit
    return build_problem(
        grid_of(edges), tags[0], tags[1], goal_gbps=goal, limits=Limits(instance_limit=limit)
    )


@pytest.mark.parametrize("seed", range(8))
def test_the_search_finds_what_the_model_solved_at_once_finds(
    small_grid: Callable[..., Grid], seed: int
) -> None:
    problem = random_problem(small_grid, seed)
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    at_once = solve_integers(at_goal, cost_per_second(at_goal) * 1000, time_limit_s=60)
    found = cheapest(problem, exactly=True, proof_s=30.0)
    assert (found is None) == (at_once is None)
    if found is None or at_once is None:
        return
    best = at_once.usd_per_gbit
    assert found.integers.usd_per_gbit <= best * (1 + 2 * OPTIMAL_GAP)
    assert found.bound <= best * (1 + 1e-6)
    assert found.gap <= OPTIMAL_GAP


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("exactly", [True, False])
def test_the_proof_brings_in_what_was_not_promising(
    small_grid: Callable[..., Grid], seed: int, exactly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing promising beside what the relaxation uses, and the model never at once."""
    problem = random_problem(small_grid, seed)
    best = cheapest(problem, exactly=exactly, proof_s=30.0)
    monkeypatch.setattr(bound, "PROMISING", 0)
    monkeypatch.setattr(few, "FEW_EDGES", 0)
    found = cheapest(problem, exactly=exactly, proof_s=30.0)
    assert (found is None) == (best is None)
    if found is None or best is None:
        return
    price = best.integers.usd_per_gbit
    assert found.bound <= price * (1 + 1e-6)
    assert found.integers.usd_per_gbit <= price * (1 + 2 * OPTIMAL_GAP)


@pytest.mark.parametrize("seed", range(8))
def test_a_region_that_is_called_useless_is_not_in_the_optimum(
    small_grid: Callable[..., Grid], seed: int
) -> None:
    problem = random_problem(small_grid, seed)
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    cost = cost_per_second(at_goal)
    relaxed = relax(at_goal, cost, extra=[end_instances(at_goal, least_instances(at_goal))])
    at_once = solve_integers(at_goal, cost * 1000, time_limit_s=60)
    if relaxed is None or at_once is None:
        return
    slack = at_once.usd_per_s * (1 + 1e-6) - relaxed.objective
    assert not (useless_regions(at_goal, relaxed, slack) & at_once.used_regions).any()


def test_some_regions_are_useless_where_the_direct_path_is_cheap(
    small_grid: Callable[..., Grid],
) -> None:
    edges = {("aws:s", "gcp:t"): (5.0, 0.01)}
    for relay in ("azure:a", "azure:b"):
        edges |= {("aws:s", relay): (5.0, 0.1), (relay, "gcp:t"): (5.0, 0.1)}
    problem = build_problem(small_grid(edges), "aws:s", "gcp:t", goal_gbps=5.0)
    at_goal = problem.with_goal(5.0, 5.0)
    relaxed = relax(at_goal, cost_per_second(at_goal))
    assert relaxed is not None
    assert useless_regions(at_goal, relaxed, 0.0005).tolist() == problem.relays.tolist()
    assert not useless_regions(at_goal, relaxed, 0.5).any()


def test_the_ends_need_at_least_what_their_best_edge_and_limit_allow(triangle: Grid) -> None:
    problem = build_problem(triangle, "aws:s", "gcp:t", goal_gbps=11.0)
    least = dict(zip(problem.tags, least_instances(problem), strict=True))
    assert least == {"aws:s": 3, "azure:r": 0, "gcp:t": 3}


def test_promising_regions_are_the_ends_the_used_and_the_nearest(
    small_grid: Callable[..., Grid], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bound, "PROMISING", 1)
    edges = {("aws:s", "gcp:t"): (5.0, 0.05)}
    for relay, price in (("azure:dear", 0.2), ("azure:near", 0.06)):
        edges |= {("aws:s", relay): (5.0, price), (relay, "gcp:t"): (5.0, 0.0)}
    problem = build_problem(small_grid(edges), "aws:s", "gcp:t", goal_gbps=1.0)
    at_goal = problem.with_goal(1.0, 1.0)
    relaxed = relax(at_goal, cost_per_second(at_goal))
    assert relaxed is not None
    chosen = np.array(problem.tags)[most_promising(problem, relaxed)]
    assert chosen.tolist() == ["aws:s", "azure:near", "gcp:t"]
