"""The relaxed frontier: by hand on a triangle, against plain linear programs elsewhere."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from tests.planner.random_laws import grids, law

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.planner.formulation import cost_per_second
from skyplane_orchestration.planner.problem import PlanProblem, build_problem
from skyplane_orchestration.planner.relaxed_frontier import RelaxedFrontier, relaxed_frontier
from skyplane_orchestration.planner.solve import relax
from skyplane_orchestration.units import usd_per_gbit_to_usd_per_gb


def least_usd_per_gb(problem: PlanProblem, gbps: float) -> float:
    """The relaxation at one rate, as one program over all edges."""
    answer = relax(problem.with_goal(gbps, gbps), cost_per_second(problem))
    assert answer is not None
    return usd_per_gbit_to_usd_per_gb(answer.objective / gbps)


def assert_shape(found: RelaxedFrontier) -> None:
    """Rates and prices rise, and the price is convex in 1 / G."""
    points = found.points
    assert all(slow[0] < fast[0] for slow, fast in pairwise(points))
    assert all(slow[1] <= fast[1] * (1 + 1e-9) for slow, fast in pairwise(points))
    slopes = [(fast[1] - slow[1]) / (1 / slow[0] - 1 / fast[0]) for slow, fast in pairwise(points)]
    assert all(one <= other * (1 + 1e-6) + 1e-9 for one, other in pairwise(slopes))


@law(10, grid=grids(3, 6), shares=st.lists(st.floats(0.001, 0.999), min_size=10, max_size=10))
def test_it_is_the_relaxation_at_any_rate(grid: Grid, shares: list[float]) -> None:
    problem = build_problem(grid, "aws:s", "gcp:t", goal_gbps=0.0)
    found = relaxed_frontier(problem)
    if not found.points:
        assert relax(problem.with_goal(1e-3, 1e-3), cost_per_second(problem)) is None
        return
    assert_shape(found)
    for share in shares:
        rate = share * found.most_gbps
        expected = least_usd_per_gb(problem, rate)
        assert found.usd_per_gb_at(rate) == pytest.approx(expected, rel=1e-7, abs=1e-9)
    above = found.most_gbps * 1.0001
    assert relax(problem.with_goal(above, above), cost_per_second(problem)) is None
    assert found.usd_per_gb_at(above) == math.inf


def test_the_triangle_by_hand(triangle: Grid) -> None:
    limits = Limits(instance_limit=1)
    found = relaxed_frontier(
        build_problem(triangle, "aws:s", "gcp:t", goal_gbps=0.0, limits=limits)
    )
    # An instance costs 0.008 USD per GB and Gbit/s. Direct: two ends of 1 / 2.5 instances per
    # Gbit/s. Over the relay: three regions of 1 / 5. The source has one instance.
    direct, relayed = 0.10 + 2 * 0.008 / 2.5, 0.12 + 3 * 0.008 / 5
    rates, prices = zip(*found.points, strict=True)
    assert rates == pytest.approx((2.5, 5.0))
    assert prices == pytest.approx((direct, relayed))
    assert found.usd_per_gb_at(0.3) == pytest.approx(direct)
    # 1 Gbit/s direct takes 0.4 of the source's instance, 3 over the relay take 0.6 of it.
    assert found.usd_per_gb_at(4.0) == pytest.approx((direct + 3 * relayed) / 4)
    assert found.usd_per_gb_at(5.1) == math.inf


def test_the_edges_are_those_that_carry_flow_on_both_sides(triangle: Grid) -> None:
    limits = Limits(instance_limit=1)
    problem = build_problem(triangle, "aws:s", "gcp:t", goal_gbps=0.0, limits=limits)
    found = relaxed_frontier(problem)

    def edges(gbps: float) -> set[tuple[str, str]]:
        used = found.edges_at(gbps)
        return {
            (problem.tags[tail], problem.tags[head])
            for tail, head in zip(problem.tail[used], problem.head[used], strict=True)
        }

    over_relay = {("aws:s", "azure:r"), ("azure:r", "gcp:t")}
    assert edges(1.0) == {("aws:s", "gcp:t")}
    assert edges(3.0) == {("aws:s", "gcp:t"), *over_relay}


def test_the_goal_of_the_problem_does_not_matter(triangle: Grid) -> None:
    one, other = (
        relaxed_frontier(build_problem(triangle, "aws:s", "gcp:t", goal_gbps=goal))
        for goal in (0.0, 7.0)
    )
    assert one.points == other.points


def test_no_way_through_is_no_point(small_grid: Any) -> None:
    grid = small_grid({("aws:s", "azure:r"): (1.0, 0.1), ("gcp:t", "aws:s"): (1.0, 0.1)})
    found = relaxed_frontier(build_problem(grid, "aws:s", "gcp:t", goal_gbps=0.0))
    assert (found.points, found.most_gbps) == ((), 0.0)
    assert found.usd_per_gb_at(1.0) == math.inf


def test_few_edges_say_what_all_edges_say(measured: Grid) -> None:
    """A hard pair: the answers on few edges are proven for all, or found on all."""
    problem = build_problem(measured, "gcp:us-east1", "gcp:europe-west3", goal_gbps=0.0)
    found = relaxed_frontier(problem)
    assert len(found.points) > 3
    assert_shape(found)
    for share in np.random.default_rng(7).uniform(0.3, 0.999, 8):
        rate = float(share) * found.most_gbps
        assert found.usd_per_gb_at(rate) == pytest.approx(least_usd_per_gb(problem, rate), rel=1e-7)
