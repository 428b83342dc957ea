from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.planner import solve
from skyplane_orchestration.planner.formulation import columns_of, cost_ceiling, cost_per_second
from skyplane_orchestration.planner.problem import PlanProblem, build_problem
from skyplane_orchestration.planner.solve import relax, solve_integers


def at(grid: Grid, goal_gbps: float, instance_limit: int | None = None) -> PlanProblem:
    problem = build_problem(
        grid, "aws:s", "gcp:t", goal_gbps=goal_gbps, limits=Limits(instance_limit=instance_limit)
    )
    return problem.with_goal(goal_gbps, goal_gbps)


def test_the_relaxation_by_hand(triangle: Grid) -> None:
    """1.25 Gbit/s direct: half an instance at each end."""
    problem = at(triangle, 1.25)
    relaxed = relax(problem, cost_per_second(problem))
    assert relaxed is not None
    assert relaxed.objective == pytest.approx(1.25 * 0.10 / 8 + 2 * 0.5 * 0.001)
    assert relaxed.instances.sum() == pytest.approx(1.0)
    assert relaxed.throughput_gbps == 1.25
    assert (relaxed.edge_reduced_cost >= 0).all()


def test_the_relaxation_bounds_the_integers(triangle: Grid) -> None:
    for goal in (0.5, 2.5, 3.1, 7.0):
        problem = at(triangle, goal)
        cost = cost_per_second(problem)
        relaxed, integers = relax(problem, cost), solve_integers(problem, cost * 1000)
        assert relaxed is not None
        assert integers is not None
        assert relaxed.objective <= integers.usd_per_s * (1 + 1e-9)


def test_columns_that_join_later_change_nothing(
    shipped: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = build_problem(shipped, "gcp:us-east5", "gcp:asia-south1", goal_gbps=45.0)
    cost = cost_per_second(problem)
    by_and_by = relax(problem, cost)
    monkeypatch.setattr(solve, "COLUMNS_AT_ONCE", problem.edge_count)
    at_once = relax(problem, cost)
    assert by_and_by is not None
    assert at_once is not None
    assert by_and_by.objective == pytest.approx(at_once.objective, rel=1e-9)


def test_infeasible_is_none(triangle: Grid) -> None:
    problem = at(triangle, 41.0)
    assert relax(problem, cost_per_second(problem)) is None
    assert solve_integers(problem, cost_per_second(problem)) is None


def test_an_extra_row_is_kept(triangle: Grid) -> None:
    problem = at(triangle, 5.0, instance_limit=1)
    cheap = cost_ceiling(problem, 0.11 / 8)
    assert solve_integers(problem, cost_per_second(problem)) is not None
    assert solve_integers(problem, cost_per_second(problem), extra=[cheap]) is None


def test_no_time_at_all_is_an_error_and_not_an_answer(shipped: Grid) -> None:
    problem = build_problem(shipped, "gcp:us-east5", "gcp:asia-south1", goal_gbps=45.0)
    with pytest.raises(SolverFailed, match="no plan was found within"):
        solve_integers(problem, cost_per_second(problem), time_limit_s=0.0)


def test_only_some_connections_may_be_counted(triangle: Grid) -> None:
    problem = at(triangle, 2.51, instance_limit=1)
    cost = cost_per_second(problem) * 1000
    full = solve_integers(problem, cost)
    real = solve_integers(problem, cost, integer_edges=np.zeros(problem.edge_count, dtype=bool))
    assert full is not None
    assert real is not None
    assert real.usd_per_s < full.usd_per_s
    assert (real.connections == 0).all()


def test_the_price_of_a_limit_is_what_a_unit_is_worth(triangle: Grid) -> None:
    """A little less of what the source's instance sends costs what its price says."""
    problem = at(triangle, 3.2, instance_limit=1)
    cost = cost_per_second(problem)
    relaxed = relax(problem, cost)
    assert relaxed is not None
    prices = relaxed.limit_price
    assert {"egress_limit", "ingress_limit", "connection_limit_out"} <= set(prices)
    price = float(prices["connection_limit_out"][problem.src])
    assert price > 0
    step = 1e-3
    limit = problem.connection_limit - step * (problem.option_region == problem.src)
    fewer = relax(replace(problem, connection_limit=limit), cost)
    assert fewer is not None
    worth = step * price * float(relaxed.instances[problem.option_region == problem.src][0])
    assert fewer.objective - relaxed.objective == pytest.approx(worth, rel=1e-2)


def test_the_price_of_a_ceiling_and_of_a_store(triangle: Grid) -> None:
    problem = build_problem(
        triangle, "aws:s", "gcp:t", goal_gbps=0.0, limits=Limits(source_read_gbps=4.0)
    )
    cost = np.zeros(columns_of(problem).count)
    cost[columns_of(problem).throughput] = -1.0
    by_store = relax(problem, cost)
    assert by_store is not None
    assert by_store.throughput_gbps == pytest.approx(4.0)
    assert by_store.limit_price["storage_read"] == pytest.approx([1.0])
    dear = relax(problem, cost, extra=[cost_ceiling(problem, 0.5)])
    assert dear is not None
    assert dear.limit_price["cost_ceiling"] == pytest.approx([0.0])
