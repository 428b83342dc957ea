"""Bounds of totals and of rates under a total, from relaxations over parts of the range of rates.

An instance at rate G is billed for `max(wait + transfer, minimum)` seconds, where the transfer
takes VOL / G or as long as its objects. Per Gbit that is its price times `overhead(G) / G`, and the
overhead never falls as G rises. So in a part of the range the overhead at its lower end prices
every plan at its cost or below. The smaller the part, the nearer the bound.

A bound over few regions holds for all where no plan with another relay is affordable: such a plan
has that relay alone (`search.one_relay`), or whole instances of two relays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from itertools import pairwise, product
from typing import Final

import numpy as np

from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.constraint_names import COST_CEILING
from skyplane_orchestration.planner.formulation import (
    RowBlock,
    columns_of,
    cost_per_second,
    inequality_row,
)
from skyplane_orchestration.planner.pricing import instance_billing
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.one_relay import cost_with_one_relay
from skyplane_orchestration.planner.search.optimum import RelaxedRate, relaxed_fastest
from skyplane_orchestration.planner.search.regions import least_instances, least_of, whole_ends
from skyplane_orchestration.planner.search.restricted import CEILING_SLACK_GBPS
from skyplane_orchestration.planner.solution import FLOW_TOLERANCE, Relaxation
from skyplane_orchestration.planner.solve import relax

#: A bound this near to the best plan, as a share of it, is not improved.
_NEAR: Final = 2e-3
#: The most parts that the search for the bound of a total divides.
_MOST_DIVISIONS: Final = 5
#: The share between the ends of a part of the range for plans with one relay, and the most parts.
_PART: Final = 0.01
_MOST_PARTS: Final = 24
#: The most relays that join a search at a time.
MOST_RELAYS: Final = 4
#: A division that improves a bound by less than this share is the last.
_LEAST_GAIN: Final = 1e-4
#: A bound this near above the best rate is near enough.
_NEAR_ABOVE: Final = 5e-3
#: A pair of instances that costs less than this share of the bill does not matter.
_NOTABLE: Final = 0.01


def overhead(
    request: PlanRequest, tags: Sequence[str], gbps: float, wait_s: float, share: float = 1.0
) -> Floats:
    """(V,) billed seconds over the seconds of the bytes, at least 1; larger for short transfers.

    Args:
        share: that of the objects; 1 for a bound, which then grows from 1 as the rate does.
    """
    if gbps <= 0:
        return np.ones(len(tags))
    bytes_s = request.volume_gbit / gbps
    transfer_s = max(bytes_s / share, request.object_bound().seconds)
    return np.array([instance_billing.billed_s(tag, transfer_s, wait_s) / bytes_s for tag in tags])


def priced_at(
    request: PlanRequest, problem: PlanProblem, gbps: float, wait_s: float
) -> PlanProblem:
    """The problem with the instance prices that billing gives at this rate."""
    factor = overhead(request, problem.tags, gbps, wait_s, request.share)
    return problem.with_overhead(factor[problem.option_region])


def bound_on_total(request: PlanRequest, problem: PlanProblem, wait_s: float, usd: float) -> float:
    """A lower bound of the total in USD from the goal up; at most `usd`, that of a known plan.

    Parts of the range of rates are divided while the bound is far from the known plan and rises.
    """

    def add(low: float, high: float) -> None:
        least = _least_total_on(request, problem.with_goal(low, high), wait_s)
        if least is not None:
            heappush(parts, (least, low, high))

    parts: list[tuple[float, float, float]] = []
    add(problem.goal_gbps, problem.most_gbps)
    for _ in range(_MOST_DIVISIONS):
        if not parts or parts[0][0] >= usd * (1 - _NEAR):
            break
        least, low, high = heappop(parts)
        middle = math.sqrt(low * high)
        add(low, middle)
        add(middle, high)
        if parts and parts[0][0] < least * (1 + _LEAST_GAIN):
            break
    return min(usd, parts[0][0]) if parts else usd


def _least_total_on(request: PlanRequest, problem: PlanProblem, wait_s: float) -> float | None:
    """A lower bound of the total in USD from the goal to the highest rate; None if infeasible.

    A plan of a higher rate, scaled to the goal, is a solution of the relaxation at the goal. Whole
    instances of both ends are billed for their overhead; those of relays may be parts.
    """
    low = problem.goal_gbps
    factor = overhead(request, problem.tags, low, wait_s)
    least = least_instances(problem)
    boot = 0.0
    for end in problem.ends:
        boot += _least_price(problem, end) * least[end] * (factor[end] - 1) / low
        factor[end] = 1.0
    at_low = problem.with_goal(low, low).with_overhead(factor[problem.option_region])
    cuts = whole_ends(at_low, low / problem.most_gbps)
    relaxed = relax(at_low, cost_per_second(at_low), extra=cuts)
    if relaxed is None:
        return None
    # Time costs least at the highest rate.
    boot += problem.time_usd_per_s / problem.most_gbps
    return float(request.total_usd(relaxed.objective / low + boot))


def rate_with_others(
    request: PlanRequest, problem: PlanProblem, usd_per_gbit: float, wait_s: float, searched: Mask
) -> RelaxedRate | None:
    """The most Gbit/s from the goal up of plans that use another relay than those searched.

    Either that relay is the only one, or there are whole instances of two relays. None when no such
    plan is affordable.
    """
    others = problem.relays & ~searched
    if not others.any():
        return None
    found = [
        one
        for one in (
            _rate_with_one(request, problem, usd_per_gbit, wait_s, others),
            _rate_with_two(request, problem, usd_per_gbit, wait_s, others),
        )
        if one is not None
    ]
    if not found:
        return None
    regions = np.logical_or.reduce([one.regions for one in found])
    return RelaxedRate(max(one.bound for one in found), regions)


def _rate_with_one(
    request: PlanRequest, problem: PlanProblem, usd_per_gbit: float, wait_s: float, others: Mask
) -> RelaxedRate | None:
    """As `rate_with_others`, of plans with one relay."""
    goal, most = problem.goal_gbps, problem.most_gbps
    parts = min(max(math.ceil(math.log(most / goal) / _PART), 1), _MOST_PARTS)
    for low, high in reversed(list(pairwise(np.geomspace(goal, most, parts + 1).tolist()))):
        usd = problem.time_usd_per_s / high + cost_with_one_relay(
            problem.with_goal(low, high), priced_at(request, problem, high, wait_s).usd_per_s / high
        )
        least = least_of(np.where(others & (usd <= usd_per_gbit), usd, math.inf), MOST_RELAYS)
        if least.any():
            return RelaxedRate(high, least)
    return None


def _rate_with_two(
    request: PlanRequest, problem: PlanProblem, usd_per_gbit: float, wait_s: float, others: Mask
) -> RelaxedRate | None:
    """As `rate_with_others`, of plans with two relays or more; parts of instances may join them."""
    if problem.max_relays == 1:
        return None
    at_most = priced_at(request, problem, problem.most_gbps, wait_s).usd_per_s.min()
    is_short = 2 * at_most > _NOTABLE * usd_per_gbit * problem.most_gbps
    rows = [
        least_in("relays", problem, problem.relays, 2.0),
        least_in("other_relays", problem, others, 1.0),
    ]
    bound, used = 0.0, np.zeros(problem.region_count, dtype=bool)
    for more in _more_at_ends(problem) if is_short else ([],):
        least = least_bill(request, problem, usd_per_gbit, wait_s, *rows, *more)
        if least is None:
            continue
        flows = least.flow_gbps > FLOW_TOLERANCE
        used[problem.tail[flows]] = used[problem.head[flows]] = True
        # Where nothing is affordable just above the goal, that is near enough.
        above = min(problem.goal_gbps * (1 + _NEAR_ABOVE), problem.most_gbps)
        upper = problem.with_goal(above, problem.most_gbps)
        if least_bill(request, upper, usd_per_gbit, wait_s, *rows) is not None:
            row = bill_row(request, problem, usd_per_gbit, wait_s)
            found = relaxed_fastest(problem, row, *rows, *more)
            above = found[0] if found else 0.0
        bound = max(bound, above)
    return RelaxedRate(bound, used) if used.any() else None


def _more_at_ends(problem: PlanProblem) -> Iterator[list[RowBlock]]:
    """Rows for each case of whole instances at both ends: the fewest, or more than these."""
    least = least_instances(problem)
    for more in product((0.0, 1.0), repeat=2):
        rows = []
        for end, one in zip(problem.ends, more, strict=True):
            here, tag = np.arange(problem.region_count) == end, problem.tags[end]
            row = least_in if one else most_in
            rows.append(row(f"instances {tag}", problem, here, least[end] + one))
        yield rows


def least_bill(
    request: PlanRequest, problem: PlanProblem, usd_per_gbit: float, wait_s: float, *rows: RowBlock
) -> Relaxation | None:
    """The least bill above a ceiling from the goal up, both ends whole; None when infeasible, or
    above the ceiling by more than the solver's tolerance."""
    cost, most = _bill(request, problem, usd_per_gbit, wait_s)
    relaxed = relax(problem, cost, extra=[*whole_ends(problem), *rows])
    if relaxed is None or relaxed.objective > most + usd_per_gbit * CEILING_SLACK_GBPS:
        return None
    return relaxed


