"""The least cost of plans over one relay, for every relay at once."""

from __future__ import annotations

from itertools import product
from typing import Final

import numpy as np

from skyplane_orchestration.grids.arrays import Floats
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.regions import edge_matrix

#: Share of one instance that counts as rounding.
_ROUNDING: Final = 1e-6


def cost_with_one_relay(problem: PlanProblem, usd_per_gbit: Floats) -> Floats:
    """(V,) a lower bound in USD per Gbit of plans from the goal up in which a region is the only
    relay; infinite for what is no relay.

    N is whole, M real. The cost is linear in the share of the relay between the shares that fill
    whole instances at the goal, so the least is at one of them.

    Args:
        usd_per_gbit: (K,) price of one instance, whatever it carries.
    """
    price = edge_matrix(problem, problem.usd_per_gbit)
    hop = edge_matrix(problem, 1.0 / problem.gbps_per_connection)
    place, src, dst = problem.option_region, problem.src, problem.dst
    best = np.full(problem.region_count, np.inf)
    relayed = price[src, place] + price[place, dst]
    relay = np.flatnonzero(np.isfinite(relayed))
    if not len(relay):
        return best
    relayed, region = relayed[relay], place[relay]
    is_direct = bool(np.isfinite(price[src, dst]))
    direct_usd, direct = (price[src, dst], hop[src, dst]) if is_direct else (0.0, 0.0)
    through = np.maximum(
        1.0 / np.minimum(problem.ingress_gbps, problem.egress_gbps)[relay],
        np.maximum(hop[src, region], hop[region, dst]) / problem.connection_limit[relay],
    )
    ends = ((problem.egress_gbps, hop[src, region]), (problem.ingress_gbps, hop[region, dst]))
    options = product(*(np.flatnonzero(place == end).tolist() for end in problem.ends))
    for pair in options:
        # Instances of an end per Gbit/s: the least, those without the relay, and more for a share.
        loads = []
        for option, (limit, hops) in zip(pair, ends, strict=True):
            connections = problem.connection_limit[option]
            loads.append((1.0 / limit[option], direct / connections, (hops - direct) / connections))
        most = max(problem.quota[list(pair)].max(), problem.quota[relay].max())
        full = np.arange(1, most + 1)[:, None] / problem.goal_gbps
        with np.errstate(divide="ignore", invalid="ignore"):
            filled = [(full - start) / slope for _, start, slope in loads]
            bounds = np.array([np.zeros(len(relay)), np.ones(len(relay))])
            shares = np.vstack([*filled, full / through, bounds])
        share = np.clip(np.nan_to_num(shares if is_direct else bounds[1:]), 0.0, 1.0)
        cost: Floats = direct_usd * (1 - share) + relayed * share
        needs = [np.maximum(least, start + slope * share) for least, start, slope in loads]
        for places, need in zip(
            (*np.array(pair)[:, None], relay), (*needs, through * share), strict=True
        ):
            whole = np.maximum(np.ceil(need * problem.goal_gbps - _ROUNDING), 1.0)
            cost += usd_per_gbit[places] * whole
            cost[whole > problem.quota[places]] = np.inf
        np.minimum.at(best, region, cost.min(axis=0))
    return best
