"""The search: from a problem to an integer solution with a proven gap.

1. The relaxation over all regions gives a bound and a reduced cost per edge.
2. The restricted problem has the regions that the relaxation uses and the relays of least reduced
   cost (`variable_fixing.restricted_regions`). It is solved with M real first, which is quick and
   shows the regions that matter, then in full on those regions (`restricted`).
3. Reduced costs fix variables that no better plan uses (`variable_fixing.fix_variables`). Often
   only the regions of step 2 remain. If more remain, the model with M real on the rest bounds
   every plan, and the regions of its solution join the restricted problem (`bounding`).
4. In the remaining time the solver searches for a better plan with M integer.

Ties go to fewer relays, then to fewer instances.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.grids.arrays import Mask
from skyplane_orchestration.planner.formulation import (
    cost_ceiling,
    cost_per_second,
    end_instances,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search import bounding
from skyplane_orchestration.planner.search.restricted import (
    CEILING_SLACK_GBPS,
    TIE_WEIGHT,
    cheaper_at_same_rate,
    cheapest_restricted,
    fastest_restricted,
)
from skyplane_orchestration.planner.search.variable_fixing import (
    least_instances,
    restricted_regions,
)
from skyplane_orchestration.planner.solution import Incumbent, IntegerSolution, Relaxation
from skyplane_orchestration.planner.solve import relax

#: A plan whose price is within this share of its ceiling is accepted: another half a second of
#: search can gain at most this much.
_AT_CEILING: Final = 1e-3


def cheapest(problem: PlanProblem, *, exactly: bool, proof_s: float) -> Incumbent | None:
    """The least (4a) per Gbit at the goal (`exactly`) or at any rate from the goal up.

    The relaxed price per Gbit never falls as the rate rises, so the relaxation at the goal bounds
    every rate. None when no plan reaches the goal.

    Args:
        proof_s: seconds for the proof and for improvements; 0 returns the first solution.
    """
    time_left = bounding.TimeLimit.after(proof_s)
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    cuts = [end_instances(at_goal, least_instances(at_goal))] if exactly else []
    relaxed = relax(at_goal, cost_per_second(at_goal), extra=cuts)
    if relaxed is None:
        return None
    bound = max(relaxed.objective, 0.0) / problem.goal_gbps
    target = at_goal if exactly else problem
    regions = restricted_regions(problem, relaxed)
    best = cheapest_restricted(target.with_regions(regions), bound)
    if best is None and not regions.all():
        regions = regions | _regions_of_fastest(problem)
        best = cheapest_restricted(target.with_regions(regions), bound)
    if best is None:
        return None
    best = bounding.bound_cheapest(target, relaxed, best, regions, time_left)
    return Incumbent(best.solution, min(best.bound, best.solution.usd_per_gbit))


def largest_throughput(problem: PlanProblem) -> tuple[IntegerSolution, Relaxation] | None:
    """The most throughput at any cost; None when no path joins source and sink.

    Many plans reach the same rate; a small weight on flow prefers short paths.
    """
    free = problem.with_goal(0.0, problem.most_gbps)
    relaxed = relax(free, bounding.bound_objective(free))
    if relaxed is None or relaxed.throughput_gbps <= TIE_WEIGHT:
        return None
    best = fastest_restricted(free.with_regions(restricted_regions(free, relaxed)), None)
    return None if best is None else (best, relaxed)


def fastest(problem: PlanProblem, usd_per_gbit: float, *, proof_s: float) -> Incumbent | None:
    """The most throughput at no more than `usd_per_gbit`, then the cheapest plan at that rate.

    One integer program: cost <= price * G is linear when G is a variable. None when no plan is
    that cheap. The solution keeps the ceiling in spite of the solver's tolerance. The bound, in
    Gbit/s, is for a ceiling that is higher by the same slack.
    """
    time_left = bounding.TimeLimit.after(proof_s)
    free = problem.with_goal(0.0, problem.most_gbps)
    ceiling = cost_ceiling(free, usd_per_gbit, -CEILING_SLACK_GBPS)
    relaxed = relax(free, bounding.bound_objective(free), extra=[ceiling])
    if relaxed is None or relaxed.throughput_gbps <= TIE_WEIGHT:
        return None
    regions = restricted_regions(free, relaxed)
    most = fastest_restricted(free.with_regions(regions), usd_per_gbit)
    if most is None or most.throughput_gbps <= TIE_WEIGHT:
        return None
    found = bounding.bound_fastest(free, relaxed, usd_per_gbit, most, regions, time_left)
    most = found.solution
    if most.usd_per_gbit < usd_per_gbit * (1 - _AT_CEILING):
        most = _cheapest_at_same_rate(free, most, time_left.left_s)
    return Incumbent(most, found.bound)


def _cheapest_at_same_rate(
    problem: PlanProblem, most: IntegerSolution, proof_s: float
) -> IntegerSolution:
    """The cheapest plan at the rate of `most`; on the same regions if the solver finds no other."""
    rate = most.throughput_gbps * (1 - TIE_WEIGHT)
    try:
        found = cheapest(problem.with_goal(rate, rate), exactly=True, proof_s=proof_s)
    except SolverFailed:
        found = None
    if found is None:
        return cheaper_at_same_rate(most)
    return min(most, found.solution, key=lambda solution: solution.usd_per_gbit)


def _regions_of_fastest(problem: PlanProblem) -> Mask:
    """(V,) regions of a plan with the most throughput: if the goal is feasible, it is here."""
    largest = largest_throughput(problem)
    if largest is None:
        return np.zeros(problem.region_count, dtype=bool)
    smaller, used = largest[0].problem, largest[0].used_regions
    tags = {tag for tag, is_used in zip(smaller.tags, used, strict=True) if is_used}
    return np.array([tag in tags for tag in problem.tags])
