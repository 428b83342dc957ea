"""The relaxed Pareto frontier, exactly: below it no plan can lie.

With f = F / G and n = N / G every row of the relaxed model is free of G but (4j), which reads
n_v <= quota_v / G. So the least price per Gbit is a linear program whose right-hand side is
linear in 1 / G: a convex, piecewise linear function of 1 / G, or in USD per second
C(G) = G * price(1 / G), convex and piecewise linear in G with the same breakpoints, and C(0) = 0.

They are found as by Eisner and Severance (1976): between two points of C the line through
both is lowered until it touches. It touches in a breakpoint, which divides the work in two,
or not below the line, which then is C itself. K breakpoints take about 2 K small programs.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from skyplane_orchestration.planner.formulation import (
    columns_of,
    cost_per_second,
)
from skyplane_orchestration.planner.problem import Floats, Ints, Mask, PlanProblem
from skyplane_orchestration.planner.solve import FLOW_TOLERANCE, Relaxation, relax
from skyplane_orchestration.units import usd_per_gbit_to_usd_per_gb

#: Relative difference that counts as none: of a cost, a rate, the length of a path.
_SAME: Final = 1e-9
#: Nearer than this (relative) to the largest rate, a breakpoint is not told from it.
_SAME_RATE: Final = 1e-7
#: How the price of an idle region may be spread over its connections (in, out); none of it
#: is the solver's own choice.
_IDLE_SHARES: Final = ((0.0, 0.0), (0.5, 0.5), (1.0, 0.0), (0.0, 1.0))


class Breakpoint(NamedTuple):
    """Where the relaxed frontier changes its slope.

    Attributes:
        edges: (E,) the edges that carry flow there.
    """

    throughput_gbps: float
    usd_per_s: float
    edges: Mask


@dataclass(frozen=True, slots=True, eq=False)
class RelaxedFrontier:
    """The least price at every rate when instances and connections are divisible.

    Attributes:
        breakpoints: in order of their rates; the first is the fastest at the lowest price
            of all, the last is the largest rate. Empty where there is no way through.
    """

    breakpoints: tuple[Breakpoint, ...]

    @property
    def points(self) -> tuple[tuple[float, float], ...]:
        """The breakpoints as (Gbit/s, USD per GB)."""
        return tuple(
            (point.throughput_gbps, _usd_per_gb(point.usd_per_s, point.throughput_gbps))
            for point in self.breakpoints
        )

    @property
    def most_gbps(self) -> float:
        """The largest rate; 0 where there is no way through."""
        return self.breakpoints[-1].throughput_gbps if self.breakpoints else 0.0

    def usd_per_gb_at(self, gbps: float) -> float:
        """The least price at a rate above zero; infinite above the largest rate.

        No plan at this rate or a higher one is cheaper per GB: the price never falls.
        """
        return _usd_per_gb(self.usd_per_s_at(gbps), gbps)

    def usd_per_s_at(self, gbps: float) -> float:
        """C: the least USD per second of transfer at a rate above zero."""
        if gbps > self.most_gbps * (1 + _SAME_RATE):
            return math.inf
        left, right = self._around(gbps)
        if right.throughput_gbps <= left.throughput_gbps:
            return right.usd_per_s
        share = (gbps - left.throughput_gbps) / (right.throughput_gbps - left.throughput_gbps)
        return left.usd_per_s + share * (right.usd_per_s - left.usd_per_s)

    def edges_at(self, gbps: float) -> Mask:
        """(E,) the edges that some relaxed optimum at this rate uses, up to the largest rate.

        Between two breakpoints every mixture of their flows is optimal.
        """
        left, right = self._around(gbps)
        used: Mask = left.edges | right.edges
        return used

    def _around(self, gbps: float) -> tuple[Breakpoint, Breakpoint]:
        """The breakpoints on both sides; the left one of the first is no flow at all."""
        rates = [point.throughput_gbps for point in self.breakpoints]
        place = min(bisect_left(rates, gbps), len(rates) - 1)
        right = self.breakpoints[place]
        nothing = Breakpoint(0.0, 0.0, np.zeros_like(right.edges))
        return (self.breakpoints[place - 1] if place else nothing), right


def relaxed_frontier(problem: PlanProblem) -> RelaxedFrontier:
    """The relaxed frontier over all rates up to the most of interest, whatever the goal.

    A limit on relays is left out, so that with one the frontier is a bound and may not be
    tight. Raises SolverFailed when the solver stops without an answer.
    """
    lines = _Lines(problem.with_goal(0.0, problem.most_gbps))
    last = lines.fastest()
    if last is None:
        return RelaxedFrontier(())
    found = _between(lines, _nothing(problem), last)
    return RelaxedFrontier((*found, last))


def _between(lines: _Lines, left: Breakpoint, right: Breakpoint) -> list[Breakpoint]:
    """The breakpoints strictly between two points of C, in order of their rates."""
    width = right.throughput_gbps - left.throughput_gbps
    if width <= _SAME_RATE * right.throughput_gbps:
        return []
    slope = (right.usd_per_s - left.usd_per_s) / width
    lowest = lines.touch(slope)
    line = left.usd_per_s + slope * (lowest.throughput_gbps - left.throughput_gbps)
    if lowest.usd_per_s >= line - _SAME * right.usd_per_s:
        return []
    return [*_between(lines, left, lowest), lowest, *_between(lines, lowest, right)]


class _Lines:
    """Where a line of a given slope touches C from below: one linear program each.

    The programs are solved on the edges of the ends and those that earlier answers used, and
    then proven for all edges by their duals; only where that fails all edges take part.

    Args:
        problem: with the whole range of rates.
    """

    def __init__(self, problem: PlanProblem) -> None:
        self._problem = problem
        self._taken: Mask = (problem.tail == problem.src) | (problem.head == problem.dst)

    def fastest(self) -> Breakpoint | None:
        """The cheapest of the largest rate; None where nothing gets through."""
        columns = columns_of(self._problem)
        cost = np.zeros(columns.count)
        cost[columns.throughput] = -1.0
        largest = relax(self._problem, cost)
        if largest is None or largest.throughput_gbps <= FLOW_TOLERANCE:
            return None
        self._taken |= largest.flow_gbps > FLOW_TOLERANCE
        rate = largest.throughput_gbps
        # A hair less than the most: at the most itself the solver's tolerance may find none.
        at_most = self._problem.with_goal(rate * (1 - _SAME), rate)
        return self._solve(at_most, cost_per_second(self._problem))

    def touch(self, usd_per_gbit: float) -> Breakpoint:
        """The point of C that a line of this slope touches from below."""
        cost = cost_per_second(self._problem)
        cost[columns_of(self._problem).throughput] = -usd_per_gbit
        lowest = self._solve(self._problem, cost)
        return lowest or _nothing(self._problem)

    def _solve(self, problem: PlanProblem, cost: Floats) -> Breakpoint | None:
        """The optimum over all edges; None if infeasible."""
        columns = columns_of(problem)
        taken = self._taken
        kept = np.ones(columns.count, dtype=bool)
        kept[columns.flow] = kept[columns.connections] = taken
        answer = relax(problem.with_edges(taken), cost[kept])
        if answer is not None and _holds_for_all(problem, taken, cost[columns.flow], answer):
            flow = np.zeros(problem.edge_count)
            flow[taken] = answer.flow_gbps
            return _point(problem, answer, flow)
        answer = relax(problem, cost)
        if answer is None:
            return None
        self._taken = taken | (answer.flow_gbps > FLOW_TOLERANCE)
        return _point(problem, answer, answer.flow_gbps)


def _point(problem: PlanProblem, answer: Relaxation, flow_gbps: Floats) -> Breakpoint:
    usd_per_s = flow_gbps @ problem.usd_per_gbit + answer.instances @ problem.usd_per_s
    return Breakpoint(answer.throughput_gbps, float(usd_per_s), flow_gbps > FLOW_TOLERANCE)


def _nothing(problem: PlanProblem) -> Breakpoint:
    return Breakpoint(0.0, 0.0, np.zeros(problem.edge_count, dtype=bool))


def _holds_for_all(problem: PlanProblem, taken: Mask, price: Floats, answer: Relaxation) -> bool:
    """Whether an optimum over the taken edges is one over all edges.

    It is when prices of the limits exist that are dual feasible, cost the same, and leave no
    path shorter than the shortest taken one (lengths are prices of the limits included). The
    price of a region without instances is free to choose up to what its instance costs, so
    besides the solver's prices some are tried that lie on its connections alone.
    """
    tail, head, regions = problem.tail, problem.head, problem.region_count
    lengths = _lengths(problem, price, answer.region_price)
    own = np.where(taken, lengths, np.inf)
    shortest = _distances(regions, tail, head, own, problem.src)[problem.dst]
    idle = problem.relays & (answer.instances <= _SAME)
    whole = problem.usd_per_s / problem.connection_limit
    for share_in, share_out in _IDLE_SHARES:
        prices = answer.region_price
        if share_in or share_out:
            idle_prices = {"connection_limit_in": share_in, "connection_limit_out": share_out}
            prices = {
                name: np.where(idle, idle_prices.get(name, 0.0) * whole, dual)
                for name, dual in prices.items()
            }
        lengths = _lengths(problem, price, prices)
        if _distances(regions, tail, head, lengths, problem.src)[problem.dst] >= shortest * (
            1 - _SAME
        ):
            return True
    return False


def _lengths(problem: PlanProblem, price: Floats, region_price: Mapping[str, Floats]) -> Floats:
    """(E,) what a Gbit over an edge costs, the limits of its ends included."""
    connections = (
        region_price["connection_limit_out"][problem.tail]
        + region_price["connection_limit_in"][problem.head]
    )
    lengths: Floats = (
        price
        + region_price["egress_limit"][problem.tail]
        + region_price["ingress_limit"][problem.head]
        + connections / problem.gbps_per_connection
    )
    return lengths


def _distances(regions: int, tail: Ints, head: Ints, lengths: Floats, start: int) -> Floats:
    """(V,) the shortest way from one region to each (Bellman-Ford); lengths >= 0."""
    distance = np.full(regions, np.inf)
    distance[start] = 0.0
    for _ in range(regions):
        shorter = distance.copy()
        np.minimum.at(shorter, head, distance[tail] + lengths)
        if np.array_equal(shorter, distance):
            break
        distance = shorter
    return distance


def _usd_per_gb(usd_per_s: float, gbps: float) -> float:
    return usd_per_gbit_to_usd_per_gb(usd_per_s / gbps)
