"""The regions of the restricted problem, and reduced-cost fixing with its proof.

Both use the duals of the relaxation. The length of an edge is its egress price plus the shadow
prices of the limits at its ends, and the relaxed optimum uses shortest paths by these lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.planner.constraint_names import REGION_LIMITS
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.shortest_paths import (
    edge_matrix,
    limit_cost,
    shortest_distances,
)
from skyplane_orchestration.planner.solution import Relaxation

#: Relays in addition to those of the relaxation. Five sufficed on every problem tried; the proof
#: shows when they do not.
EXTRA_RELAYS = 5
#: The same when the job limits the number of relays.
EXTRA_RELAYS_IF_LIMITED = 12
_USED = 1e-9
_SAME = 1e-9
#: The smallest flow limit of a relay: smaller coefficients do not help the solver.
_LEAST_CAP_GBPS = 0.01


def least_instances(problem: PlanProblem) -> Floats:
    """(V,) a lower bound on the instances of the source and the destinations at the goal.

    No instance of the source sends more than its egress limit, or more than its connections carry
    on its best edge. The same holds for a destination.
    """
    least = np.zeros(problem.region_count)
    for region, ends, limit in (
        (problem.src, problem.tail, problem.egress_gbps),
        *((end, problem.head, problem.ingress_gbps) for end in problem.destinations),
    ):
        best = problem.gbps_per_connection[ends == region].max(initial=0.0)
        here = problem.option_region == region
        most = np.minimum(limit, best * problem.connection_limit)[here].max(initial=0.0)
        if most > 0:
            least[region] = np.ceil(problem.goal_gbps / most - _SAME)
    return least


def restricted_regions(problem: PlanProblem, relaxed: Relaxation) -> Mask:
    """(V,) the ends, the regions of the relaxation, and the relays of least reduced cost.

    The reduced cost of a relay is that of the cheapest path through it. A limit on relays is not
    part of the relaxation, which then spreads over many relays. So with a limit the mask has more
    relays, and also those with the fastest two hops.
    """
    used = np.zeros(problem.region_count, dtype=bool)
    flows = relaxed.flow_gbps > _USED
    used[problem.tail[flows]] = used[problem.head[flows]] = True
    used[[problem.src, problem.dst]] = True
    reduced = edge_matrix(problem, relaxed.edge_reduced_cost)
    detour = shortest_distances(reduced, problem.src) + shortest_distances(reduced.T, problem.dst)
    detour[used] = np.inf
    if problem.max_relays is None:
        return used | _least(detour, EXTRA_RELAYS)
    hop_s = edge_matrix(problem, 1.0 / problem.capacity_gbps)
    slowness = np.maximum(hop_s[problem.src], hop_s[:, problem.dst])
    return used | _least(detour, EXTRA_RELAYS_IF_LIMITED) | _least(slowness, EXTRA_RELAYS)


def _least(value: Floats, count: int) -> Mask:
    """(V,) the `count` regions with the smallest finite values."""
    chosen = np.zeros(len(value), dtype=bool)
    nearest = np.argsort(value, kind="stable")[:count]
    chosen[nearest[np.isfinite(value[nearest])]] = True
    return chosen


@dataclass(frozen=True, slots=True, eq=False)
class ReducedProblem:
    """The problem after variable fixing.

    Attributes:
        problem: without the fixed regions and edges, and with tighter limits.
        original: the same regions and edges with the limits of the job.
        regions: (V,) the remaining regions, as a mask over the whole problem.
    """

    problem: PlanProblem
    original: PlanProblem
    regions: Mask


def fix_variables(problem: PlanProblem, relaxed: Relaxation, worst: float) -> ReducedProblem:
    """The problem without what no solution with an objective of at most `worst` can use.

    A relay needs at least one instance. Take the duals of unused ("idle") relays as zero. The dual
    solution stays feasible as long as no path becomes shorter than the shortest one. Then a
    solution costs at least the relaxed optimum, plus the price of each instance at an idle relay,
    plus its flow times the extra length of the path through that relay. With slack = worst -
    relaxed optimum:

    - an idle relay whose instance costs more than the slack, or that no path visits, is removed;
    - an edge between two idle relays that together cost more than the slack is removed;
    - an idle relay carries at most (slack - its price) / (extra length per Gbit), and has at most
        slack / price instances.

    Args:
        relaxed: an optimum of the relaxation of this problem, or of one that bounds it.
        worst: the largest objective of interest.
    """
    slack = max(worst - relaxed.objective, 0.0) * (1 + _SAME)
    idle, detour = _idle_relays(problem, relaxed)
    price = problem.per_region(np.minimum, relaxed.instance_price, np.inf)
    fixed = np.where(idle, price, 0.0)
    regions = ~(idle & ((price > slack) | ~np.isfinite(detour)))
    edges = (
        (fixed[problem.tail] + fixed[problem.head] <= slack)
        & regions[problem.tail]
        & regions[problem.head]
    )
    left = np.maximum(slack - fixed, 0.0)
    cap = np.full(problem.region_count, np.inf)
    np.divide(left, detour, out=cap, where=idle & (detour > 0))
    cap = np.maximum(cap, _LEAST_CAP_GBPS)[problem.option_region]
    count = np.full(problem.option_count, np.inf)
    integer_edges = idle[problem.option_region] & (relaxed.instance_price > 0)
    np.divide(slack, relaxed.instance_price, out=count, where=integer_edges)
    kept = problem.with_edges(edges)
    tighter = replace(
        kept,
        egress_gbps=np.minimum(problem.egress_gbps, cap),
        ingress_gbps=np.minimum(problem.ingress_gbps, cap),
        quota=np.minimum(problem.quota, np.maximum(np.floor(count + _SAME), 1.0)),
    )
    return ReducedProblem(tighter.with_regions(regions), kept.with_regions(regions), regions)


def path_length(problem: PlanProblem, relaxed: Relaxation) -> float:
    """The dual cost of one more Gbit/s: the length of the shortest path from source to sink."""
    lengths = edge_matrix(problem, relaxed.edge_length)
    return float(shortest_distances(lengths, problem.src)[problem.dst])


def _idle_relays(problem: PlanProblem, relaxed: Relaxation) -> tuple[Mask, Floats]:
    """(V,) relays whose duals may be taken as zero, and (V,) the extra length through each."""
    instances = problem.per_region(np.add, relaxed.instances, 0.0)
    idle: Mask = problem.relays & (instances <= _USED)
    shortest = path_length(problem, relaxed)
    while True:
        lengths = _lengths(problem, relaxed, idle)
        ahead = shortest_distances(lengths, problem.src)
        if ahead[problem.dst] >= shortest * (1 - _SAME):
            break
        on_path = _shortest_path_regions(problem, lengths, ahead) & idle
        if not on_path.any():
            return np.zeros_like(idle), np.zeros(problem.region_count)
        idle &= ~on_path
    behind = shortest_distances(lengths.T, problem.dst)
    return idle, np.maximum(ahead + behind - shortest, 0.0)


def _lengths(problem: PlanProblem, relaxed: Relaxation, idle: Mask) -> Floats:
    """(V, V) the length of each edge, without the limits of idle relays."""
    price = {name: np.where(idle, relaxed.shadow_price[name], 0.0) for name in REGION_LIMITS}
    free = limit_cost(problem, price)
    return edge_matrix(problem, np.maximum(relaxed.edge_length - free, 0.0))


def _shortest_path_regions(problem: PlanProblem, matrix: Floats, distance: Floats) -> Mask:
    """(V,) the regions on one shortest path from source to sink."""
    on_path = np.zeros(problem.region_count, dtype=bool)
    region = problem.dst
    while region != problem.src and not on_path[region]:
        on_path[region] = True
        region = int(np.argmin(distance + matrix[:, region]))
    return on_path
