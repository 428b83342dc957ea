"""The search on grids where not every region is promising, against the model solved at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.planner.formulation import cost_ceiling, cost_per_second
from skyplane_orchestration.planner.gap import OPTIMAL_GAP
from skyplane_orchestration.planner.problem import PlanProblem, build_problem
from skyplane_orchestration.planner.search import regions, restricted
from skyplane_orchestration.planner.search.optimum import cheapest, fastest
from skyplane_orchestration.planner.solve import solve_integers

RandomProblem = Callable[[int], PlanProblem]
SEEDS = [*range(4), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(4, 40))]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_search_finds_what_the_model_solved_at_once_finds(
    random_problem: RandomProblem, seed: int
) -> None:
    problem = random_problem(seed)
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    at_once = solve_integers(at_goal, cost_per_second(at_goal) * 1000, time_limit_s=60)
    found = cheapest(problem, exactly=True, proof_s=30.0)
    assert (found is None) == (at_once is None)
    if found is None or at_once is None:
        return
    best = at_once.usd_per_gbit
    assert found.solution.usd_per_gbit <= best * (1 + 2 * OPTIMAL_GAP)
    assert found.bound <= best * (1 + 1e-6)
    assert found.gap <= OPTIMAL_GAP


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("exactly", [True, False])
def test_the_proof_finds_what_was_not_promising(
    random_problem: RandomProblem, seed: int, exactly: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With nothing promising beside what the relaxation uses."""
    problem = random_problem(seed)
    best = cheapest(problem, exactly=exactly, proof_s=30.0)
    monkeypatch.setattr(regions, "EXTRA_RELAYS", 0)
    found = cheapest(problem, exactly=exactly, proof_s=30.0)
    assert (found is None) == (best is None)
    if found is None or best is None:
        return
    price = best.solution.usd_per_gbit
    assert found.bound <= price * (1 + 1e-6)
    assert found.solution.usd_per_gbit <= price * (1 + 2 * OPTIMAL_GAP)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_bound_on_the_rate_under_a_ceiling_is_above_what_the_model_at_once_finds(
    random_problem: RandomProblem, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = random_problem(seed).with_goal(0.0, random_problem(seed).most_gbps)
    price = 0.09 / 8
    at_once = solve_integers(
        problem,
        restricted.throughput_objective(problem),
        extra=[cost_ceiling(problem, price)],
        time_limit_s=60,
    )
    assert at_once is not None
    monkeypatch.setattr(regions, "EXTRA_RELAYS", 0)
    found = fastest(problem, price, proof_s=30.0)
    if at_once.throughput_gbps <= 1e-6:
        assert found is None
        return
    assert found is not None
    assert found.bound >= at_once.throughput_gbps * (1 - 1e-6)
    assert found.solution.throughput_gbps >= at_once.throughput_gbps * (1 - 2 * OPTIMAL_GAP)
    assert found.solution.usd_per_gbit <= price * (1 + 1e-6)


@pytest.mark.parametrize(
    "pair",
    [("gcp:europe-west12", "gcp:europe-north2"), ("aws:ca-central-1", "aws:sa-west-1")],
)
def test_the_fastest_plan_is_the_cheapest_of_its_rate(shipped: Grid, pair: tuple[str, str]) -> None:
    """Under a ceiling that does not bind; the regions of the fastest alone were 26 % dearer."""
    problem = build_problem(shipped, *pair, goal_gbps=1.0, limits=Limits(instance_limit=1))
    most = fastest(problem, 1.0, proof_s=0.0)
    assert most is not None
    rate = most.solution.throughput_gbps
    least = cheapest(problem.with_goal(rate, rate), exactly=True, proof_s=0.0)
    assert least is not None
    assert most.solution.usd_per_gbit <= least.solution.usd_per_gbit * 1.001
