"""The most throughput under ceilings: a price per GB (4a), a total in USD, or both.

A price needs one integer program, because cost <= price * G is linear in G. For a total, the
program of `search.totals` finds the rate, and a program with the overhead of that rate finds the
plan. Programs stay below their ceilings by the solver's tolerance, so a plan that meets a ceiling
exactly is the cheapest one at the rate for a slightly higher ceiling.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.least_total_cost import (
    BoundedCandidate,
    Candidate,
    candidate_from,
    is_within,
    least_total,
    provision_waits,
    within_wait,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.optimum import cheapest, fastest
from skyplane_orchestration.planner.search.totals import BestRate, Bill, best_rate
from skyplane_orchestration.planner.total_bounds import bound_on_rate, priced_at, regions_at
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit

#: The search stops when the bound is within this share of the best rate.
_RATE_GAP: Final = 1e-3
#: Shares of a rate to try where whole connections or a second ceiling allow no plan at the rate.
_SHARES: Final = (1 - 1e-5, 0.998)
#: No further region is tried for less than this share of a rate.
_GROWTH_GAP: Final = 2e-3
#: A plan this near to the rate of the program, as a share of it, is accepted.
_NEAR: Final = 0.997
#: The share of the largest rate where the rate is looked for first.
_UPPER_PART: Final = 0.8
#: How far, relative, a program's ceiling is above one that a plan may meet exactly.
_LOOSER: Final = 1e-4
#: A rate that is lower by this share is surely within the range of its bound.
_ROUNDING: Final = 1e-9


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The most that a plan may cost: (4a) and the total; infinite for no limit."""

    usd_per_gb: float
    usd: float

    def allow(self, candidate: Candidate) -> bool:
        return is_within(candidate.usd_per_gb, self.usd_per_gb) and (
            math.isinf(self.usd) or is_within(candidate.usd, self.usd)
        )


def fastest_under(
    request: PlanRequest, problem: PlanProblem, ceilings: Ceilings
) -> BoundedCandidate | None:
    """The fastest plan within the ceilings; None when no plan is that cheap.

    The bound is in Gbit/s.
    """
    best: Candidate | None = None
    waits = provision_waits(problem)
    if math.isinf(ceilings.usd):
        best, bound = _under_price(request, problem, ceilings, waits[0])
    else:
        bound = 0.0
        for wait_s in waits:
            # Of the plans that wait longer only the faster ones are of interest.
            part = within_wait(problem, wait_s)
            best, most = _under_total(request, part, ceilings, wait_s, best)
            bound = max(bound, most)
    if best is None:
        return None
    return BoundedCandidate(best, max(bound, best.gbps))


def _under_price(
    request: PlanRequest, problem: PlanProblem, ceilings: Ceilings, wait_s: float
) -> tuple[Candidate | None, float]:
    """The fastest plan under a price per GB, and the bound."""
    price = usd_per_gb_to_usd_per_gbit(ceilings.usd_per_gb)
    best: Candidate | None = None
    bound = problem.most_gbps
    for ceiling in (price, price * (1 + _LOOSER)):
        found = fastest(problem, ceiling)
        if found is None:
            continue
        bound = min(bound, found.bound)
        made = candidate_from(request, found.solution, wait_s)
        if ceilings.allow(made):
            best = _faster(best, made)
        else:
            best = _faster(best, _cheapest_at(request, problem, made.gbps, ceilings, wait_s))
        if best is not None and bound <= best.gbps * (1 + _RATE_GAP):
            break
    if best is None:
        best = _cheapest_from(request, problem, problem.goal_gbps, ceilings, wait_s)
    return best, bound


