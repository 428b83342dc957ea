"""The solver's door for programs of any kind, and the relaxation's bound on its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.planner.highs import LinearProgram, solve_integer, solve_linear
from skyplane_orchestration.planner.multicast.problem import build_multicast_problem
from skyplane_orchestration.planner.multicast.relaxation import TreeObjective, TreePool, relax_trees

S, A, B = "aws:s", "gcp:a", "gcp:b"


def program(least: float = 1.5, most: float = 5.0) -> LinearProgram:
    """Minimise 2 x + y with x + y >= least, z = 1, all at most `most`."""
    return LinearProgram(
        cost=np.array([2.0, 1.0, 0.0]),
        below=np.array([[-1.0, -1.0, 0.0]]),
        most=np.array([-least]),
        equal=np.array([[0.0, 0.0, 1.0]]),
        exact=np.array([1.0]),
        lower=np.zeros(3),
        upper=np.array([most, most, most]),
    )


def test_the_real_optimum_comes_with_its_prices() -> None:
    answer = solve_linear(program())
    assert answer is not None
    assert answer.objective == pytest.approx(1.5)
    assert answer.x.tolist() == pytest.approx([0.0, 1.5, 1.0])
    assert answer.below_price.tolist() == pytest.approx([1.0])
    assert answer.equal_price.tolist() == pytest.approx([0.0])


def test_the_whole_optimum_is_whole() -> None:
    whole = np.array([True, True, False])
    answer = solve_integer(program(), whole, relative_gap=1e-9, time_limit_s=5.0)
    assert answer is not None
    assert answer.x.tolist() == [0.0, 2.0, 1.0]
    assert answer.objective == pytest.approx(answer.bound) == pytest.approx(2.0)


def test_none_where_there_is_none() -> None:
    impossible = program(least=11.0)
    assert solve_linear(impossible) is None
    whole = np.ones(3, dtype=bool)
    assert solve_integer(impossible, whole, relative_gap=1e-9, time_limit_s=5.0) is None


@pytest.fixture(scope="module")
def lanes(small_grid: Callable[..., Grid]) -> Grid:
    """Seven regions: more than are solved over all trees."""
    tags = (S, A, B, "azure:r", "azure:q", "aws:v", "aws:w")
    return small_grid(
        {
            (one, other): (2.0 + 0.1 * row + 0.3 * column, 0.02 * (row + 1) + 0.005 * column)
            for row, one in enumerate(tags)
            for column, other in enumerate(tags)
            if one != other
        }
    )


@pytest.mark.parametrize("goal", [0.5, 4.0, 11.0])
def test_column_generation_ends_at_its_own_bound(lanes: Grid, goal: float) -> None:
    problem = build_multicast_problem(lanes, S, [A, B], goal_gbps=goal)
    pool = TreePool.of(problem)
    relaxed = relax_trees(problem, pool, TreeObjective(1e4, 0.0, goal, goal))
    assert relaxed is not None
    assert relaxed.bound == pytest.approx(relaxed.objective, rel=1e-5)
    assert relaxed.rate_gbps.sum() == pytest.approx(goal)
    assert not pool.is_complete


def test_a_bound_without_patience_is_a_bound_all_the_same(lanes: Grid) -> None:
    problem = build_multicast_problem(lanes, S, [A, B], goal_gbps=11.0)
    objective = TreeObjective(1e4, 0.0, 11.0, 11.0)
    first = relax_trees(problem, TreePool.of(problem), objective, patience_s=0.0)
    last = relax_trees(problem, TreePool.of(problem), objective)
    assert first is not None
    assert last is not None
    assert first.bound <= last.objective * (1 + 1e-9)
    assert first.objective >= last.objective * (1 - 1e-9)
