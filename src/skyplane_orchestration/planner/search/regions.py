"""The regions of the restricted problem, chosen by the reduced costs of the relaxation."""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import csgraph_from_dense, dijkstra

from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.planner.formulation import RowBlock, columns_of, inequality_row
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.solution import Relaxation

#: Relays in addition to those of the relaxation. Five sufficed on every problem tried.
EXTRA_RELAYS = 5
#: The same when the job limits the number of relays.
EXTRA_RELAYS_IF_LIMITED = 12
#: With at most so many regions the search takes all of them, so that its bound holds.
FEW_REGIONS = 12
_USED = 1e-9
_SAME = 1e-9


def least_instances(problem: PlanProblem) -> Floats:
    """(V,) a lower bound on the instances of the source and the destinations at the goal."""
    least, needed = np.zeros(problem.region_count), _needed(problem)
    for end in problem.ends:
        own = needed[(problem.option_region == end) & (needed > 0)]
        least[end] = own.min(initial=np.inf) if len(own) else 0.0
    return least


def _needed(problem: PlanProblem) -> Floats:
    """(K,) the least instances of an option of an end at the goal; 0 for what cannot send at all.

    No instance of the source sends more than its egress limit, or more than its connections carry
    on its best edge. The same holds for a destination.
    """
    most = np.zeros(problem.option_count)
    for region, ends, limit in (
        (problem.src, problem.tail, problem.egress_gbps),
        *((end, problem.head, problem.ingress_gbps) for end in problem.destinations),
    ):
        best = problem.gbps_per_connection[ends == region].max(initial=0.0)
        here = problem.option_region == region
        most[here] = np.minimum(limit, best * problem.connection_limit)[here]
    sends = most > 0
    return np.ceil(np.divide(problem.goal_gbps, most, where=sends, out=np.zeros_like(most)) - _SAME)


def whole_ends(problem: PlanProblem, share: float = 1.0) -> list[RowBlock]:
    """-sum_k N_k <= -least and -sum_k price_k * N_k <= -least price, at source and sink

    Cuts that every integer N of one type in a region satisfies at the goal. Prices are shares of
    the least price.

    Args:
        share: of the cuts, for plans that are scaled to the goal from a higher rate.
    """
    needed, least, rows = _needed(problem), least_instances(problem), []
    for end in (problem.src, problem.dst):
        here = problem.option_region == end
        able = here & (needed > 0) & (needed <= problem.quota)
        price = float((problem.usd_per_s * needed)[able].min(initial=np.inf))
        cuts = [("least instances", np.ones(len(here)), float(least[end]))]
        if 0.0 < price < np.inf:
            cuts.append(("least price", problem.usd_per_s / price, 1.0))
        for name, weight, most in cuts:
            coefficients = np.zeros(columns_of(problem).count)
            coefficients[columns_of(problem).instances] = -weight * here
            rows.append(inequality_row(f"{name} {problem.tags[end]}", coefficients, -share * most))
    return rows


def restricted_regions(problem: PlanProblem, relaxed: Relaxation) -> Mask:
    """(V,) the ends, the regions of the relaxation, and the relays of least reduced cost.

    The reduced cost of a relay is that of the cheapest path through it. A limit on relays is not
    part of the relaxation, which then spreads over many relays. So with a limit the mask has more
    relays, and also those with the fastest two hops.
    """
    if problem.region_count <= FEW_REGIONS:
        return np.ones(problem.region_count, dtype=bool)
    used = np.zeros(problem.region_count, dtype=bool)
    flows = relaxed.flow_gbps > _USED
    used[problem.tail[flows]] = used[problem.head[flows]] = True
    used[[problem.src, problem.dst]] = True
    reduced = edge_matrix(problem, relaxed.edge_reduced_cost)
    detour = shortest_distances(reduced, problem.src) + shortest_distances(reduced.T, problem.dst)
    detour[used] = np.inf
    if problem.max_relays is None:
        return used | least_of(detour, EXTRA_RELAYS)
    hop_s = edge_matrix(problem, 1.0 / problem.capacity_gbps)
    slowness = np.maximum(hop_s[problem.src], hop_s[:, problem.dst])
    return used | least_of(detour, EXTRA_RELAYS_IF_LIMITED) | least_of(slowness, EXTRA_RELAYS)


def least_of(value: Floats, count: int) -> Mask:
    """(V,) the `count` regions with the smallest finite values (V,)."""
    chosen = np.zeros(len(value), dtype=bool)
    nearest = np.argsort(value, kind="stable")[:count]
    chosen[nearest[np.isfinite(value[nearest])]] = True
    return chosen


def edge_matrix(problem: PlanProblem, value: Floats) -> Floats:
    """(V, V) of an edge quantity (E,), infinite where there is no edge."""
    matrix = np.full((problem.region_count, problem.region_count), np.inf)
    matrix[problem.tail, problem.head] = value
    return matrix


def shortest_distances(lengths: Floats, start: int) -> Floats:
    """(V,) the length of the shortest path from one region to each; lengths (V, V) >= 0."""
    graph = csgraph_from_dense(lengths, null_value=np.inf)
    distances: Floats = dijkstra(graph, indices=[start])[0]
    return distances
