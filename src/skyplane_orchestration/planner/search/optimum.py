"""The search: from a problem to integers that are as good as can be, and how good.

1. The relaxation over all regions gives a bound and a price per edge.
2. The integer model is solved on the regions that the relaxation uses and the few that
   would cost least to use (`bound.most_promising`): first with M real, which is quick and
   says which of them are needed, then as stated on those (`few`).
3. What no better plan can use is left out (`bound.needed`), which mostly leaves the regions
   of step 2; where it leaves more, the model with M real on all that is left bounds every
   plan, and the regions that its solution uses join step 2 (`prove`).
4. With the time that is left, the solver is asked for anything better with M integer.

Ties are broken towards fewer relays, then fewer instances.
"""

from __future__ import annotations

import numpy as np

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.planner.formulation import (
    cost_ceiling,
    cost_per_second,
    end_instances,
)
from skyplane_orchestration.planner.problem import Mask, PlanProblem
from skyplane_orchestration.planner.search import bounding
from skyplane_orchestration.planner.search.restricted import (
    SCALE,
    SPARE_GBPS,
    TIE,
    cheaper_at_its_rate,
    cheapest_on,
    fastest_on,
)
from skyplane_orchestration.planner.search.variable_fixing import least_instances, most_promising
from skyplane_orchestration.planner.solution import (
    OPTIMAL_GAP,
    Found,
    Integers,
    Relaxation,
    relative_gap,
)
from skyplane_orchestration.planner.solve import relax

__all__ = [
    "OPTIMAL_GAP",
    "SCALE",
    "Found",
    "cheapest",
    "fastest",
    "largest_throughput",
    "relative_gap",
]

#: A plan whose price is this near to its ceiling is taken: money is what limits it, and half
#: a second of searching has at most this to gain.
_AT_CEILING = 1e-3


def cheapest(problem: PlanProblem, *, exactly: bool, proof_s: float) -> Found | None:
    """The cheapest plan per Gbit at the goal (`exactly`, 4a) or at any rate from it up.

    The relaxed price per Gbit never falls as the rate rises, so the relaxation at the goal
    bounds every rate. None when no plan reaches the goal.

    Args:
        proof_s: seconds from the start for proving that nothing is better, and for what is
            found to be better on the way; 0 takes what there is.
    """
    clock = bounding.clock_of(proof_s)
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    cuts = [end_instances(at_goal, least_instances(at_goal))] if exactly else []
    relaxed = relax(at_goal, cost_per_second(at_goal), extra=cuts)
    if relaxed is None:
        return None
    bound = max(relaxed.objective, 0.0) / problem.goal_gbps
    target = at_goal if exactly else problem
    keep = most_promising(problem, relaxed)
    best = cheapest_on(target.with_regions(keep), bound)
    if best is None and not keep.all():
        keep = keep | _regions_of_largest(problem)
        best = cheapest_on(target.with_regions(keep), bound)
    if best is None:
        return None
    best = bounding.cheaper(target, relaxed, best, keep, clock)
    return Found(best.integers, min(best.bound, best.integers.usd_per_gbit))


def largest_throughput(problem: PlanProblem) -> tuple[Integers, Relaxation] | None:
    """The most throughput of any plan, whatever it costs; None without a way through.

    Many plans reach the same rate; a small weight on flow prefers short paths.
    """
    free = problem.with_goal(0.0, problem.most_gbps)
    relaxed = relax(free, bounding.largest_objective(free))
    if relaxed is None or relaxed.throughput_gbps <= TIE:
        return None
    best = fastest_on(free.with_regions(most_promising(free, relaxed)), None)
    return None if best is None else (best, relaxed)


def fastest(problem: PlanProblem, usd_per_gbit: float, *, proof_s: float) -> Found | None:
    """The most throughput at no more than `usd_per_gbit`, then the cheapest such plan.

    A plan within `_AT_CEILING` of the price is not searched for a cheaper one at its rate.
    One integer program: cost <= price * G is linear when G is a variable. None when no plan
    is that cheap. The integers keep the ceiling beyond the solver's tolerance; the bound in
    the answer, on the throughput in Gbit/s, is for a ceiling above it by as much.
    """
    clock = bounding.clock_of(proof_s)
    free = problem.with_goal(0.0, problem.most_gbps)
    ceiling = cost_ceiling(free, usd_per_gbit, -SPARE_GBPS)
    relaxed = relax(free, bounding.largest_objective(free), extra=[ceiling])
    if relaxed is None or relaxed.throughput_gbps <= TIE:
        return None
    keep = most_promising(free, relaxed)
    most = fastest_on(free.with_regions(keep), usd_per_gbit)
    if most is None or most.throughput_gbps <= TIE:
        return None
    found = bounding.faster(free, relaxed, usd_per_gbit, most, keep, clock)
    most = found.integers
    if most.usd_per_gbit < usd_per_gbit * (1 - _AT_CEILING):
        most = _cheapest_at_its_rate(free, most, clock.left_s)
    return Found(most, found.bound)


def _cheapest_at_its_rate(problem: PlanProblem, most: Integers, proof_s: float) -> Integers:
    """The cheapest plan as fast as `most`: over all regions, for the fastest plan's may be dear.

    At the most that there is, few plans remain, and none may be found in good time: then
    the cheapest on the same regions.
    """
    rate = most.throughput_gbps * (1 - TIE)
    try:
        anywhere = cheapest(problem.with_goal(rate, rate), exactly=True, proof_s=proof_s)
    except SolverFailed:
        anywhere = None
    if anywhere is None:
        return cheaper_at_its_rate(most)
    return min(most, anywhere.integers, key=lambda integers: integers.usd_per_gbit)


def _regions_of_largest(problem: PlanProblem) -> Mask:
    """(V,) regions of a plan with the most throughput: there the goal is feasible, if at all."""
    largest = largest_throughput(problem)
    if largest is None:
        return np.zeros(problem.region_count, dtype=bool)
    small, used = largest[0].problem, largest[0].used_regions
    tags = {tag for tag, is_used in zip(small.tags, used, strict=True) if is_used}
    return np.array([tag in tags for tag in problem.tags])
