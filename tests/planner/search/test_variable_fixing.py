"""What is left out is never in the optimum, and what is left in suffices."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.planner.formulation import cost_per_second, end_instances
from skyplane_orchestration.planner.problem import PlanProblem, build_problem
from skyplane_orchestration.planner.search import variable_fixing
from skyplane_orchestration.planner.search.variable_fixing import (
    fix_variables,
    least_instances,
    restricted_regions,
)
from skyplane_orchestration.planner.solution import Relaxation
from skyplane_orchestration.planner.solve import relax, solve_integers

RandomProblem = Callable[[int], PlanProblem]
SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 40))]


def relaxed_at_goal(problem: PlanProblem) -> tuple[PlanProblem, Relaxation]:
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    relaxed = relax(at_goal, cost_per_second(at_goal))
    assert relaxed is not None
    return at_goal, relaxed


@pytest.mark.parametrize("with_cut", [True, False])
@pytest.mark.parametrize("seed", SEEDS)
def test_the_optimum_needs_nothing_that_is_left_out(
    random_problem: RandomProblem, seed: int, with_cut: bool
) -> None:
    """Regions, edges, flows and instances: the same optimum without, and with less of, them."""
    problem = random_problem(seed)
    if seed % 2:  # dear instances, so that there is something to leave out
        problem = problem.with_overhead(30.0)
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    cost = cost_per_second(at_goal)
    cuts = [end_instances(at_goal, least_instances(at_goal))] if with_cut else []
    relaxed = relax(at_goal, cost, extra=cuts)
    at_once = solve_integers(at_goal, cost * 1000, time_limit_s=60)
    if relaxed is None or at_once is None:
        return
    left = fix_variables(at_goal, relaxed, at_once.usd_per_s * (1 + 1e-6))
    assert left.regions[at_once.used_regions].all()
    assert left.problem.region_count == left.regions.sum()
    again = solve_integers(left.problem, cost_per_second(left.problem) * 1000, time_limit_s=60)
    assert again is not None
    assert again.usd_per_s == pytest.approx(at_once.usd_per_s, rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_a_looser_worst_leaves_more(random_problem: RandomProblem, seed: int) -> None:
    at_goal, relaxed = relaxed_at_goal(random_problem(seed))
    few, many = (fix_variables(at_goal, relaxed, relaxed.objective * by) for by in (1.001, 1.5))
    assert (few.regions <= many.regions).all()
    assert few.problem.edge_count <= many.problem.edge_count


def test_some_regions_are_useless_where_the_direct_path_is_cheap(
    small_grid: Callable[..., Grid],
) -> None:
    edges = {("aws:s", "gcp:t"): (5.0, 0.01)}
    for relay in ("azure:a", "azure:b"):
        edges |= {("aws:s", relay): (5.0, 0.1), (relay, "gcp:t"): (5.0, 0.1)}
    problem = build_problem(small_grid(edges), "aws:s", "gcp:t", goal_gbps=5.0)
    at_goal, relaxed = relaxed_at_goal(problem)
    one, all_of_them = (
        fix_variables(at_goal, relaxed, relaxed.objective + by) for by in (0.0005, 0.5)
    )
    assert one.regions.tolist() == (~problem.relays).tolist()
    assert all_of_them.regions.all()


def test_two_idle_relays_are_not_joined_when_only_one_can_be_paid(
    small_grid: Callable[..., Grid],
) -> None:
    """An instance costs 0.001 USD a second: 0.0015 pays one and not two."""
    edges = {("aws:s", "gcp:t"): (5.0, 0.01), ("azure:a", "azure:b"): (5.0, 0.1)}
    for relay in ("azure:a", "azure:b"):
        edges |= {("aws:s", relay): (5.0, 0.1), (relay, "gcp:t"): (5.0, 0.1)}
    problem = build_problem(small_grid(edges), "aws:s", "gcp:t", goal_gbps=5.0)
    at_goal, relaxed = relaxed_at_goal(problem)
    one = fix_variables(at_goal, relaxed, relaxed.objective + 0.0015)
    two = fix_variables(at_goal, relaxed, relaxed.objective + 0.0025)
    assert one.regions.all()
    assert two.problem.edge_count == problem.edge_count == one.problem.edge_count + 1
    relay = one.problem.option_region == one.problem.tags.index("azure:a")
    assert one.problem.quota[relay] == 1
    assert two.problem.quota[relay] == 2
    # 0.0005 is left for 0.19 USD per GB more than the direct way.
    assert one.problem.egress_gbps[relay] == pytest.approx(0.0005 / (0.19 / 8), rel=0.02)


def test_the_ends_need_at_least_what_their_best_edge_and_limit_allow(triangle: Grid) -> None:
    problem = build_problem(triangle, "aws:s", "gcp:t", goal_gbps=11.0)
    least = dict(zip(problem.tags, least_instances(problem), strict=True))
    assert least == {"aws:s": 3, "azure:r": 0, "gcp:t": 3}


def test_promising_regions_are_the_ends_the_used_and_the_nearest(
    small_grid: Callable[..., Grid], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variable_fixing, "EXTRA_RELAYS", 1)
    edges = {("aws:s", "gcp:t"): (5.0, 0.05)}
    for relay, price in (("azure:dear", 0.2), ("azure:near", 0.06)):
        edges |= {("aws:s", relay): (5.0, price), (relay, "gcp:t"): (5.0, 0.0)}
    problem = build_problem(small_grid(edges), "aws:s", "gcp:t", goal_gbps=1.0)
    _, relaxed = relaxed_at_goal(problem)
    chosen = np.array(problem.tags)[restricted_regions(problem, relaxed)]
    assert chosen.tolist() == ["aws:s", "azure:near", "gcp:t"]


def test_what_is_left_keeps_the_limits_that_were_asked_for(random_problem: RandomProblem) -> None:
    at_goal, relaxed = relaxed_at_goal(random_problem(1))
    left = fix_variables(at_goal, relaxed, relaxed.objective * 1.01)
    assert left.original.tags == left.problem.tags
    assert (left.problem.egress_gbps <= left.original.egress_gbps).all()
    assert set(left.original.egress_gbps.tolist()) == {5.0}