def bill_row(
    request: PlanRequest, problem: PlanProblem, usd_per_gbit: float, wait_s: float
) -> RowBlock:
    """The bill of a plan from the goal up is at most `usd_per_gbit`; see `_bill`."""
    cost, most = _bill(request, problem, usd_per_gbit, wait_s)
    limit = most / usd_per_gbit + CEILING_SLACK_GBPS
    return inequality_row(COST_CEILING, cost / usd_per_gbit, limit)


def _bill(
    request: PlanRequest, problem: PlanProblem, usd_per_gbit: float, wait_s: float
) -> tuple[Floats, float]:
    """A cost vector and its most, in USD per second: what a plan costs above `usd_per_gbit`."""
    low = problem.goal_gbps
    factor = overhead(request, problem.tags, low, wait_s)
    cost = cost_per_second(problem.with_overhead(factor[problem.option_region]))
    # The overhead is that of the lowest rate. At a rate G it is larger by (G - low) / low for the
    # instances that the ends have at any rate.
    least = least_instances(problem) * (factor - 1)
    more = float(sum(_least_price(problem, end) * least[end] for end in problem.ends))
    cost[columns_of(problem).throughput] = more / low - usd_per_gbit
    return cost, more - problem.time_usd_per_s


def least_in(name: str, problem: PlanProblem, regions: Mask, count: float) -> RowBlock:
    """-sum_k N_k <= -count over the options in the regions"""
    return inequality_row(name, -_instances_of(problem, regions), -count)


def most_in(name: str, problem: PlanProblem, regions: Mask, count: float) -> RowBlock:
    """sum_k N_k <= count over the options in the regions"""
    return inequality_row(name, _instances_of(problem, regions), count)


def _instances_of(problem: PlanProblem, regions: Mask) -> Floats:
    coefficients = np.zeros(columns_of(problem).count)
    coefficients[columns_of(problem).instances] = regions[problem.option_region]
    return coefficients


def _least_price(problem: PlanProblem, region: int) -> float:
    """USD per second of the cheapest instance of a region."""
    return float(problem.usd_per_s[problem.option_region == region].min(initial=math.inf))
