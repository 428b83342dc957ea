"""The model of the paper's section 5 as named blocks of sparse rows.

One function per equation: the docstring is the inequality. Every block is over the same
columns, `Columns`: flow F (E), instances N (V), connections M (E), throughput G (1), whether a
region relays at all Y (V), and a constant 1. Nothing here calls a solver.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import sparse

from skyplane_orchestration.planner.problem import Floats, Ints, Mask, PlanProblem


@dataclass(frozen=True, slots=True)
class Columns:
    """Where each variable stands in the vector of unknowns."""

    edges: int
    regions: int

    @property
    def flow(self) -> slice:
        return slice(0, self.edges)

    @property
    def instances(self) -> slice:
        return slice(self.edges, self.edges + self.regions)

    @property
    def connections(self) -> slice:
        start = self.edges + self.regions
        return slice(start, start + self.edges)

    @property
    def throughput(self) -> int:
        return 2 * self.edges + self.regions

    @property
    def relaying(self) -> slice:
        return slice(self.throughput + 1, self.throughput + 1 + self.regions)

    @property
    def constant(self) -> int:
        """A column fixed at 1: an objective near zero leaves relative gaps without meaning."""
        return self.throughput + 1 + self.regions

    @property
    def count(self) -> int:
        return self.constant + 1


class RowBlock(NamedTuple):
    """Rows lower <= matrix @ x <= upper that share one name."""

    name: str
    matrix: sparse.csr_array
    lower: Floats
    upper: Floats


def columns_of(problem: PlanProblem) -> Columns:
    return Columns(edges=problem.edge_count, regions=problem.region_count)


def _block(
    name: str,
    problem: PlanProblem,
    rows: int,
    entries: Sequence[tuple[Ints, Ints, Floats]],
    lower: float,
    upper: float,
) -> RowBlock:
    """A block from (row, column, value) triples, with one bound for all of its rows."""
    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    matrix = sparse.csr_array((value, (row, column)), shape=(rows, columns_of(problem).count))
    return RowBlock(name, matrix, np.full(rows, lower), np.full(rows, upper))


def _edges(problem: PlanProblem) -> Ints:
    return np.arange(problem.edge_count, dtype=np.int64)


def _regions(problem: PlanProblem) -> Ints:
    return np.arange(problem.region_count, dtype=np.int64)


def _instances(problem: PlanProblem, factor: Floats) -> tuple[Ints, Ints, Floats]:
    """The entries factor_v * N_v, one row per region."""
    regions = _regions(problem)
    return regions, columns_of(problem).instances.start + regions, factor


def _balance_at(problem: PlanProblem, region: int, sign: float) -> tuple[Ints, Ints, Floats]:
    """The entries sign * (outflow - inflow) of one region, in row 0."""
    outward = np.flatnonzero(problem.tail == region)
    inward = np.flatnonzero(problem.head == region)
    column = np.concatenate([outward, inward])
    value = sign * np.concatenate([np.ones(len(outward)), -np.ones(len(inward))])
    return np.zeros_like(column), column, value


def _minus_throughput(problem: PlanProblem) -> tuple[Ints, Ints, Floats]:
    column = np.array([columns_of(problem).throughput])
    return np.zeros(1, dtype=np.int64), column, np.array([-1.0])


def edge_capacity(problem: PlanProblem, counted: Mask) -> RowBlock:
    """F_uv - l_uv / L * M_uv <= 0   (4b), on the counted edges"""
    edge = _edges(problem)[counted]
    row = np.arange(len(edge), dtype=np.int64)
    connections = columns_of(problem).connections.start + edge
    entries = [
        (row, edge, np.ones(len(edge))),
        (row, connections, -problem.gbps_per_connection[counted]),
    ]
    return _block("edge_capacity", problem, len(edge), entries, -np.inf, 0.0)


def source_outflow(problem: PlanProblem) -> RowBlock:
    """sum_v F_sv - sum_v F_vs - G = 0   (4c)"""
    entries = [_balance_at(problem, problem.src, 1.0), _minus_throughput(problem)]
    return _block("source_outflow", problem, 1, entries, 0.0, 0.0)


def sink_inflow(problem: PlanProblem) -> RowBlock:
    """sum_u F_ut - sum_u F_tu - G = 0   (4d)"""
    entries = [_balance_at(problem, problem.dst, -1.0), _minus_throughput(problem)]
    return _block("sink_inflow", problem, 1, entries, 0.0, 0.0)


def flow_conservation(problem: PlanProblem) -> RowBlock:
    """sum_u F_uv - sum_u F_vu = 0 at every relay   (4e)"""
    number = np.cumsum(problem.relays) - 1
    edge = _edges(problem)
    inward, outward = problem.relays[problem.head], problem.relays[problem.tail]
    entries = [
        (number[problem.head[inward]], edge[inward], np.ones(int(inward.sum()))),
        (number[problem.tail[outward]], edge[outward], -np.ones(int(outward.sum()))),
    ]
    return _block("flow_conservation", problem, int(problem.relays.sum()), entries, 0.0, 0.0)


def ingress_limit(problem: PlanProblem) -> RowBlock:
    """sum_u F_uv - ingress_v * N_v <= 0   (4f)"""
    edge = _edges(problem)
    entries = [
        (problem.head, edge, np.ones(len(edge))),
        _instances(problem, -problem.ingress_gbps),
    ]
    return _block("ingress_limit", problem, problem.region_count, entries, -np.inf, 0.0)


def egress_limit(problem: PlanProblem) -> RowBlock:
    """sum_v F_uv - egress_u * N_u <= 0   (4g)"""
    edge = _edges(problem)
    entries = [
        (problem.tail, edge, np.ones(len(edge))),
        _instances(problem, -problem.egress_gbps),
    ]
    return _block("egress_limit", problem, problem.region_count, entries, -np.inf, 0.0)


def _connections_at(
    problem: PlanProblem, ends: Ints, counted: Mask
) -> list[tuple[Ints, Ints, Floats]]:
    """The entries M_uv by region: a column where counted, else L * F_uv / l_uv."""
    edge = _edges(problem)
    column = np.where(counted, columns_of(problem).connections.start + edge, edge)
    value = np.where(counted, 1.0, 1.0 / problem.gbps_per_connection)
    return [(ends, column, value), _instances(problem, -problem.connection_limit)]


def connection_limit_out(problem: PlanProblem, counted: Mask) -> RowBlock:
    """sum_v M_uv - L_u * N_u <= 0   (4h)"""
    entries = _connections_at(problem, problem.tail, counted)
    return _block("connection_limit_out", problem, problem.region_count, entries, -np.inf, 0.0)


def connection_limit_in(problem: PlanProblem, counted: Mask) -> RowBlock:
    """sum_u M_uv - L_v * N_v <= 0   (4i)"""
    entries = _connections_at(problem, problem.head, counted)
    return _block("connection_limit_in", problem, problem.region_count, entries, -np.inf, 0.0)


def relay_switch(problem: PlanProblem) -> RowBlock:
    """N_v - quota_v * Y_v <= 0: a region with instances relays"""
    regions = _regions(problem)
    relaying = columns_of(problem).relaying.start + regions
    entries = [
        _instances(problem, np.ones(problem.region_count)),
        (regions, relaying, -problem.quota),
    ]
    return _block("relay_switch", problem, problem.region_count, entries, -np.inf, 0.0)


def relay_limit(problem: PlanProblem, most: int) -> RowBlock:
    """sum of Y_v over relays <= most"""
    relays = np.flatnonzero(problem.relays)
    column = columns_of(problem).relaying.start + relays
    entries = [(np.zeros_like(relays), column, np.ones(len(relays)))]
    return _block("relay_limit", problem, 1, entries, 0.0, float(most))


def policy_rows(problem: PlanProblem) -> list[RowBlock]:
    """Rows for the most relays that the job allows; none when it does not say."""
    if problem.max_relays is None:
        return []
    return [relay_switch(problem), relay_limit(problem, problem.max_relays)]


def cost_ceiling(problem: PlanProblem, usd_per_gbit: float) -> RowBlock:
    """sum F_uv * price_uv + sum N_v * price_v - usd_per_gbit * G <= 0   (4a as a limit)

    Divided by the price, so that the solver's absolute tolerance is one in Gbit/s.
    """
    cost = cost_per_second(problem)
    cost[columns_of(problem).throughput] = -usd_per_gbit
    if usd_per_gbit > 0:
        cost /= usd_per_gbit
    column = np.flatnonzero(cost)
    entries = [(np.zeros_like(column), column, cost[column])]
    return _block("cost_ceiling", problem, 1, entries, -np.inf, 0.0)


def cost_per_second(problem: PlanProblem) -> Floats:
    """The coefficients of (4a) before the factor VOL / G: USD per second of transfer."""
    columns = columns_of(problem)
    cost = np.zeros(columns.count)
    cost[columns.flow] = problem.usd_per_gbit
    cost[columns.instances] = problem.usd_per_s
    return cost


def model_rows(problem: PlanProblem, counted: Mask) -> list[RowBlock]:
    """The model as the paper states it; (4j) is the upper bound of N.

    `counted` (mask over E) says whose M is a variable. The M of any other edge is real and
    stands as L * F / l, which is all that a real M ever needs to be: none counted is the
    relaxation, all counted the full model.
    """
    return [
        edge_capacity(problem, counted),
        source_outflow(problem),
        sink_inflow(problem),
        flow_conservation(problem),
        ingress_limit(problem),
        egress_limit(problem),
        connection_limit_out(problem, counted),
        connection_limit_in(problem, counted),
    ]
