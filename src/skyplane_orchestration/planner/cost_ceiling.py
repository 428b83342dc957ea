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

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.candidate import Candidate
from skyplane_orchestration.planner.formulation import RowBlock, cost_ceiling, policy_rows
from skyplane_orchestration.planner.least_total_cost import (
    BoundedCandidate,
    candidate_from,
    is_within,
    least_total,
    provision_waits,
    within_wait,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.optimum import (
    RelaxedRate,
    cheapest,
    fastest,
    relaxed_fastest,
)
from skyplane_orchestration.planner.search.restricted import CEILING_SLACK_GBPS, fastest_restricted
from skyplane_orchestration.planner.search.totals import Bill, best_rate
from skyplane_orchestration.planner.total_bounds import bill_row, priced_at, rate_with_others
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit

#: The search stops when the bound is within this share of the best rate.
_RATE_GAP: Final = 1e-3
#: A plan this near to the rate of the program, as a share of it, is accepted.
_NEAR: Final = 0.997
#: The solver's rounding of a rate.
_RATE_ROUNDING: Final = 1e-5
#: No further region is tried for less than this share of a rate.
_GROWTH_GAP: Final = 2e-3
#: How far, relative, a program's ceiling is above one that a plan may meet exactly.
_LOOSER: Final = 1e-4


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
    return None if best is None else BoundedCandidate(best, max(bound, best.gbps))


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
    bill = Bill(request.volume_gbit, wait_s, total, price, request.object_bound().seconds)
    rate = max(problem.goal_gbps, known.gbps * (1 + _RATE_GAP) if known else 0.0)
    faster = problem.with_goal(rate, max(rate, problem.most_gbps))
    if known:
        quick = problem.provision_s < wait_s
        started = rate_with_others(request, faster, total * (1 + _LOOSER), wait_s, quick)
    else:
        row = bill_row(request, faster, total * (1 + _LOOSER), wait_s)
        started = relaxed_fastest(faster, row)
    if started is None:
        return known, rate if known else 0.0
    found = _fastest_rate(request, faster, bill, started)
    best = known
    if found.gbps > rate:
        best = _faster(best, _best_up_to(request, found, ceilings, wait_s))
    if found.gbps > rate and (best is None or best.gbps < found.gbps * _NEAR):
        # The ceiling is met exactly, or only within the solver's tolerance.
        at = found.gbps * (1 - _RATE_ROUNDING)
        best = _faster(best, _cheapest_at(request, problem, at, ceilings, wait_s))
    if best is None:
        best = _cheapest_from(request, problem, problem.goal_gbps, ceilings, wait_s)
    return best, found.bound


@dataclass(frozen=True, slots=True, eq=False)
class _FastestRate:
    """The most Gbit/s found, or 0, with the problem that was searched at last, and the bound."""

    gbps: float
    searched: PlanProblem
    bound: float


def _fastest_rate(
    request: PlanRequest, problem: PlanProblem, bill: Bill, started: RelaxedRate
) -> _FastestRate:
    """The most rate for a bill from the goal up. Regions join while the bound is not near."""
    regions, most, rate = started.regions | ~problem.relays, started.bound, 0.0
    at_first = regions.sum()
    while True:
        known = max(rate, problem.goal_gbps)
        searched = problem.with_regions(regions).with_goal(known, most)
        proven = known
        try:
            found = best_rate(searched, bill, "fastest")
        except SolverFailed:
            found, proven = None, most
        if found is not None:
            rate, proven = max(rate, found.gbps), max(found.bound, known)
        above = problem.with_goal(min(max(rate, known) * (1 + _RATE_GAP), most), most)
        usd = bill.max_usd_per_gbit * (1 + _LOOSER)
        others = rate_with_others(request, above, usd, bill.wait_s, regions)
        if others is None:
            return _FastestRate(rate, searched, max(proven, above.goal_gbps))
        most = min(most, max(proven, others.bound))
        is_near = most <= rate * (1 + _GROWTH_GAP)
        is_no_better = regions.sum() > at_first and rate <= known
        if is_near or is_no_better or not (others.regions & ~regions).any():
            return _FastestRate(rate, searched, most)
        regions = regions | others.regions


def _best_up_to(
    request: PlanRequest, found: _FastestRate, ceilings: Ceilings, wait_s: float
) -> Candidate | None:
    """The fastest plan up to a rate. With its overhead no slower plan is priced below its cost."""
    up_to = found.searched.with_goal(0.0, found.gbps)
    total = request.usd_per_gbit(ceilings.usd)

    def rows(part: PlanProblem) -> list[RowBlock]:
        priced = priced_at(request, part, found.gbps, wait_s)
        ceiling = [cost_ceiling(priced, total, CEILING_SLACK_GBPS)]
        if math.isfinite(ceilings.usd_per_gb):
            price = usd_per_gb_to_usd_per_gbit(ceilings.usd_per_gb)
            ceiling.append(cost_ceiling(part, price, CEILING_SLACK_GBPS))
        return [*ceiling, *policy_rows(part)]

    best = fastest_restricted(up_to, rows)
    made = candidate_from(request, best, wait_s) if best else None
    return made if made is not None and ceilings.allow(made) else None


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
