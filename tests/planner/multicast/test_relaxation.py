"""Column generation over distribution trees, and its bound."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.planner.multicast.optimize import build_multicast_problem
from skyplane_orchestration.planner.multicast.relaxation import TreeObjective, TreePool, relax_trees

S, A, B = "aws:s", "gcp:a", "gcp:b"


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


def test_the_bound_of_the_first_round_is_a_bound_all_the_same(lanes: Grid) -> None:
    problem = build_multicast_problem(lanes, S, [A, B], goal_gbps=11.0)
    objective = TreeObjective(1e4, 0.0, 11.0, 11.0)
    first = relax_trees(problem, TreePool.of(problem), objective, most_rounds=1)
    last = relax_trees(problem, TreePool.of(problem), objective)
    assert first is not None
    assert last is not None
    assert first.bound <= last.objective * (1 + 1e-9)
    assert first.objective >= last.objective * (1 - 1e-9)
