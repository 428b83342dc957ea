"""Which regions matter, and the proof that the others do not.

All of it rests on the duals of the relaxation: an edge's length is its egress
price plus what its ends' limits are worth, and the relaxed optimum sends everything along
shortest paths of these lengths.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.planner.formulation import (
    columns_of,
    cost_ceiling,
    cost_per_second,
    policy_rows,
)
from skyplane_orchestration.planner.problem import Floats, Mask, PlanProblem
from skyplane_orchestration.planner.solve import Relaxation, solve_integers

#: Relays beside those that the relaxation uses. Five sufficed on every problem tried; the
#: proof finds out when they do not.
PROMISING = 5
#: The same where the job limits relays.
PROMISING_IF_LIMITED = 12
#: With more regions than this left, a proof takes seconds and is not tried.
PROVABLE_REGIONS = 70
_USED = 1e-9
_SAME = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Proof:
    """What a proof run found.

    Attributes:
        holds: True when no plan whatever is cheaper than the price that was asked about.
        missing: (V,) regions outside of the chosen ones that a cheaper plan may need.
    """

    holds: bool
    missing: Mask


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
        most = min(limit[region], best * problem.connection_limit[region])
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
    reduced = _matrix(problem, relaxed.edge_reduced_cost)
    detour = _distances(reduced, problem.src) + _distances(reduced.T, problem.dst)
    detour[used] = np.inf
    if problem.max_relays is None:
        return used | _least(detour, PROMISING)
    hop_s = _matrix(problem, 1.0 / problem.capacity_gbps)
    slowness = np.maximum(hop_s[problem.src], hop_s[:, problem.dst])
    return used | _least(detour, PROMISING_IF_LIMITED) | _least(slowness, PROMISING)


def _least(value: Floats, count: int) -> Mask:
    """(V,) the regions with the smallest finite values."""
    chosen = np.zeros(len(value), dtype=bool)
    nearest = np.argsort(value, kind="stable")[:count]
    chosen[nearest[np.isfinite(value[nearest])]] = True
    return chosen


def useless_regions(problem: PlanProblem, relaxed: Relaxation, slack: float) -> Mask:
    """(V,) relays that no solution with objective <= relaxed.objective + slack can use.

    A relay needs at least one instance. Setting the duals of unused regions to zero keeps
    the dual solution feasible as long as no path gets shorter than the present shortest
    one; then each of them adds its whole instance price to the bound.
    """
    idle = problem.relays & (relaxed.instances <= _USED)
    nothing = np.zeros_like(idle)
    shortest = _distances(_lengths(problem, relaxed, nothing), problem.src)[problem.dst]
    while True:
        lengths = _lengths(problem, relaxed, idle)
        distance = _distances(lengths, problem.src)
        if distance[problem.dst] >= shortest * (1 - _SAME):
            break
        on_path = _shortest_path_regions(problem, lengths, distance) & idle
        if not on_path.any():
            return nothing
        idle &= ~on_path
    useless: Mask = idle & (problem.usd_per_s > slack)
    return useless


def prove(
    problem: PlanProblem,
    relaxed: Relaxation,
    usd_per_gbit: float,
    keep: Mask,
    *,
    time_limit_s: float,
) -> Proof | None:
    """Whether any plan costs less than `usd_per_gbit`; None when it cannot be told in time.

    Solves the model in which M is integer on edges between kept regions and real on all
    others, under the price as a ceiling: infeasible means that no plan is cheaper.

    Args:
        relaxed: the relaxation at the goal, its objective in USD per second.
    """
    slack = usd_per_gbit * problem.goal_gbps - relaxed.objective
    # A plan at a higher rate spreads a relay's one instance over more Gbit.
    slack *= problem.most_gbps / problem.goal_gbps
    inside = keep | ~useless_regions(problem, relaxed, slack)
    if inside.sum() > PROVABLE_REGIONS:
        return None
    smaller = problem.with_regions(inside)
    kept = keep[inside]
    cost = usd_per_gbit * problem.goal_gbps
    try:
        cheaper = solve_integers(
            smaller,
            margin_of(smaller, usd_per_gbit) / cost,
            extra=[cost_ceiling(smaller, usd_per_gbit), *policy_rows(smaller)],
            counted=kept[smaller.tail] & kept[smaller.head],
            relative_gap=0.1,
            time_limit_s=time_limit_s,
        )
    except SolverFailed:
        return None
    missing = np.zeros(problem.region_count, dtype=bool)
    if cheaper is not None:
        missing[np.flatnonzero(inside)[cheaper.used_regions]] = True
    return Proof(holds=cheaper is None, missing=missing & ~keep)


def margin_of(problem: PlanProblem, usd_per_gbit: float) -> Floats:
    """Coefficients of cost - price * G, USD per second: negative for a cheaper plan."""
    margin = cost_per_second(problem)
    margin[columns_of(problem).throughput] = -usd_per_gbit
    return margin


def _lengths(problem: PlanProblem, relaxed: Relaxation, idle: Mask) -> Floats:
    """(V, V) price of a Gbit over each edge, limits of the regions included; idle ones free."""
    price = {name: np.where(idle, 0.0, dual) for name, dual in relaxed.region_price.items()}
    per_connection = (
        price["connection_limit_out"][problem.tail] + price["connection_limit_in"][problem.head]
    )
    lengths: Floats = (
        problem.usd_per_gbit
        + price["egress_limit"][problem.tail]
        + price["ingress_limit"][problem.head]
        + per_connection / problem.gbps_per_connection
    )
    return _matrix(problem, lengths)


def _matrix(problem: PlanProblem, value: Floats) -> Floats:
    """(V, V) of an edge quantity, infinite where there is no edge."""
    matrix = np.full((problem.region_count, problem.region_count), np.inf)
    matrix[problem.tail, problem.head] = value
    return matrix


def _distances(matrix: Floats, start: int) -> Floats:
    """(V,) shortest distance from one region (Bellman-Ford; a path has at most V - 1 hops)."""
    distance = np.full(len(matrix), np.inf)
    distance[start] = 0.0
    for _ in range(len(matrix)):
        shorter = np.minimum(distance, (distance[:, None] + matrix).min(axis=0))
        if np.array_equal(shorter, distance):
            break
        distance = shorter
    return distance


def _shortest_path_regions(problem: PlanProblem, matrix: Floats, distance: Floats) -> Mask:
    """(V,) the regions on one shortest path from source to sink."""
    on_path = np.zeros(problem.region_count, dtype=bool)
    region = problem.dst
    while region != problem.src and not on_path[region]:
        on_path[region] = True
        region = int(np.argmin(distance + matrix[:, region]))
    return on_path
