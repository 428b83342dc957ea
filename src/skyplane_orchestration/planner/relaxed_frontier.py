"""The relaxed Pareto frontier, exactly: no plan lies below it.

With f = F / G and n = N / G every row of the relaxed model is free of G except (4j), which becomes
n_v <= quota_v / G. So the least price per Gbit is a linear program whose right-hand side is linear
in 1 / G: a convex, piecewise linear function of 1 / G. In USD per second C(G) = G * price(1 / G) is
convex and piecewise linear in G with the same breakpoints, and C(0) = 0.

The breakpoints are found as by Eisner and Severance (1976). The line through two points of C is
lowered until it touches C. It touches either at a breakpoint, which divides the work in two, or
nowhere below the line, which then is C itself. K breakpoints take about 2 K small programs.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from skyplane_orchestration.grids.arrays import Mask
from skyplane_orchestration.planner.formulation import (
    columns_of,
    cost_per_second,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.solution import FLOW_TOLERANCE, Relaxation
from skyplane_orchestration.planner.solve import relax
from skyplane_orchestration.units import usd_per_gbit_to_usd_per_gb

#: Relative differences of costs, rates and lengths that count as none.
_SAME: Final = 1e-9
#: A breakpoint within this share of the largest rate equals it.
_SAME_RATE: Final = 1e-7


class Breakpoint(NamedTuple):
    """A point where the relaxed frontier changes its slope.

    Attributes:
        edges: (E,) the edges that carry flow there.
    """

    throughput_gbps: float
    usd_per_s: float
    edges: Mask


@dataclass(frozen=True, slots=True, eq=False)
class RelaxedFrontier:
    """The least price at every rate when instances and connections are real numbers.

    Attributes:
        breakpoints: by ascending rate. The first is the fastest at the lowest price, the last is
            the largest rate. Empty when no path joins source and sink.
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
        """The largest rate; 0 without a path."""
        return self.breakpoints[-1].throughput_gbps if self.breakpoints else 0.0

    def usd_per_gb_at(self, gbps: float) -> float:
        """The least price at a rate above zero; infinite above the largest rate.

        The price never falls, so it also bounds every higher rate.
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
        """(E,) the edges that some relaxed optimum at this rate uses.

        Between two breakpoints every mixture of their flows is optimal.
        """
        left, right = self._around(gbps)
        used: Mask = left.edges | right.edges
        return used

    def _around(self, gbps: float) -> tuple[Breakpoint, Breakpoint]:
        """The breakpoints on both sides; left of the first one is the origin."""
        rates = [point.throughput_gbps for point in self.breakpoints]
        place = min(bisect_left(rates, gbps), len(rates) - 1)
        right = self.breakpoints[place]
        nothing = Breakpoint(0.0, 0.0, np.zeros_like(right.edges))
        return (self.breakpoints[place - 1] if place else nothing), right


def relaxed_frontier(problem: PlanProblem) -> RelaxedFrontier:
    """The relaxed frontier over all rates up to `most_gbps` of the problem.

    A limit on relays is not part of it. With such a limit the frontier is a bound that may not be
    tight. Raises SolverFailed when the solver ends without a result.
    """
    lines = _TangentSearch(problem.with_goal(0.0, problem.most_gbps))
    last = lines.fastest()
    if last is None:
        return RelaxedFrontier(())
    found = _between(lines, _origin(problem), last)
    return RelaxedFrontier((*found, last))


def _between(lines: _TangentSearch, left: Breakpoint, right: Breakpoint) -> list[Breakpoint]:
    """The breakpoints strictly between two points of C, by ascending rate."""
    width = right.throughput_gbps - left.throughput_gbps
    if width <= _SAME_RATE * right.throughput_gbps:
        return []
    slope = (right.usd_per_s - left.usd_per_s) / width
    lowest = lines.tangent_point(slope)
    line = left.usd_per_s + slope * (lowest.throughput_gbps - left.throughput_gbps)
    if lowest.usd_per_s >= line - _SAME * right.usd_per_s:
        return []
    return [*_between(lines, left, lowest), lowest, *_between(lines, lowest, right)]


class _TangentSearch:
    """Finds where a line of a given slope touches C from below, by one linear program each."""

    def __init__(self, problem: PlanProblem) -> None:
        self._problem = problem

    def fastest(self) -> Breakpoint | None:
        """The cheapest point at the largest rate; None without a path."""
        columns = columns_of(self._problem)
        cost = np.zeros(columns.count)
        cost[columns.throughput] = -1.0
        largest = relax(self._problem, cost)
        if largest is None or largest.throughput_gbps <= FLOW_TOLERANCE:
            return None
        rate = largest.throughput_gbps
        # At the largest rate itself the solver's tolerance may make the program infeasible.
        at_most = self._problem.with_goal(rate * (1 - _SAME), rate)
        cheapest = relax(at_most, cost_per_second(self._problem))
        return None if cheapest is None else _point(self._problem, cheapest)

    def tangent_point(self, usd_per_gbit: float) -> Breakpoint:
        """The point where a line of this slope touches C from below."""
        cost = cost_per_second(self._problem)
        cost[columns_of(self._problem).throughput] = -usd_per_gbit
        lowest = relax(self._problem, cost)
        return _origin(self._problem) if lowest is None else _point(self._problem, lowest)


def _point(problem: PlanProblem, answer: Relaxation) -> Breakpoint:
    usd_per_s = answer.flow_gbps @ problem.usd_per_gbit + answer.instances @ problem.usd_per_s
    return Breakpoint(answer.throughput_gbps, float(usd_per_s), answer.flow_gbps > FLOW_TOLERANCE)


def _origin(problem: PlanProblem) -> Breakpoint:
    return Breakpoint(0.0, 0.0, np.zeros(problem.edge_count, dtype=bool))


def _usd_per_gb(usd_per_s: float, gbps: float) -> float:
    return usd_per_gbit_to_usd_per_gb(usd_per_s / gbps)
