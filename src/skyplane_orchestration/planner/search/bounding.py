"""Proves a bound for an incumbent over all regions, and improves the incumbent on the way.

Reduced costs fix the variables that no better plan uses (`fix_variables`). If only regions of the
restricted problem remain, the incumbent is optimal except for M. If more remain, the model with M
real gives a bound and names regions to add. Last, the solver searches for a better plan with M
integer: an infeasible program is the proof.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.planner.formulation import cost_ceiling, policy_rows
from skyplane_orchestration.planner.gap import OPTIMAL_GAP, relative_gap
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.restricted import (
    CEILING_SLACK_GBPS,
    cheapest_restricted,
    cost_margin,
    cost_scale,
    fastest_restricted,
    price_bound,
    solve_real_connections,
    throughput_objective,
)
from skyplane_orchestration.planner.search.variable_fixing import (
    ReducedProblem,
    fix_variables,
    path_length,
)
from skyplane_orchestration.planner.solution import Incumbent, IntegerSolution, Relaxation
from skyplane_orchestration.planner.solve import solve_integers

#: Times that a bound may add regions to the restricted problem.
ROUNDS: Final = 4
#: Weight of flow against one Gbit/s of throughput, where the objective serves as a bound.
_BOUND_HOP_WEIGHT: Final = 1e-7
#: With more edges than this, M integer takes seconds and is skipped when less time is left.
_MANY_EDGES: Final = 1500
_SECONDS: Final = 1.0
#: The solver is not called with less time than this.
_LEAST_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """When the proof ends, by `time.perf_counter`."""

    end: float

    @classmethod
    def after(cls, seconds: float) -> TimeLimit:
        return cls(time.perf_counter() + seconds)

    @property
    def left_s(self) -> float:
        return max(self.end - time.perf_counter(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.left_s < _LEAST_S

    def is_too_short(self, problem: PlanProblem) -> bool:
        """True when M integer on this problem takes longer than the time left."""
        return problem.edge_count > _MANY_EDGES and self.left_s < _SECONDS


# ---------------------------------------------------------------- least cost


def bound_cheapest(
    problem: PlanProblem,
    relaxed: Relaxation,
    best: Incumbent,
    restricted: Mask,
    time_left: TimeLimit,
) -> Incumbent:
    """The incumbent or a cheaper one, with the bound over all regions.

    Args:
        relaxed: the relaxation at the goal, its objective in USD per second.
        best: the cheapest solution on the `restricted` regions, with their bound.
    """
    bound = max(relaxed.objective, 0.0) / problem.goal_gbps
    for _ in range(ROUNDS):
        price = best.solution.usd_per_gbit
        reduced = fix_variables(problem, relaxed, _objective_limit(problem, relaxed, price))
        if not (reduced.regions & ~restricted).any():
            bound = max(bound, best.bound)
            break
        if relative_gap(price, bound) <= OPTIMAL_GAP or time_left.is_over:
            break
        rough = _cheapest_with_real_connections(reduced.problem, price, time_left)
        if rough is None:
            break
        bound = max(bound, min(rough.bound, price))
        added = _added_regions(reduced, rough.solution, restricted)
        if relative_gap(price, rough.solution.usd_per_gbit) <= OPTIMAL_GAP or not added.any():
            break
        restricted = restricted | added
        best = _cheaper_of(best, cheapest_restricted(problem.with_regions(restricted), bound))
    return _search_cheaper(problem, relaxed, Incumbent(best.solution, bound), restricted, time_left)


def _cheaper_of(best: Incumbent, other: Incumbent | None) -> Incumbent:
    """The cheaper solution with the bound of the wider search."""
    if other is None:
        return best
    cheapest = min(best.solution, other.solution, key=lambda one: one.usd_per_gbit)
    return Incumbent(cheapest, other.bound)


def _objective_limit(problem: PlanProblem, relaxed: Relaxation, usd_per_gbit: float) -> float:
    """The largest objective of `relaxed` that a plan at this price or below can have.

    A plan above the goal may pay its price for each further Gbit/s.
    """
    at_goal = usd_per_gbit * problem.goal_gbps
    if problem.most_gbps <= problem.goal_gbps:
        return at_goal
    further = usd_per_gbit - path_length(problem, relaxed)
    return at_goal + max(0.0, further) * (problem.most_gbps - problem.goal_gbps)


def _cheapest_with_real_connections(
    problem: PlanProblem, usd_per_gbit: float, time_left: TimeLimit
) -> Incumbent | None:
    """The best margin to a price with M real, and its bound; None when out of time."""
    scale = cost_scale(problem, usd_per_gbit)
    cost = cost_margin(problem, usd_per_gbit, scale)
    try:
        found = solve_real_connections(problem, cost, time_limit_s=time_left.left_s)
    except SolverFailed:
        return None
    if found is None:
        return None
    return Incumbent(found, price_bound(found, 0.0, usd_per_gbit, scale))


def _search_cheaper(
    problem: PlanProblem,
    relaxed: Relaxation,
    best: Incumbent,
    restricted: Mask,
    time_left: TimeLimit,
) -> Incumbent:
    """Search for a cheaper plan with M integer between restricted regions, while time is left."""
    for _ in range(ROUNDS):
        if best.gap <= OPTIMAL_GAP or time_left.is_over:
            break
        target = best.solution.usd_per_gbit * (1 - OPTIMAL_GAP / 2)
        reduced = fix_variables(problem, relaxed, _objective_limit(problem, relaxed, target))
        if time_left.is_too_short(reduced.problem):
            break
        scale = cost_scale(reduced.problem, target)
        try:
            cheaper = solve_integers(
                reduced.problem,
                cost_margin(reduced.problem, target, scale),
                extra=[cost_ceiling(reduced.problem, target), *policy_rows(reduced.problem)],
                integer_edges=_edges_between(reduced, restricted),
                time_limit_s=time_left.left_s,
            )
        except SolverFailed:
            break
        if cheaper is None:
            return Incumbent(best.solution, target)
        bound = max(best.bound, price_bound(cheaper, 0.0, target, scale))
        added = _added_regions(reduced, cheaper, restricted)
        if added.any():
            restricted = restricted | added
            best = Incumbent(best.solution, bound)
        else:
            best = Incumbent(replace(cheaper, problem=reduced.original), bound)
    return best


# ---------------------------------------------------------------- most throughput


def bound_fastest(
    problem: PlanProblem,
    relaxed: Relaxation,
    usd_per_gbit: float,
    best: IntegerSolution,
    restricted: Mask,
    time_left: TimeLimit,
) -> Incumbent:
    """The solution or a faster one under the ceiling, with the bound in Gbit/s.

    Args:
        relaxed: the relaxation of `bound_objective` under the ceiling.
        best: the fastest solution on the `restricted` regions.
    """
    bound = throughput_bound(problem, relaxed)
    for _ in range(ROUNDS):
        rate = best.throughput_gbps
        reduced = fix_variables(problem, relaxed, -rate + _hop_slack(problem) * problem.most_gbps)
        if bound <= rate * (1 + OPTIMAL_GAP) or time_left.is_over:
            break
        rough = _fastest_with_real_connections(reduced.problem, usd_per_gbit, time_left)
        if rough is None:
            break
        bound = min(bound, max(rough.bound, rate))
        added = _added_regions(reduced, rough.solution, restricted)
        if rough.solution.throughput_gbps <= rate * (1 + OPTIMAL_GAP) or not added.any():
            break
        restricted = restricted | added
        wider = fastest_restricted(problem.with_regions(restricted), usd_per_gbit)
        if wider is not None and wider.throughput_gbps > rate:
            best = wider
    return _search_faster(
        problem, relaxed, usd_per_gbit, Incumbent(best, bound), restricted, time_left
    )


def bound_objective(problem: PlanProblem) -> Floats:
    """Maximises G with a weight of flow so small that the bound on G hardly suffers."""
    return throughput_objective(problem, _BOUND_HOP_WEIGHT)


def throughput_bound(problem: PlanProblem, relaxed: Relaxation) -> float:
    """The upper bound in Gbit/s from an optimum of `bound_objective`.

    G - weight * (flow over all edges) <= -objective, and a plan without cycles has at most G flow
    over each of at most V - 1 hops.
    """
    return min(-relaxed.objective / (1 - _hop_slack(problem)), problem.most_gbps)


def _hop_slack(problem: PlanProblem) -> float:
    return _BOUND_HOP_WEIGHT * (problem.region_count - 1)


def _fastest_with_real_connections(
    problem: PlanProblem, usd_per_gbit: float, time_left: TimeLimit
) -> Incumbent | None:
    """The most throughput with M real, and its bound; None when out of time."""
    cost = throughput_objective(problem, 0.0)
    ceiling = cost_ceiling(problem, usd_per_gbit, -CEILING_SLACK_GBPS)
    try:
        found = solve_real_connections(
            problem, cost, extra=[ceiling], time_limit_s=time_left.left_s
        )
    except SolverFailed:
        return None
    return None if found is None else Incumbent(found, -found.bound)


def _search_faster(
    problem: PlanProblem,
    relaxed: Relaxation,
    usd_per_gbit: float,
    best: Incumbent,
    restricted: Mask,
    time_left: TimeLimit,
) -> Incumbent:
    """Search for a faster plan with M integer between restricted regions, while time is left."""
    for _ in range(ROUNDS):
        rate = best.solution.throughput_gbps
        if best.bound <= rate * (1 + OPTIMAL_GAP) or time_left.is_over:
            break
        target = rate * (1 + OPTIMAL_GAP / 2)
        reduced = fix_variables(problem, relaxed, -target + _hop_slack(problem) * problem.most_gbps)
        if time_left.is_too_short(reduced.problem):
            break
        above = reduced.problem.with_goal(target, problem.most_gbps)
        try:
            faster = solve_integers(
                above,
                throughput_objective(above),
                extra=[cost_ceiling(above, usd_per_gbit), *policy_rows(above)],
                integer_edges=_edges_between(reduced, restricted),
                time_limit_s=time_left.left_s,
            )
        except SolverFailed:
            break
        if faster is None:
            return Incumbent(best.solution, target)
        added = _added_regions(reduced, faster, restricted)
        if added.any():
            restricted = restricted | added
        else:
            best = Incumbent(replace(faster, problem=reduced.original), best.bound)
    return best


def _edges_between(reduced: ReducedProblem, restricted: Mask) -> Mask:
    """(E,) edges of the reduced problem whose two ends are restricted regions."""
    inside = restricted[reduced.regions]
    both: Mask = inside[reduced.problem.tail] & inside[reduced.problem.head]
    return both


def _added_regions(reduced: ReducedProblem, found: IntegerSolution, restricted: Mask) -> Mask:
    """(V,) regions of the whole problem that the solution uses and `restricted` lacks."""
    used = np.zeros_like(restricted)
    used[np.flatnonzero(reduced.regions)[found.used_regions]] = True
    added: Mask = used & ~restricted
    return added
