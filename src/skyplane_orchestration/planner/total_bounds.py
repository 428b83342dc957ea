"""Bounds on totals, by the relaxation over ranges of rates.

The bill of an instance over a job of VOL Gbit at rate G is its price times `overhead(G) / G` per
Gbit, and overhead is convex in G. In a range [low, high] of rates, with N instances where at least
n are needed,

    N * overhead(G) >= N * overhead(low) + n * slope(low) * (G - low)

which is linear in N and G (one half of McCormick's envelope, 1976). The bound of a range is thus
one linear program; a range whose bound is too low is halved.
"""

from __future__ import annotations

import heapq
import math
from typing import Final

import numpy as np

from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.formulation import columns_of, cost_per_second, end_instances
from skyplane_orchestration.planner.pricing import billing
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.regions import least_instances
from skyplane_orchestration.planner.solve import relax

#: A bound this near to the plan is good enough, relative.
NEAR: Final = 0.009
#: Most linear programs for one bound.
_PROGRAMS: Final = 16


def least_total_bound(
    request: PlanRequest, problem: PlanProblem, wait_s: float, best_usd: float
) -> float:
    """No plan that waits `wait_s`, from the goal to the largest rate, has a smaller total (USD).

    Args:
        best_usd: total of the best plan found; a bound within NEAR of it suffices.
    """
    price = request.usd_per_gbit(best_usd)
    ranges = [(0.0, problem.goal_gbps, problem.most_gbps)]
    for _ in range(_PROGRAMS // 2):
        bound, low, high = ranges[0]
        if bound >= price * (1 - NEAR) or (bound > 0.0 and high <= low * (1 + NEAR)):
            break
        heapq.heappop(ranges)
        middle = math.sqrt(low * high)
        for part in {(low, middle), (middle, high)} if high > low * (1 + NEAR) else {(low, high)}:
            excess = _excess(request, problem.with_goal(*part), wait_s, price)
            if excess is not None:
                bound = max(price + excess / part[0 if excess < 0 else 1], 0.0)
                heapq.heappush(ranges, (bound, *part))
        if not ranges:
            return best_usd
    return min(request.total_usd(ranges[0][0]), best_usd)


def largest_rate_bound(
    request: PlanRequest,
    problem: PlanProblem,
    wait_s: float,
    max_usd: float,
    rates: tuple[float, float],
) -> float:
    """No plan that waits `wait_s` and costs at most `max_usd` is faster (Gbit/s).

    Args:
        rates: of the best plan found, and a known bound.
    """
    best, high = rates
    price, step = request.usd_per_gbit(max_usd), math.sqrt(high / best)
    for _ in range(_PROGRAMS):
        if high <= best * (1 + NEAR) or step < 1 + NEAR:
            break
        low = max(best, high / step)
        excess = _excess(request, problem.with_goal(low, high), wait_s, price)
        if excess is None or excess > price * high * 1e-6:
            high = low
        else:
            step = math.sqrt(step)
    return high


def _excess(
    request: PlanRequest, part: PlanProblem, wait_s: float, usd_per_gbit: float
) -> float | None:
    """The least of (bill - price * volume) / VOL * G of the relaxation; None without a plan."""
    low, volume = part.goal_gbps, request.volume_gbit
    transfer_s = volume / low
    billed = np.array([billing.billed_s(tag, transfer_s, wait_s) for tag in part.tags])
    # Seconds of the bill that stay when the transfer is a second shorter.
    fixed = np.where(billed > wait_s + transfer_s, billed, wait_s)
    least = least_instances(part)
    per_gbps = sum(
        float(least[end] * part.usd_per_s[part.option_region == end].min() * fixed[end] / volume)
        for end in part.ends
        if (part.option_region == end).any()
    )
    overhead = np.maximum(billed / transfer_s, 1.0)
    cost = cost_per_second(part.with_overhead(overhead[part.option_region]))
    cost[columns_of(part).throughput] = per_gbps - usd_per_gbit
    relaxed = relax(part, cost, extra=[end_instances(part, least)])
    return None if relaxed is None else relaxed.objective - per_gbps * low
