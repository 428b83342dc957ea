"""The search: from a problem to an integer solution with a stated gap.

1. The relaxation over all regions gives a bound and a reduced cost per edge.
2. The restricted problem has the regions that the relaxation uses and the relays of least reduced
   cost (`regions.restricted_regions`). It is solved with M real first, which is quick and shows the
   regions that matter, then in full on those regions (`restricted`).

Ties go to fewer relays, then to fewer instances.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.grids.arrays import Mask
from skyplane_orchestration.planner.formulation import (
    RowBlock,
    columns_of,
    cost_ceiling,
    cost_per_second,
    policy_rows,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.regions import restricted_regions, whole_ends
from skyplane_orchestration.planner.search.restricted import (
    CEILING_SLACK_GBPS,
    DINKELBACH_STEPS,
    SAME_RATE,
    cheapest_restricted,
    fastest_restricted,
    throughput_objective,
)
from skyplane_orchestration.planner.solution import Incumbent, IntegerSolution, Relaxation
from skyplane_orchestration.planner.solve import HOP_WEIGHT, relax

#: A plan whose price is within this share of its ceiling is accepted: another half a second of
#: search can gain at most this much.
_AT_CEILING: Final = 1e-3
#: Prices that differ by less than this share are equal.
_SAME_PRICE: Final = 1e-6
#: Weight of flow against one Gbit/s of throughput, where the objective serves as a bound.
_BOUND_HOP_WEIGHT: Final = 1e-7


def cheapest(problem: PlanProblem, *, exactly: bool) -> Incumbent | None:
    """The least (4a) per Gbit at the goal (`exactly`) or at any rate from the goal up.

    Without a value of time, the relaxed price per Gbit never falls as the rate rises. So the
    relaxation at the goal bounds every rate. None when no plan reaches the goal.
    """
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    cuts = whole_ends(at_goal) if exactly else []
    relaxed = relax(at_goal, cost_per_second(at_goal), extra=cuts)
    if relaxed is None:
        return None
    bound = (max(relaxed.objective, 0.0) + problem.time_usd_per_s) / problem.goal_gbps
    if problem.time_usd_per_s and not exactly:
        relaxed, bound = _relaxed_with_time(problem, relaxed, bound)
    target = at_goal if exactly else problem
    regions = restricted_regions(problem, relaxed)
    is_whole = bool(regions.all())
    best = cheapest_restricted(target.with_regions(regions), bound, is_whole=is_whole)
    if best is None and not regions.all():
        regions = regions | _regions_of_fastest(problem)
        best = cheapest_restricted(target.with_regions(regions), bound)
    if best is None:
        return None
    if regions.all():
        bound = max(bound, best.bound)
    return Incumbent(best.solution, min(bound, best.solution.usd_per_gbit), best.searched)


def _relaxed_with_time(
    problem: PlanProblem, relaxed: Relaxation, usd_per_gbit: float
) -> tuple[Relaxation, float]:
    """The relaxation of the least price from the goal up, and its bound. Time has a value.

    By Dinkelbach's method (1967) from a relaxation at the goal and its price. At any price p, cost
    - p * G >= least proves cost / G >= p + least / goal for a negative `least`.
    """
    bound = 0.0
    for _ in range(DINKELBACH_STEPS):
        margin = cost_per_second(problem)
        margin[columns_of(problem).throughput] = -usd_per_gbit
        found = relax(problem, margin)
        if found is None:
            break
        least = min(found.objective + problem.time_usd_per_s, 0.0)
        relaxed, bound = found, max(bound, usd_per_gbit + least / problem.goal_gbps)
        if least >= -usd_per_gbit * found.throughput_gbps * _SAME_PRICE:
            break
        usd_per_gbit += least / found.throughput_gbps
    return relaxed, bound


def largest_throughput(problem: PlanProblem) -> tuple[IntegerSolution, Relaxation] | None:
    """The most throughput at any cost; None when no path joins source and sink.

    Many plans reach the same rate; a small weight on flow prefers short paths.
    """
    free = problem.with_goal(0.0, problem.most_gbps)
    relaxed = relax(free, throughput_objective(free, _BOUND_HOP_WEIGHT))
    if relaxed is None or relaxed.throughput_gbps <= SAME_RATE:
        return None
    searched = free.with_regions(restricted_regions(free, relaxed))
    best = fastest_restricted(searched, policy_rows)
    return None if best is None else (best, relaxed)


def fastest(problem: PlanProblem, usd_per_gbit: float) -> Incumbent | None:
    """The most throughput at no more than `usd_per_gbit`, then the cheapest plan at that rate.

    One integer program: cost <= price * G is linear when G is a variable. None when no plan is
    that cheap. The solution keeps the ceiling in spite of the solver's tolerance. The bound, in
    Gbit/s, is for a ceiling that is higher by the same slack.
    """
    free = problem.with_goal(0.0, problem.most_gbps)
    above_zero = problem.with_goal(SAME_RATE, problem.most_gbps)
    ceiling = cost_ceiling(above_zero, usd_per_gbit, -CEILING_SLACK_GBPS)
    relaxed = relaxed_fastest(above_zero, ceiling)
    if relaxed is None:
        return None
    bound, regions = relaxed
    searched = free.with_regions(regions)

    def rows(part: PlanProblem) -> list[RowBlock]:
        return [cost_ceiling(part, usd_per_gbit, CEILING_SLACK_GBPS), *policy_rows(part)]

    most = fastest_restricted(searched, rows)
    if most is None or most.throughput_gbps <= SAME_RATE:
        return None
    if searched.region_count == free.region_count:
        bound = min(bound, _largest(-most.bound, HOP_WEIGHT, free) * (1 + _AT_CEILING / 100))
    if most.usd_per_gbit < usd_per_gbit * (1 - _AT_CEILING):
        most = _cheapest_at_same_rate(free, most)
    return Incumbent(most, max(bound, most.throughput_gbps), searched)


class RelaxedRate(NamedTuple):
    """What a relaxation knows of the most Gbit/s.

    Attributes:
        bound: no plan is faster.
        regions: (V,) the regions to search.
    """

    bound: float
    regions: Mask


def relaxed_fastest(problem: PlanProblem, *rows: RowBlock) -> RelaxedRate | None:
    """The most Gbit/s from the goal up with more rows; None when infeasible.

    Both ends have the whole instances that the goal needs.
    """
    objective = throughput_objective(problem, _BOUND_HOP_WEIGHT)
    relaxed = relax(problem, objective, extra=[*rows, *whole_ends(problem)])
    if relaxed is None or relaxed.throughput_gbps <= SAME_RATE * (1 + SAME_RATE):
        return None
    bound = min(_largest(-relaxed.objective, _BOUND_HOP_WEIGHT, problem), problem.most_gbps)
    return RelaxedRate(bound, restricted_regions(problem, relaxed))


def _largest(objective: float, hop_weight: float, problem: PlanProblem) -> float:
    """The most throughput for an objective G - weight * (flow over all edges).

    A plan without cycles has at most G flow over each of at most V - 1 hops.
    """
    return objective / (1 - hop_weight * (problem.region_count - 1))


def _cheapest_at_same_rate(problem: PlanProblem, most: IntegerSolution) -> IntegerSolution:
    """The cheapest plan at the rate of `most`; `most` itself if the solver finds no other."""
    rate = most.throughput_gbps * (1 - SAME_RATE)
    try:
        found = cheapest(problem.with_goal(rate, rate), exactly=True)
    except SolverFailed:
        return most
    if found is None:
        return most
    return min(most, found.solution, key=lambda solution: solution.usd_per_gbit)


def _regions_of_fastest(problem: PlanProblem) -> Mask:
    """(V,) regions of a plan with the most throughput: if the goal is feasible, it is here."""
    largest = largest_throughput(problem)
    if largest is None:
        return np.zeros(problem.region_count, dtype=bool)
    smaller, used = largest[0].problem, largest[0].used_regions
    tags = {tag for tag, is_used in zip(smaller.tags, used, strict=True) if is_used}
    return np.array([tag in tags for tag in problem.tags])
