"""Fewer instances where that costs next to nothing.

Near the least sum of bill and time the sum hardly changes with the number of instances, but each
instance uses a quota and may fail.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.candidate import Candidate
from skyplane_orchestration.planner.least_total_cost import candidate_from
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.optimum import cheapest
from skyplane_orchestration.planner.search.totals import Bill, best_rate
from skyplane_orchestration.planner.total_bounds import priced_at
from skyplane_orchestration.planner.value_of_time import ROOM
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit

#: A transfer so long that no wait and no minimum counts.
_ENDLESS_GBIT: Final = 1e12
#: The program has real connections. Where whole ones do not reach its rate, a rate lower by this
#: share is tried.
_LOWER: Final = 5e-3


def with_fewest_instances(request: PlanRequest, problem: PlanProblem, best: Candidate) -> Candidate:
    """The plan with the fewest instances whose sum is within `ROOM` of the best one's.

    It has the regions of the best one, or some of them.
    """
    time_usd_per_s = problem.time_usd_per_s
    ceiling_usd = best.usd_with_time(time_usd_per_s) + ROOM * best.decided_usd(time_usd_per_s)
    used = np.array([tag in best.overlay.instances for tag in problem.tags])
    few = problem.with_regions(used | ~problem.relays)
    try:
        found = best_rate(few, _bill(request, problem, best, ceiling_usd), "fewest")
    except SolverFailed:
        return best
    if found is None or found.instances.sum() >= sum(best.overlay.instances.values()):
        return best
    few = replace(few, quota=np.maximum(found.instances, 1.0))
    for factor in (1.0, 1.0 - _LOWER):
        rate = max(found.gbps * factor, few.goal_gbps)
        at_rate = few.with_goal(rate, rate)
        if request.volume_gb:
            at_rate = priced_at(request, at_rate, rate, best.wait_s)
        solved = cheapest(at_rate, exactly=True)
        if solved is not None:
            fewer = candidate_from(request, solved.solution)
            if fewer.usd_with_time(time_usd_per_s) <= ceiling_usd:
                return fewer
    return best


def _bill(request: PlanRequest, problem: PlanProblem, best: Candidate, ceiling_usd: float) -> Bill:
    if best.cost.total_usd is None:
        return Bill(_ENDLESS_GBIT, 0.0, usd_per_gb_to_usd_per_gbit(ceiling_usd))
    waiting_usd = problem.time_usd_per_s * best.wait_s
    most = request.usd_per_gbit(ceiling_usd - waiting_usd)
    least_s = request.object_bound().seconds
    return Bill(request.volume_gbit, best.wait_s, most, least_s=least_s)
