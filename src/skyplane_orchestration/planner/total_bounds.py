"""Bounds of totals and of rates under a total, from relaxations over parts of the range of rates.

An instance at rate G is billed for `max(wait + VOL / G, minimum)` seconds. Per Gbit that is its
price times `overhead(G) / G`, and the overhead never falls as G rises. So in a part of the range
the overhead at its lower end prices every plan at its cost or below. The smaller the part, the
nearer the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

import numpy as np

from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.constraint_names import COST_CEILING
from skyplane_orchestration.planner.formulation import (
    columns_of,
    cost_per_second,
    end_instances,
    inequality_row,
)
from skyplane_orchestration.planner.pricing import instance_billing
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.optimum import relaxed_fastest
from skyplane_orchestration.planner.search.regions import least_instances, restricted_regions
from skyplane_orchestration.planner.search.restricted import CEILING_SLACK_GBPS
from skyplane_orchestration.planner.solve import relax

#: A bound this near to the best plan, as a share of it, is not improved.
_NEAR: Final = 2e-3
#: The most parts that the search for the bound of a total divides.
_MOST_DIVISIONS: Final = 5
#: A division that improves a bound by less than this share is the last.
_LEAST_GAIN: Final = 1e-4
#: The bound of a rate is about this near, as a share, to the highest rate that a relaxation
#: affords, unless that takes more relaxations.
_RATE_STEP: Final = 4e-3
_MOST_RELAXATIONS: Final = 16


def overhead(tags: Sequence[str], transfer_s: float, wait_s: float) -> Floats:
    """(V,) billed seconds over seconds of transfer, at least 1; larger for short transfers."""
    if not np.isfinite(transfer_s):
        return np.ones(len(tags))
    return np.array(
        [instance_billing.billed_s(tag, transfer_s, wait_s) / transfer_s for tag in tags]
    )


def priced_at(
    request: PlanRequest, problem: PlanProblem, gbps: float, wait_s: float
) -> PlanProblem:
    """The problem with the instance prices that billing gives at this rate."""
    transfer_s = request.volume_gbit / gbps if gbps > 0 else math.inf
    factor = overhead(problem.tags, transfer_s, wait_s)
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
    factor = overhead(problem.tags, request.volume_gbit / low, wait_s)
    least = least_instances(problem)
    boot = 0.0
    for end in problem.ends:
        boot += _least_price(problem, end) * least[end] * (factor[end] - 1) / low
        factor[end] = 1.0
    at_low = problem.with_goal(low, low).with_overhead(factor[problem.option_region])
    cut = end_instances(at_low, least * low / problem.most_gbps)
    relaxed = relax(at_low, cost_per_second(at_low), extra=[cut])
    return None if relaxed is None else float(request.total_usd(relaxed.objective / low + boot))


def bound_on_rate(
    request: PlanRequest, problem: PlanProblem, usd_per_gbit: float, wait_s: float
) -> float | None:
    """The bound on Gbit/s under a total from the goal up; None when no rate is affordable.

    Upper parts of the range are left out while no relaxation affords a rate in them.

    Args:
        usd_per_gbit: the most for egress and billed instances per Gbit of the volume.
    """
    high = _relaxed_rate(request, problem, usd_per_gbit, wait_s)
    lows = [problem.goal_gbps]
    # Long transfers have hardly an overhead, so the first bound is mostly the last.
    share = _RATE_STEP
    for _ in range(_MOST_RELAXATIONS):
        if high is None or not lows:
            return None
        low = lows[-1]
        is_narrow = high <= low * (1 + 2 * _RATE_STEP)
        middle = low if is_narrow else max(math.sqrt(low * high), high * (1 - share))
        part = problem.with_goal(middle, high)
        most = None
        if _is_affordable(request, part, usd_per_gbit, wait_s):
            if high <= middle * (1 + 2 * _RATE_STEP):
                return high
            most = _relaxed_rate(request, part, usd_per_gbit, wait_s)
        if most is not None:
            high = most
            lows.append(middle)
            continue
        high, share = middle, min(share * 5, 0.5)
        if is_narrow:
            lows.pop()
    return high


def _relaxed_rate(
    request: PlanRequest, problem: PlanProblem, usd_per_gbit: float, wait_s: float
) -> float | None:
    """As `bound_on_rate`, by one relaxation over all rates of the problem."""
    cost, most = _bill(request, problem, usd_per_gbit, wait_s)
    limit = most / usd_per_gbit + CEILING_SLACK_GBPS
    row = inequality_row(COST_CEILING, cost / usd_per_gbit, limit)
    found = relaxed_fastest(problem, row)
    return None if found is None else found[0]


def _is_affordable(
    request: PlanRequest, problem: PlanProblem, usd_per_gbit: float, wait_s: float
) -> bool:
    """Whether `_relaxed_rate` finds a rate: the least bill takes fewer edges to find."""
    cost, most = _bill(request, problem, usd_per_gbit, wait_s)
    least = relax(problem, cost, extra=[end_instances(problem, least_instances(problem))])
    return least is not None and least.objective <= most + usd_per_gbit * CEILING_SLACK_GBPS


def _bill(
    request: PlanRequest, problem: PlanProblem, usd_per_gbit: float, wait_s: float
) -> tuple[Floats, float]:
    """A cost vector and its most, in USD per second: what a plan costs above `usd_per_gbit`."""
    low = problem.goal_gbps
    factor = overhead(problem.tags, request.volume_gbit / low, wait_s)
    cost = cost_per_second(problem.with_overhead(factor[problem.option_region]))
    # The overhead is that of the lowest rate. At a rate G it is larger by (G - low) / low for the
    # instances that the ends have at any rate.
    least = least_instances(problem) * (factor - 1)
    more = float(sum(_least_price(problem, end) * least[end] for end in problem.ends))
    cost[columns_of(problem).throughput] = more / low - usd_per_gbit
    return cost, more


def regions_at(request: PlanRequest, problem: PlanProblem, gbps: float, wait_s: float) -> Mask:
    """(V,) the regions to search for the least total at a rate."""
    at_rate = priced_at(request, problem.with_goal(gbps, gbps), gbps, wait_s)
    relaxed = relax(at_rate, cost_per_second(at_rate))
    return ~problem.relays if relaxed is None else restricted_regions(at_rate, relaxed)


def _least_price(problem: PlanProblem, region: int) -> float:
    """USD per second of the cheapest instance of a region."""
    return float(problem.usd_per_s[problem.option_region == region].min(initial=math.inf))