def _under_total(
    request: PlanRequest,
    problem: PlanProblem,
    ceilings: Ceilings,
    wait_s: float,
    known: Candidate | None,
) -> tuple[Candidate | None, float]:
    """The fastest plan under a total, perhaps also under a price per GB, and the bound.

    Every plan is billed for `wait_s`; `known` is returned where no plan is faster.
    """
    total = request.usd_per_gbit(ceilings.usd)
    if total <= 0:
        return None, 0.0
    price = usd_per_gb_to_usd_per_gbit(ceilings.usd_per_gb)
    bill = Bill(request.volume_gbit, wait_s, total, price)
    rate = max(problem.goal_gbps, known.gbps if known else 0.0)
    faster = problem.with_goal(rate, max(rate, problem.most_gbps))
    bound = bound_on_rate(request, faster, total * (1 + _LOOSER), wait_s)
    if bound is None or (known and bound <= rate * (1 + _GROWTH_GAP)):
        return known, bound or rate
    regions = regions_at(request, problem, bound * (1 - _ROUNDING), wait_s)
    while True:
        searched = problem.with_regions(regions)
        most = _fastest_rate(searched.with_goal(rate, bound), bill)
        rate = max(rate, most.gbps if most else 0.0)
        if most is None or bound <= rate * (1 + _GROWTH_GAP):
            break
        if regions.all():
            bound = min(bound, max(rate, most.bound))
            break
        more = regions_at(request, problem, rate, wait_s)
        if not (more & ~regions).any():
            break
        regions |= more
    best = known
    if known is None or rate > known.gbps:
        best = _faster(best, _best_up_to(request, searched, rate, ceilings, wait_s))
        for share in _SHARES:
            if best is None or best.gbps < rate * _NEAR:
                other = _cheapest_at(request, problem, rate * share, ceilings, wait_s)
                best = _faster(best, other)
    if best is None:
        best = _cheapest_from(request, problem, problem.goal_gbps, ceilings, wait_s)
    return best, bound


def _fastest_rate(problem: PlanProblem, bill: Bill) -> BestRate | None:
    """The most rate for a bill; the program is tighter on a smaller range of rates."""
    least = problem.most_gbps * _UPPER_PART
    if least > problem.goal_gbps:
        upper_part = problem.with_goal(least, problem.most_gbps)
        found = best_rate(upper_part, bill, is_fastest=True)
        if found is not None:
            return found
    return best_rate(problem, bill, is_fastest=True)


def _faster(one: Candidate | None, other: Candidate | None) -> Candidate | None:
    known = [candidate for candidate in (one, other) if candidate is not None]
    return max(known, key=lambda candidate: candidate.gbps, default=None)


def _cheapest_from(
    request: PlanRequest, problem: PlanProblem, gbps: float, ceilings: Ceilings, wait_s: float
) -> Candidate | None:
    """The cheapest plan at this rate or above, by (4a) or else in total; None above a ceiling."""
    upwards = problem.with_goal(gbps, max(gbps, problem.most_gbps))
    found = cheapest(upwards, exactly=False)
    candidate = candidate_from(request, found.solution, wait_s) if found else None
    if (candidate is None or not ceilings.allow(candidate)) and math.isfinite(ceilings.usd):
        least = least_total(request, upwards, wait_s)
        candidate = least.candidate if least else None
    return candidate if candidate is not None and ceilings.allow(candidate) else None


def _cheapest_at(
    request: PlanRequest, problem: PlanProblem, gbps: float, ceilings: Ceilings, wait_s: float
) -> Candidate | None:
    """The cheapest plan at this rate, in total or else by (4a); None above a ceiling."""
    at_rate = problem.with_goal(gbps, gbps)
    prices = [at_rate]
    if math.isfinite(ceilings.usd):
        prices.insert(0, priced_at(request, at_rate, gbps, wait_s))
    for priced in prices:
        found = cheapest(priced, exactly=True)
        candidate = candidate_from(request, found.solution, wait_s) if found else None
        if candidate is not None and ceilings.allow(candidate):
            return candidate
    return None


def _best_up_to(
    request: PlanRequest, problem: PlanProblem, gbps: float, ceilings: Ceilings, wait_s: float
) -> Candidate | None:
    """The fastest plan up to a rate. With its overhead no slower plan is priced below its cost."""
    up_to = problem.with_goal(min(problem.goal_gbps, gbps), gbps)
    total = request.usd_per_gbit(ceilings.usd)
    found = fastest(priced_at(request, up_to, gbps, wait_s), total)
    best = candidate_from(request, found.solution, wait_s) if found else None
    return best if best is not None and ceilings.allow(best) else None
