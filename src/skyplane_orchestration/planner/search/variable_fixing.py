"""Which regions and edges matter, and the proof that the others do not.

All of it rests on the duals of the relaxation: an edge's length is its egress
price plus what its ends' limits are worth, and the relaxed optimum sends everything along
shortest paths of these lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from skyplane_orchestration.planner.constraint_names import REGION_LIMITS
from skyplane_orchestration.planner.problem import Floats, Mask, PlanProblem
from skyplane_orchestration.planner.search.shortest_paths import (
    distances,
    matrix_of,
    worth_of_limits,
)
from skyplane_orchestration.planner.solution import Relaxation

#: Relays beside those that the relaxation uses. Five sufficed on every problem tried; the
#: proof finds out when they do not.
PROMISING = 5
#: The same where the job limits relays.
PROMISING_IF_LIMITED = 12
_USED = 1e-9
_SAME = 1e-9
#: A relay's flow is not limited below this (Gbit/s): smaller coefficients help no solver.
_LEAST_CAP_GBPS = 0.01


def least_instances(problem: PlanProblem) -> Floats:
    """(V,) instances that source and sink need at the goal, whatever the plan: a lower bound.

    No instance of the source sends more than its egress limit, nor more than its
    connections carry on its best edge; the sink likewise.
    """
    least = np.zeros(problem.region_count)
    for region, ends, limit in (
        (problem.src, problem.tail, problem.egress_gbps),
        (problem.dst, problem.head, problem.ingress_gbps),
    ):
        best = problem.gbps_per_connection[ends == region].max(initial=0.0)
        here = problem.option_region == region
        most = np.minimum(limit, best * problem.connection_limit)[here].max(initial=0.0)
        if most > 0:
            least[region] = np.ceil(problem.goal_gbps / most - _SAME)
    return least


def most_promising(problem: PlanProblem, relaxed: Relaxation) -> Mask:
    """(V,) the ends, the regions the relaxation uses, and the relays closest to being used.

    Closeness is the reduced cost of the cheapest path through a relay. Where the job limits
    relays the relaxation, which knows nothing of that, spreads over many and says less:
    then more are taken, and those with the fastest two hops as well.
    """
    used = np.zeros(problem.region_count, dtype=bool)
    flows = relaxed.flow_gbps > _USED
    used[problem.tail[flows]] = used[problem.head[flows]] = True
    used[[problem.src, problem.dst]] = True
    reduced = matrix_of(problem, relaxed.edge_reduced_cost)
    detour = distances(reduced, problem.src) + distances(reduced.T, problem.dst)
    detour[used] = np.inf
    if problem.max_relays is None:
        return used | _least(detour, PROMISING)
    hop_s = matrix_of(problem, 1.0 / problem.capacity_gbps)
    slowness = np.maximum(hop_s[problem.src], hop_s[:, problem.dst])
    return used | _least(detour, PROMISING_IF_LIMITED) | _least(slowness, PROMISING)


def _least(value: Floats, count: int) -> Mask:
    """(V,) the regions with the smallest finite values."""
    chosen = np.zeros(len(value), dtype=bool)
    nearest = np.argsort(value, kind="stable")[:count]
    chosen[nearest[np.isfinite(value[nearest])]] = True
    return chosen


@dataclass(frozen=True, slots=True, eq=False)
class Needed:
    """What a solution may use if it is better than one that is known.

    Attributes:
        problem: the same problem without anything else, and with tighter limits.
        as_asked: the same regions and edges with the limits that the job has.
        regions: (V,) its regions among those of the whole problem.
    """

    problem: PlanProblem
    as_asked: PlanProblem
    regions: Mask


def needed(problem: PlanProblem, relaxed: Relaxation, worst: float) -> Needed:
    """The problem without what no solution with an objective of at most `worst` can use.

    A relay needs a whole instance. Take the duals of unused relays as zero: that keeps the
    dual solution feasible as long as no path gets shorter than the present shortest one.
    Then a solution costs at least the relaxed optimum, plus the price of each instance at
    such an idle relay, plus its flow times how much longer the way through it is. With
    slack = worst - relaxed optimum:

    - an idle relay whose instance costs more than the slack is out, or that no path visits;
    - an edge between two idle relays that together cost more than the slack is out;
    - an idle relay passes on at most (slack - its price) / (detour of a Gbit), and has at
      most slack / price instances.

    Args:
        relaxed: an optimum of the relaxation of this problem, or of one that bounds it.
        worst: a value of the objective that `relaxed` has.
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
    counted = idle[problem.option_region] & (relaxed.instance_price > 0)
    np.divide(slack, relaxed.instance_price, out=count, where=counted)
    kept = problem.with_edges(edges)
    tighter = replace(
        kept,
        egress_gbps=np.minimum(problem.egress_gbps, cap),
        ingress_gbps=np.minimum(problem.ingress_gbps, cap),
        quota=np.minimum(problem.quota, np.maximum(np.floor(count + _SAME), 1.0)),
    )
    return Needed(tighter.with_regions(regions), kept.with_regions(regions), regions)


def path_length(problem: PlanProblem, relaxed: Relaxation) -> float:
    """What one more Gbit/s costs by the duals: the shortest path from source to sink."""
    lengths = matrix_of(problem, relaxed.edge_length)
    return float(distances(lengths, problem.src)[problem.dst])


def _idle_relays(problem: PlanProblem, relaxed: Relaxation) -> tuple[Mask, Floats]:
    """Relays whose duals may be taken as zero, and how much longer the way through each is.

    (V,) and (V,): a Gbit's shortest way through a relay, less the shortest way at all.
    """
    instances = problem.per_region(np.add, relaxed.instances, 0.0)
    idle: Mask = problem.relays & (instances <= _USED)
    shortest = path_length(problem, relaxed)
    while True:
        lengths = _lengths(problem, relaxed, idle)
        ahead = distances(lengths, problem.src)
        if ahead[problem.dst] >= shortest * (1 - _SAME):
            break
        on_path = _shortest_path_regions(problem, lengths, ahead) & idle
        if not on_path.any():
            return np.zeros_like(idle), np.zeros(problem.region_count)
        idle &= ~on_path
    behind = distances(lengths.T, problem.dst)
    return idle, np.maximum(ahead + behind - shortest, 0.0)


def _lengths(problem: PlanProblem, relaxed: Relaxation, idle: Mask) -> Floats:
    """(V, V) what a Gbit over each edge costs, limits of the regions included; idle ones free."""
    price = {name: np.where(idle, relaxed.shadow_price[name], 0.0) for name in REGION_LIMITS}
    free = worth_of_limits(problem, price)
    return matrix_of(problem, np.maximum(relaxed.edge_length - free, 0.0))


def _shortest_path_regions(problem: PlanProblem, matrix: Floats, distance: Floats) -> Mask:
    """(V,) the regions on one shortest path from source to sink."""
    on_path = np.zeros(problem.region_count, dtype=bool)
    region = problem.dst
    while region != problem.src and not on_path[region]:
        on_path[region] = True
        region = int(np.argmin(distance + matrix[:, region]))
    return on_path
