"""How good the best known integers are, over all regions; better ones are taken on the way.

What no better plan can use is out (`bound.needed`). If that leaves only regions on which the
best is known, it is the best of all but for M. If not, the model with M real on what is left
is a bound, and names the regions that a better plan may need. In the end the solver is asked
for anything better with M integer: infeasible is a proof.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.planner.formulation import columns_of, cost_ceiling, policy_rows
from skyplane_orchestration.planner.problem import Floats, Mask, PlanProblem
from skyplane_orchestration.planner.search.restricted import (
    NEARLY,
    SPARE_GBPS,
    bound_of,
    cheapest_on,
    fastest_on,
    margin,
    shortest_largest,
    unit_of,
    with_real_connections,
)
from skyplane_orchestration.planner.search.variable_fixing import Needed, needed, path_length
from skyplane_orchestration.planner.solution import (
    OPTIMAL_GAP,
    Found,
    Integers,
    Relaxation,
    relative_gap,
)
from skyplane_orchestration.planner.solve import solve_integers

#: Times that a bound may send the search back with more regions.
ROUNDS: Final = 4
#: Weight of the flow against one Gbit/s of throughput where a bound is wanted.
_BOUND_HOP_WEIGHT: Final = 1e-7
#: With more edges than this left, M integer takes seconds and is not tried in less.
_MANY_EDGES: Final = 1500
_SECONDS: Final = 1.0
#: Less time than this is not worth a call of the solver.
_LEAST_S: Final = 0.005


@dataclass(frozen=True, slots=True)
class Clock:
    """The time that there is for proofs."""

    end: float

    @property
    def left_s(self) -> float:
        return max(self.end - time.perf_counter(), 0.0)

    @property
    def is_over(self) -> bool:
        return self.left_s < _LEAST_S

    def is_hopeless(self, problem: PlanProblem) -> bool:
        """True when M integer on so much of a problem cannot be had in the time left."""
        return problem.edge_count > _MANY_EDGES and self.left_s < _SECONDS


def clock_of(seconds: float) -> Clock:
    return Clock(time.perf_counter() + seconds)


# ---------------------------------------------------------------- least cost


def cheaper(
    problem: PlanProblem, relaxed: Relaxation, best: Found, keep: Mask, clock: Clock
) -> Found:
    """The best or a cheaper one, and the proven bound over all regions.

    Args:
        relaxed: the relaxation at the goal, its objective in USD per second.
        best: the cheapest on the regions of `keep`, with the bound on those.
    """
    bound = max(relaxed.objective, 0.0) / problem.goal_gbps
    for _ in range(ROUNDS):
        price = best.integers.usd_per_gbit
        left = needed(problem, relaxed, _worst(problem, relaxed, price))
        if not (left.regions & ~keep).any():
            bound = max(bound, best.bound)
            break
        if relative_gap(price, bound) <= OPTIMAL_GAP or clock.is_over:
            break
        rough = _rough_cheaper(left.problem, price, clock)
        if rough is None:
            break
        bound = max(bound, min(rough.bound, price))
        missing = _missing(left, rough.integers, keep)
        if relative_gap(price, rough.integers.usd_per_gbit) <= OPTIMAL_GAP or not missing.any():
            break
        keep = keep | missing
        best = _cheaper_of(best, cheapest_on(problem.with_regions(keep), bound))
    return _with_whole_connections(problem, relaxed, Found(best.integers, bound), keep, clock)


def _cheaper_of(best: Found, other: Found | None) -> Found:
    """The cheaper integers with the bound of the wider search."""
    if other is None:
        return best
    cheapest = min(best.integers, other.integers, key=lambda one: one.usd_per_gbit)
    return Found(cheapest, other.bound)


def _worst(problem: PlanProblem, relaxed: Relaxation, usd_per_gbit: float) -> float:
    """What the objective of `relaxed` is at most for a plan of this price or a lower one.

    A plan at a rate above the goal may cost its price for each further Gbit/s, of which the
    relaxation counts what the shortest path costs.
    """
    at_goal = usd_per_gbit * problem.goal_gbps
    if problem.most_gbps <= problem.goal_gbps:
        return at_goal
    further = usd_per_gbit - path_length(problem, relaxed)
    return at_goal + max(0.0, further) * (problem.most_gbps - problem.goal_gbps)


def _rough_cheaper(problem: PlanProblem, usd_per_gbit: float, clock: Clock) -> Found | None:
    """With M real the best margin to a price, and the bound that follows; None out of time."""
    unit = unit_of(problem, usd_per_gbit)
    try:
        answer = with_real_connections(
            problem, margin(problem, usd_per_gbit, unit), time_limit_s=clock.left_s
        )
    except SolverFailed:
        return None
    if answer is None:
        return None
    return Found(answer, bound_of(answer, 0.0, usd_per_gbit, unit))


def _with_whole_connections(
    problem: PlanProblem, relaxed: Relaxation, best: Found, keep: Mask, clock: Clock
) -> Found:
    """Asks for anything cheaper with M integer between kept regions, while there is time."""
    for _ in range(ROUNDS):
        if best.gap <= OPTIMAL_GAP or clock.is_over:
            break
        price = best.integers.usd_per_gbit
        claim = price * (1 - OPTIMAL_GAP / 2)
        left = needed(problem, relaxed, _worst(problem, relaxed, claim))
        if clock.is_hopeless(left.problem):
            break
        kept = keep[left.regions]
        unit = unit_of(left.problem, claim)
        try:
            cheaper = solve_integers(
                left.problem,
                margin(left.problem, claim, unit),
                extra=[cost_ceiling(left.problem, claim), *policy_rows(left.problem)],
                counted=kept[left.problem.tail] & kept[left.problem.head],
                time_limit_s=clock.left_s,
            )
        except SolverFailed:
            break
        if cheaper is None:
            return Found(best.integers, claim)
        bound = max(best.bound, bound_of(cheaper, 0.0, claim, unit))
        missing = _missing(left, cheaper, keep)
        if missing.any():
            keep = keep | missing
            best = Found(best.integers, bound)
        else:
            best = Found(replace(cheaper, problem=left.as_asked), bound)
    return best


# ---------------------------------------------------------------- most throughput


def faster(
    problem: PlanProblem,
    relaxed: Relaxation,
    usd_per_gbit: float,
    best: Integers,
    keep: Mask,
    clock: Clock,
) -> Found:
    """The best or a faster one under the ceiling, and the proven bound in Gbit/s.

    Args:
        relaxed: that of `largest_objective` under the ceiling.
        best: the fastest on the regions of `keep`.
    """
    bound = most_of(problem, relaxed)
    for _ in range(ROUNDS):
        rate = best.throughput_gbps
        left = needed(problem, relaxed, -rate + _hops(problem) * problem.most_gbps)
        if bound <= rate * (1 + OPTIMAL_GAP) or clock.is_over:
            break
        rough = _rough_faster(left.problem, usd_per_gbit, clock)
        if rough is None:
            break
        bound = min(bound, max(rough.bound, rate))
        missing = _missing(left, rough.integers, keep)
        if rough.integers.throughput_gbps <= rate * (1 + OPTIMAL_GAP) or not missing.any():
            break
        keep = keep | missing
        wider = fastest_on(problem.with_regions(keep), usd_per_gbit)
        if wider is not None and wider.throughput_gbps > rate:
            best = wider
    return _faster_with_whole_connections(
        problem, relaxed, usd_per_gbit, Found(best, bound), keep, clock
    )


def largest_objective(problem: PlanProblem) -> Floats:
    """Of the relaxation: a weight of flow so small that the bound on G hardly suffers."""
    return shortest_largest(problem, _BOUND_HOP_WEIGHT)


def most_of(problem: PlanProblem, relaxed: Relaxation) -> float:
    """Gbit/s that no plan exceeds, from an optimum of `largest_objective`.

    G - weight * (flow over all edges) is at most -objective, and a plan without cycles has
    at most G flow over each of at most V - 1 hops.
    """
    return min(-relaxed.objective / (1 - _hops(problem)), problem.most_gbps)


def _hops(problem: PlanProblem) -> float:
    return _BOUND_HOP_WEIGHT * (problem.region_count - 1)


def _rough_faster(problem: PlanProblem, usd_per_gbit: float, clock: Clock) -> Found | None:
    """With M real the most throughput, and its bound; None out of time."""
    columns = columns_of(problem)
    cost = np.zeros(columns.count)
    cost[columns.throughput] = -1.0
    try:
        answer = solve_integers(
            problem,
            cost,
            extra=[cost_ceiling(problem, usd_per_gbit, -SPARE_GBPS), *policy_rows(problem)],
            counted=np.zeros(problem.edge_count, dtype=bool),
            relative_gap=NEARLY,
            time_limit_s=clock.left_s,
        )
    except SolverFailed:
        return None
    return None if answer is None else Found(answer, -answer.bound)


def _faster_with_whole_connections(
    problem: PlanProblem,
    relaxed: Relaxation,
    usd_per_gbit: float,
    best: Found,
    keep: Mask,
    clock: Clock,
) -> Found:
    """Asks for anything faster with M integer between kept regions, while there is time."""
    for _ in range(ROUNDS):
        rate = best.integers.throughput_gbps
        if best.bound <= rate * (1 + OPTIMAL_GAP) or clock.is_over:
            break
        claim = rate * (1 + OPTIMAL_GAP / 2)
        left = needed(problem, relaxed, -claim + _hops(problem) * problem.most_gbps)
        if clock.is_hopeless(left.problem):
            break
        above = left.problem.with_goal(claim, problem.most_gbps)
        kept = keep[left.regions]
        try:
            faster = solve_integers(
                above,
                shortest_largest(above),
                extra=[cost_ceiling(above, usd_per_gbit), *policy_rows(above)],
                counted=kept[above.tail] & kept[above.head],
                time_limit_s=clock.left_s,
            )
        except SolverFailed:
            break
        if faster is None:
            return Found(best.integers, claim)
        missing = _missing(left, faster, keep)
        if missing.any():
            keep = keep | missing
        else:
            best = Found(replace(faster, problem=left.as_asked), best.bound)
    return best


def _missing(left: Needed, answer: Integers, keep: Mask) -> Mask:
    """(V,) regions of the whole problem that the answer uses beside those that are kept."""
    missing = np.zeros_like(keep)
    missing[np.flatnonzero(left.regions)[answer.used_regions]] = True
    found: Mask = missing & ~keep
    return found
