"""The total cost of a job in USD, which depends on the rate, and the search for the least total.

The overhead at the goal (see `total_bounds`) prices every plan at its cost or below: a bound. Where
it is far from the plan found, `search.totals` finds the rate, and the plan is the cheapest at that
rate, with its overhead.

`wait` is the provisioning time of the slowest cloud in the plan. The search first assumes that
every plan waits for its ends only. If the result uses a slower cloud, the search runs once per
distinct wait, on the clouds that are up by then.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.grids.arrays import Mask
from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.candidate import Candidate, priced
from skyplane_orchestration.planner.decode import decode
from skyplane_orchestration.planner.distance_to_bound import OPTIMAL_GAP
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.optimum import cheapest, relaxed_fastest
from skyplane_orchestration.planner.search.restricted import cheapest_restricted
from skyplane_orchestration.planner.search.totals import Bill, best_rate
from skyplane_orchestration.planner.solution import IntegerSolution
from skyplane_orchestration.planner.total_bounds import (
    bill_row,
    bound_on_total,
    least_bill,
    priced_at,
    rate_with_others,
)

#: Rates that differ by less than this share are equal.
SAME_RATE: Final = 1e-4
#: Share of a total by which the program of the total may exceed the best plan found.
_ROOM: Final = 1e-4
#: A bound this near below the best plan, as a share of it, is near enough.
_NEAR_BELOW: Final = 2e-3
#: A range of rates with this factor between its ends is too wide for one relaxation.
_WIDE: Final = 8.0
#: Rounding as a share of a ceiling: a plan keeps the ceiling that its own price sets.
_ROUNDING: Final = 1e-12


@dataclass(frozen=True, slots=True, eq=False)
class BoundedCandidate:
    """A candidate, and the proven bound on its objective (see `SolverReport.bound`)."""

    candidate: Candidate
    bound: float


#: Solves a problem for plans that wait the given seconds.
Solve = Callable[[PlanProblem, float], BoundedCandidate | None]


def is_within(usd: float, ceiling_usd: float) -> bool:
    """Whether a price keeps a ceiling."""
    return usd <= ceiling_usd * (1 + _ROUNDING)


def candidate_from(
    request: PlanRequest, solution: IntegerSolution, wait_s: float | None = None
) -> Candidate:
    """The decoded solution with its price; `wait_s` as for `priced`."""
    return priced(request, decode(solution), wait_s)


def provision_waits(problem: PlanProblem) -> list[float]:
    """The distinct waits that a plan of this problem may have, ascending."""
    least_s = problem.provision_s[list(problem.ends)].max()
    return sorted(set(np.maximum(least_s, problem.provision_s).tolist()))


def within_wait(problem: PlanProblem, wait_s: float) -> PlanProblem:
    """The problem restricted to clouds that are up after `wait_s`."""
    quick: Mask = problem.provision_s <= wait_s
    return problem if quick.all() else problem.with_regions(quick)


def best_over_waits(problem: PlanProblem, solve: Solve) -> BoundedCandidate | None:
    """The plan of the least total over all waits; None when there is no plan."""
    waits = provision_waits(problem)
    free = solve(problem, waits[0])
    if free is None or free.candidate.wait_s <= waits[0]:
        return free
    tried = [solve(within_wait(problem, wait_s), wait_s) for wait_s in waits]
    found = [one for one in tried if one is not None]
    if not found:
        return None
    time_usd_per_s = problem.time_usd_per_s
    best = min(found, key=lambda one: one.candidate.usd_with_time(time_usd_per_s))
    return BoundedCandidate(best.candidate, max(free.bound, min(one.bound for one in found)))


# ---------------------------------------------------------------- the least total


def least_total(
    request: PlanRequest, problem: PlanProblem, wait_s: float
) -> BoundedCandidate | None:
    """The plan with the least total at any rate from the goal up; None when infeasible.

    Every plan is billed for `wait_s`. The total and its bound, in USD, have the value of time.
    """
    at_goal = cheapest(priced_at(request, problem, problem.goal_gbps, wait_s), exactly=False)
    if at_goal is None:
        return None
    waiting_usd = problem.time_usd_per_s * wait_s

    def usd(candidate: Candidate) -> float:
        return candidate.usd_with_time(problem.time_usd_per_s) - waiting_usd

    bound = request.total_usd(at_goal.bound)
    best = candidate_from(request, at_goal.solution, wait_s)
    tried = [np.isin(problem.tags, at_goal.searched.tags)]
    if not tried[0].all():
        # Mostly no further relay pays, which is soon proven.
        tried.insert(0, np.isin(problem.tags, list(best.overlay.instances)))
    for regions in tried:
        if bound >= usd(best) * (1 - OPTIMAL_GAP):
            break
        part = problem.with_regions(regions)
        # At the rate that the program of the total finds, the overhead is known.
        most = request.usd_per_gbit(usd(best)) * (1 + _ROOM)
        bill = Bill(request.volume_gbit, wait_s, most, least_s=request.object_bound().seconds)
        try:
            found = best_rate(_rates_below(request, part, usd(best), wait_s), bill, "least")
        except SolverFailed:
            found = None
        if found is None:
            continue
        rate = max(found.gbps, problem.goal_gbps)
        priced_part = priced_at(request, part.with_goal(rate, rate), rate, wait_s)
        at_rate = cheapest_restricted(priced_part, found.bound)
        if at_rate is not None:
            best = min(best, candidate_from(request, at_rate.solution, wait_s), key=usd)
        proven = request.total_usd(found.bound)
        if not regions.all():
            least = usd(best) * (1 - _NEAR_BELOW)
            affordable = _is_affordable_with_others(request, problem, least, wait_s, regions)
            proven = 0.0 if affordable else min(proven, least)
        bound = max(bound, proven)
        if proven:
            break
    else:
        bound = max(bound, bound_on_total(request, problem, wait_s, usd(best)))
    return BoundedCandidate(best, min(usd(best), bound) + waiting_usd)


def _is_affordable_with_others(
    request: PlanRequest, problem: PlanProblem, usd: float, wait_s: float, searched: Mask
) -> bool:
    """Whether a relaxation affords a plan that uses another relay than those searched."""
    total = request.usd_per_gbit(usd)
    cheaper = _rates_below(request, problem, usd, wait_s)
    if total <= 0 or cheaper.goal_gbps >= cheaper.most_gbps:
        return total > 0
    if least_bill(request, cheaper, total, wait_s) is None:
        return False
    fastest = relaxed_fastest(cheaper, bill_row(request, cheaper, total, wait_s))
    if fastest is None:
        return False
    if fastest.bound > _WIDE * cheaper.goal_gbps:
        return True
    cheaper = cheaper.with_goal(cheaper.goal_gbps, fastest.bound)
    return rate_with_others(request, cheaper, total, wait_s, searched) is not None


def _rates_below(
    request: PlanRequest, problem: PlanProblem, usd: float, wait_s: float
) -> PlanProblem:
    """The problem without rates so low that the ends alone cost more than a total."""
    ends_usd_per_s = problem.time_usd_per_s + sum(
        float(problem.usd_per_s[problem.option_region == end].min()) for end in problem.ends
    )
    egress = float(problem.usd_per_gbit[problem.tail == problem.src].min())
    left_usd = request.volume_gbit * max(request.usd_per_gbit(usd) * (1 + _ROOM) - egress, 0.0)
    # The value of the time of the wait is not part of the total here.
    left_usd += problem.time_usd_per_s * wait_s
    longest_s = left_usd / ends_usd_per_s - wait_s if ends_usd_per_s > 0 else math.inf
    least = request.volume_gbit / longest_s if longest_s > 0 else problem.most_gbps
    goal = min(max(problem.goal_gbps, least), problem.most_gbps)
    return problem.with_goal(goal, problem.most_gbps)
