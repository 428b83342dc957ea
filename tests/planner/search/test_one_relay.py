"""The least cost over one relay, against the integer program of three regions."""

from __future__ import annotations

import random

import numpy as np
import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.planner.formulation import cost_per_second
from skyplane_orchestration.planner.problem import PlanProblem, build_problem
from skyplane_orchestration.planner.search.one_relay import cost_with_one_relay
from skyplane_orchestration.planner.solve import solve_integers
from skyplane_orchestration.planner.total_bounds import least_in

SCALE = 1000.0


def least_cost(problem: PlanProblem, relay: int) -> float:
    """USD per Gbit at the goal with M real and an instance in the relay; infinite if infeasible."""
    chosen = ~problem.relays
    chosen[relay] = True
    part = problem.with_regions(chosen)
    found = solve_integers(
        part,
        cost_per_second(part) * SCALE,
        extra=[least_in("relay", part, part.relays, 1.0)],
        integer_edges=np.zeros(part.edge_count, dtype=bool),
    )
    return float("inf") if found is None else found.objective / SCALE / problem.goal_gbps


@pytest.mark.parametrize("seed", range(6))
def test_it_is_that_of_the_integer_program(dozen: Grid, seed: int) -> None:
    chooser = random.Random(seed)
    ends, limits = chooser.sample(dozen.tags, 2), Limits(instance_limit=chooser.choice([1, 2, 4]))
    problem = build_problem(dozen, *ends, goal_gbps=1.0, limits=limits)
    goal = problem.most_gbps * chooser.uniform(0.1, 0.9)
    problem = problem.with_goal(goal, goal)
    found = cost_with_one_relay(problem, problem.usd_per_s / goal)
    assert np.isinf(found[~problem.relays]).all()
    for relay in np.flatnonzero(problem.relays).tolist():
        assert found[relay] == pytest.approx(least_cost(problem, relay), rel=1e-4)
