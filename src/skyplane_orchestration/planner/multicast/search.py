"""The search over distribution trees: from a problem to an integer solution with a proven gap.

1. The relaxation over all trees gives a bound and useful trees.
2. The full model, N and M integer, is solved over these trees.

With few regions the pool has every tree, and the solver's bound is the proof. Otherwise the bound
is that of the relaxation, and the difference is the reported gap.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.grids.arrays import Ints
from skyplane_orchestration.planner.constraint_names import EGRESS_LIMIT, REGION_LIMITS
from skyplane_orchestration.planner.multicast.integer_program import (
    FINAL_GAP,
    FIRST_NODES,
    ROUGH_GAP,
    TreeSolution,
    solve_trees,
)
from skyplane_orchestration.planner.multicast.relaxation import (
    SCALE,
    TreeObjective,
    TreePool,
    TreeRelaxation,
    priced_trees,
    relax_trees,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.regions import least_instances
from skyplane_orchestration.planner.solution import FLOW_TOLERANCE

#: Trees in the integer program: those of least reduced cost.
MAX_TREES = 100
#: Nodes of the integer program where an earlier attempt failed.
LAST_NODES = 5000
#: Prices that differ by less than this share are equal.
BETTER = 1e-5
#: A solution this near to the one with real connections is accepted.
ACCEPTED_GAP = 3e-4
#: Dinkelbach's method roughly squares its error at each step.
DINKELBACH_STEPS = 8
TIE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class TreeIncumbent:
    """The best solution so far, and a bound: USD per Gbit from below, or Gbit/s from above."""

    solution: TreeSolution
    bound: float


def cheapest(problem: PlanProblem, *, exactly: bool) -> TreeIncumbent | None:
    """The least (4a) per Gbit at the goal (`exactly`) or at any rate from the goal up.

    The relaxed price per Gbit never falls as the rate rises, so the relaxation at the goal bounds
    every rate. None when no plan reaches the goal.

    Raises SolverFailed when HiGHS has no result within its limits.
    """
    if problem.most_gbps < problem.goal_gbps:
        return None
    pool = TreePool.of(problem)
    if not _reaches_goal(problem, pool):
        return None
    # Makes the cost at the goal about SCALE.
    price = np.zeros((4, problem.region_count))
    price[REGION_LIMITS.index(EGRESS_LIMIT)] = problem.usd_per_s / problem.egress_gbps
    least = priced_trees(problem, price, 1.0).least
    scale = SCALE / (least * problem.goal_gbps) if 0 < least < np.inf else SCALE
    goal = problem.goal_gbps
    at_least = np.minimum(least_instances(problem), problem.quota) if exactly else None
    objective = TreeObjective(scale, 0.0, goal, goal, at_least=at_least)
    relaxed = relax_trees(problem, pool, objective)
    if relaxed is None:
        return None
    bound = max(relaxed.bound, 0.0) / scale / goal
    target = problem.with_goal(goal, goal) if exactly else problem
    best = None
    with suppress(SolverFailed):
        best = _cheapest_over(target, pool, _chosen_trees(pool, relaxed), scale, bound)
    if best is None and not pool.is_complete:
        # If any known trees carry the goal, those with the most throughput do.
        largest = largest_throughput(problem)
        if largest is None or largest.solution.throughput_gbps < goal:
            return None
        pool.add(list(largest.solution.trees))
        everything = np.arange(len(pool.trees))
        best = _cheapest_over(target, pool, everything, scale, bound, LAST_NODES)
    if best is None:
        return None
    proven = best.bound if pool.is_complete else bound
    return TreeIncumbent(best.solution, min(max(proven, bound), best.solution.usd_per_gbit))


def fastest(problem: PlanProblem, usd_per_gbit: float) -> TreeIncumbent | None:
    """The most throughput at no more than `usd_per_gbit`, then the cheapest plan at that rate.

    None when no plan is that cheap. The bound is in Gbit/s.
    """
    found = largest_throughput(problem, usd_per_gbit)
    if found is None:
        return None
    most = found.solution
    rate = most.throughput_gbps * (1 - TIE)
    with suppress(SolverFailed):
        cheaper = cheapest(problem.with_goal(rate, rate), exactly=True)
        if cheaper is not None and cheaper.solution.usd_per_gbit < most.usd_per_gbit:
            most = cheaper.solution
    return TreeIncumbent(most, max(found.bound_gbps, most.throughput_gbps))


@dataclass(frozen=True, slots=True, eq=False)
class LargestThroughput:
    """The integer solution with the most throughput, the relaxation, and the bound in Gbit/s."""

    solution: TreeSolution
    relaxed: TreeRelaxation
    bound_gbps: float


def largest_throughput(
    problem: PlanProblem, usd_per_gbit: float | None = None
) -> LargestThroughput | None:
    """The most throughput, under a ceiling if given; None when infeasible."""
    if problem.most_gbps <= 0 or (usd_per_gbit is not None and usd_per_gbit <= 0):
        return None
    pool = TreePool.of(problem)
    if not pool.trees:
        return None
    scale = SCALE / problem.most_gbps
    objective = TreeObjective(0.0, scale, 0.0, problem.most_gbps, ceiling_usd_per_gbit=usd_per_gbit)
    relaxed = relax_trees(problem, pool, objective)
    if relaxed is None or relaxed.throughput_gbps <= TIE:
        return None
    chosen = _chosen_trees(pool, relaxed)
    rough = None
    if not pool.is_complete:
        rough = solve_trees(problem, pool, objective, chosen, real_connections=True)
    solution = _solve_full(problem, pool, objective, chosen, rough)
    if solution is None or solution.throughput_gbps <= TIE:
        return None
    proven = max(relaxed.bound, solution.bound if pool.is_complete else -np.inf)
    return LargestThroughput(solution, relaxed, max(-proven / scale, solution.throughput_gbps))


# ---------------------------------------------------------------- steps


def _reaches_goal(problem: PlanProblem, pool: TreePool) -> bool:
    """Whether trees reach the goal with N and M real. Raises SolverFailed without a proof."""
    if not pool.trees:
        return False
    goal = problem.goal_gbps
    scale = SCALE / goal
    relaxed = relax_trees(problem, pool, TreeObjective(0.0, scale, 0.0, goal))
    if relaxed is not None and relaxed.throughput_gbps >= goal * (1 - TIE / 10):
        return True
    if relaxed is not None and -relaxed.bound / scale >= goal * (1 - TIE / 10):
        raise SolverFailed(f"no trees for {goal:g} Gbit/s were found in time; lower the goal")
    return False


def _chosen_trees(pool: TreePool, relaxed: TreeRelaxation) -> Ints:
    """The trees of least reduced cost in a relaxation; all trees of a complete pool."""
    if pool.is_complete:
        return np.arange(len(pool.trees))
    # Many trees have no reduced cost: those that the relaxation uses come first.
    carries = np.where(relaxed.rate_gbps > FLOW_TOLERANCE, -1.0, 0.0)
    order = np.argsort(relaxed.reduced_cost + carries, kind="stable")
    return np.sort(order[:MAX_TREES])


def _solve_full(
    problem: PlanProblem,
    pool: TreePool,
    objective: TreeObjective,
    chosen: Ints,
    rough: TreeSolution | None,
) -> TreeSolution | None:
    """N and M integer: over trees along the edges of a rough solution, else over all chosen."""
    if pool.is_complete:
        return solve_trees(problem, pool, objective, chosen, relative_gap=FINAL_GAP)
    if rough is None:
        return None
    carrying = [tree for tree, rate in zip(rough.trees, rough.rate_gbps, strict=True) if rate > TIE]
    edges = {edge for tree in carrying for edge in tree}
    regions = {region for edge in edges for region in edge}
    inside = {(tail, head) for tail in regions for head in regions}
    best: TreeSolution | None = None
    for allowed in (edges, inside):
        near = [one for one in chosen.tolist() if allowed.issuperset(pool.trees[one])]
        with suppress(SolverFailed):
            answer = solve_trees(problem, pool, objective, np.array(near)) if near else None
            if answer is not None and (best is None or answer.objective < best.objective):
                best = answer
        # Integer connections may need more edges than real ones.
        if best is not None and best.objective - rough.objective <= ACCEPTED_GAP * SCALE:
            break
    return best or solve_trees(problem, pool, objective, chosen, node_limit=LAST_NODES)


def _cheapest_over(
    problem: PlanProblem,
    pool: TreePool,
    chosen: Ints,
    scale: float,
    bound: float,
    node_limit: int = FIRST_NODES,
) -> TreeIncumbent | None:
    """The least cost per Gbit over the chosen trees from the goal up, and the bound over these.

    By Dinkelbach's method (1967), as `search.restricted`. M is real first.
    """
    low, high = problem.goal_gbps, problem.most_gbps
    gap = FINAL_GAP if pool.is_complete else ROUGH_GAP
    rough: TreeSolution | None = None
    price, proven = bound, bound
    for _ in range(1 if low == high else DINKELBACH_STEPS):
        objective = TreeObjective(scale, 0.0 if low == high else scale * price, low, high)
        answer = solve_trees(
            problem,
            pool,
            objective,
            chosen,
            real_connections=not pool.is_complete,
            relative_gap=gap,
            node_limit=node_limit,
        )
        if answer is None:
            break
        proven = answer.bound / scale / low
        if low < high:
            proven = price + min(answer.bound, 0.0) / scale / low
        if rough is not None and answer.usd_per_gbit >= rough.usd_per_gbit * (1 - BETTER):
            rough = min(answer, rough, key=lambda one: one.usd_per_gbit)
            break
        rough = answer
        if answer.usd_per_gbit <= price * (1 + TIE):
            break
        price = answer.usd_per_gbit
    if pool.is_complete or rough is None:
        return None if rough is None else TreeIncumbent(rough, proven)
    objective = TreeObjective(scale, 0.0 if low == high else scale * rough.usd_per_gbit, low, high)
    best = _solve_full(problem, pool, objective, chosen, rough)
    return None if best is None else TreeIncumbent(best, proven)
