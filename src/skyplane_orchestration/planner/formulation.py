"""The model of the paper's section 5 as named blocks of sparse rows.

One function per equation: its docstring is the inequality and its number. All blocks have the same
columns (`Columns`): flow F (E), instances N (K), connections M (E), throughput G (1), whether a
region relays Y (V), whether an option is the region's type Z (K), and a constant 1. V regions, E
edges, K options; an option is one instance type in one region. Nothing here calls the solver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from skyplane_orchestration.grids.arrays import Floats, Ints, Mask
from skyplane_orchestration.planner.constraint_names import (
    CONNECTION_LIMIT_IN,
    CONNECTION_LIMIT_OUT,
    COST_CEILING,
    EGRESS_LIMIT,
    INGRESS_LIMIT,
    STORAGE_READ,
    STORAGE_WRITE,
)
from skyplane_orchestration.planner.problem import PlanProblem

#: Rows, columns and values of the entries of a block.
Entries = tuple[Ints, Ints, Floats]


@dataclass(frozen=True, slots=True)
class Columns:
    """The position of each variable in the vector of unknowns.

    `constant` is fixed at 1, so that the objective is not near zero, where relative gaps mean
    nothing.
    """

    flow: slice
    instances: slice
    connections: slice
    throughput: int
    relaying: slice
    chosen: slice
    constant: int

    @property
    def count(self) -> int:
        return self.constant + 1


@dataclass(frozen=True, slots=True, eq=False)
class RowBlock:
    """Rows lower <= matrix @ x <= upper with one name; entries are (row, column, value)."""

    name: str
    entries: Entries
    lower: Floats
    upper: Floats
    columns: int


def columns_of(problem: PlanProblem) -> Columns:
    edges, regions, options = problem.edge_count, problem.region_count, problem.option_count
    instances, connections, throughput = edges, edges + options, 2 * edges + options
    relaying, chosen = throughput + 1, throughput + 1 + regions
    constant = chosen + options
    return Columns(
        flow=slice(0, instances),
        instances=slice(instances, connections),
        connections=slice(connections, throughput),
        throughput=throughput,
        relaying=slice(relaying, chosen),
        chosen=slice(chosen, constant),
        constant=constant,
    )


def stacked(blocks: Sequence[RowBlock]) -> sparse.csc_array:
    """All rows of the blocks, in order, as one matrix."""
    starts = np.cumsum([0, *(len(block.upper) for block in blocks)])
    row = np.concatenate(
        [block.entries[0] + start for block, start in zip(blocks, starts[:-1], strict=True)]
    )
    column = np.concatenate([block.entries[1] for block in blocks])
    value = np.concatenate([block.entries[2] for block in blocks])
    return sparse.csc_array((value, (row, column)), shape=(int(starts[-1]), blocks[0].columns))


def _block(
    name: str,
    problem: PlanProblem,
    rows: int,
    entries: Sequence[Entries],
    lower: float,
    upper: float,
) -> RowBlock:
    """A block from (row, column, value) triples, with the same bounds for all rows."""
    row, column, value = (np.concatenate(part) for part in zip(*entries, strict=True))
    columns = columns_of(problem).count
    return RowBlock(name, (row, column, value), np.full(rows, lower), np.full(rows, upper), columns)


def _numbers(count: int) -> Ints:
    return np.arange(count, dtype=np.int64)


def _instances(problem: PlanProblem, factor: Floats) -> Entries:
    """The entries sum_k factor_k * N_k, one row per region, over its options k."""
    return (
        problem.option_region,
        columns_of(problem).instances.start + _numbers(problem.option_count),
        factor,
    )


# ---------------------------------------------------------------- the paper's equations


def edge_capacity(problem: PlanProblem, integer_edges: Mask) -> RowBlock:
    """F_uv - l_uv / L * M_uv <= 0   (4b), on edges with integer M"""
    edge = _numbers(problem.edge_count)[integer_edges]
    row = _numbers(len(edge))
    connections = columns_of(problem).connections.start + edge
    entries = [
        (row, edge, np.ones(len(edge))),
        (row, connections, -problem.gbps_per_connection[integer_edges]),
    ]
    return _block("edge_capacity", problem, len(edge), entries, -np.inf, 0.0)


def flow_balance(problem: PlanProblem) -> RowBlock:
    """sum_v F_uv - sum_v F_vu = G at the source (4c), -G at the sink (4d), 0 at a relay (4e)"""
    edge = _numbers(problem.edge_count)
    ends = np.array([problem.src, problem.dst])
    throughput = np.full(2, columns_of(problem).throughput)
    entries = [
        (problem.tail, edge, np.ones(len(edge))),
        (problem.head, edge, -np.ones(len(edge))),
        (ends, throughput, np.array([-1.0, 1.0])),
    ]
    return _block("flow_balance", problem, problem.region_count, entries, 0.0, 0.0)


def ingress_limit(problem: PlanProblem) -> RowBlock:
    """sum_u F_uv - ingress_v * N_v <= 0   (4f)"""
    return _rate_limit(INGRESS_LIMIT, problem, problem.head, problem.ingress_gbps)


def egress_limit(problem: PlanProblem) -> RowBlock:
    """sum_v F_uv - egress_u * N_u <= 0   (4g)"""
    return _rate_limit(EGRESS_LIMIT, problem, problem.tail, problem.egress_gbps)


def _rate_limit(name: str, problem: PlanProblem, ends: Ints, gbps: Floats) -> RowBlock:
    """The flow over all edges with these ends, by region, is at most what the instances carry."""
    edge = _numbers(problem.edge_count)
    entries = [(ends, edge, np.ones(len(edge))), _instances(problem, -gbps)]
    return _block(name, problem, problem.region_count, entries, -np.inf, 0.0)


def _connections_at(problem: PlanProblem, ends: Ints, integer_edges: Mask) -> list[Entries]:
    """The entries M_uv by region: a column on integer edges, else L * F_uv / l_uv."""
    edge = _numbers(problem.edge_count)
    column = np.where(integer_edges, columns_of(problem).connections.start + edge, edge)
    value = np.where(integer_edges, 1.0, 1.0 / problem.gbps_per_connection)
    return [(ends, column, value), _instances(problem, -problem.connection_limit)]


def connection_limit_out(problem: PlanProblem, integer_edges: Mask) -> RowBlock:
    """sum_v M_uv - L_u * N_u <= 0   (4h)"""
    entries = _connections_at(problem, problem.tail, integer_edges)
    return _block(CONNECTION_LIMIT_OUT, problem, problem.region_count, entries, -np.inf, 0.0)


def connection_limit_in(problem: PlanProblem, integer_edges: Mask) -> RowBlock:
    """sum_u M_uv - L_v * N_v <= 0   (4i)"""
    entries = _connections_at(problem, problem.head, integer_edges)
    return _block(CONNECTION_LIMIT_IN, problem, problem.region_count, entries, -np.inf, 0.0)


def cost_per_second(problem: PlanProblem) -> Floats:
    """The coefficients of (4a) before the factor VOL / G: USD per second of transfer."""
    columns = columns_of(problem)
    cost = np.zeros(columns.count)
    cost[columns.flow] = problem.usd_per_gbit
    cost[columns.instances] = problem.usd_per_s
    return cost


# ---------------------------------------------------------------- beyond the paper


def cost_ceiling(problem: PlanProblem, usd_per_gbit: float, spare_gbps: float = 0.0) -> RowBlock:
    """sum F_uv * price_uv + sum N_v * price_v - usd_per_gbit * G <= 0   (4a as a limit)

    Divided by the price, so that the solver's absolute tolerance is in Gbit/s. A solution that must
    keep the ceiling in fact leaves more slack than that tolerance.
    """
    cost = cost_per_second(problem)
    cost[columns_of(problem).throughput] = -usd_per_gbit
    scaled = cost / usd_per_gbit if usd_per_gbit > 0 else cost
    return inequality_row(COST_CEILING, scaled, -spare_gbps)


def inequality_row(name: str, coefficients: Floats, most: float) -> RowBlock:
    """coefficients @ x <= most"""
    column = np.flatnonzero(coefficients)
    entries = (np.zeros_like(column), column, coefficients[column])
    return RowBlock(name, entries, np.array([-np.inf]), np.array([most]), len(coefficients))


def relay_switch(problem: PlanProblem) -> RowBlock:
    """sum_k N_k / quota_k - Y_v <= 0: a region with instances relays"""
    relaying = columns_of(problem).relaying.start + _numbers(problem.region_count)
    entries = [
        _instances(problem, 1.0 / np.maximum(problem.quota, 1.0)),
        (_numbers(problem.region_count), relaying, -np.ones(problem.region_count)),
    ]
    return _block("relay_switch", problem, problem.region_count, entries, -np.inf, 0.0)


def relay_limit(problem: PlanProblem, most: int) -> RowBlock:
    """sum of Y_v over relays <= most"""
    relays = np.flatnonzero(problem.relays)
    column = columns_of(problem).relaying.start + relays
    entries = [(np.zeros_like(relays), column, np.ones(len(relays)))]
    return _block("relay_limit", problem, 1, entries, 0.0, float(most))


def relay_share(problem: PlanProblem, most: int) -> RowBlock:
    """sum over relays v of sum_u F_uv / most_v <= most: relaxed `relay_switch` and `relay_limit`

    `most_v` is what all instances of v forward, but no more than the largest throughput.
    """
    regions = problem.region_count
    forwards = np.zeros((3, regions))
    each = problem.gbps_per_connection
    for row, ends in ((1, problem.head), (2, problem.tail)):
        np.maximum.at(forwards[row], ends, each)
    options = problem.option_region
    limits = np.minimum(problem.ingress_gbps, problem.egress_gbps)
    best = problem.connection_limit * np.minimum(forwards[1], forwards[2])[options]
    np.maximum.at(forwards[0], options, problem.quota * np.minimum(limits, best))
    most_gbps = np.minimum(forwards[0], problem.most_gbps)
    edge = np.flatnonzero(problem.relays[problem.head] & (most_gbps[problem.head] > 0))
    coefficients = np.zeros(columns_of(problem).count)
    coefficients[edge] = 1.0 / most_gbps[problem.head[edge]]
    return inequality_row("relay_share", coefficients, float(most))


def type_switch(problem: PlanProblem) -> RowBlock:
    """N_k - quota_k * Z_k <= 0 where a region has several options"""
    option = np.flatnonzero(problem.is_choice)
    row = _numbers(len(option))
    columns = columns_of(problem)
    entries = [
        (row, columns.instances.start + option, np.ones(len(option))),
        (row, columns.chosen.start + option, -problem.quota[option]),
    ]
    return _block("type_switch", problem, len(option), entries, -np.inf, 0.0)


def one_type(problem: PlanProblem) -> RowBlock:
    """sum_k Z_k <= 1 where a region has several options: one instance type per region"""
    option = np.flatnonzero(problem.is_choice)
    regions, row = np.unique(problem.option_region[option], return_inverse=True)
    entries = [(row, columns_of(problem).chosen.start + option, np.ones(len(option)))]
    return _block("one_type", problem, len(regions), entries, -np.inf, 1.0)


def type_share(problem: PlanProblem) -> RowBlock:
    """sum_k N_k / quota_k <= 1 where a region has several options: relaxed `type_switch`"""
    option = np.flatnonzero(problem.is_choice)
    regions, row = np.unique(problem.option_region[option], return_inverse=True)
    column = columns_of(problem).instances.start + option
    entries = [(row, column, 1.0 / np.maximum(problem.quota[option], 1.0))]
    return _block("type_share", problem, len(regions), entries, -np.inf, 1.0)


def storage_limit(name: str, problem: PlanProblem, most_gbps: float) -> RowBlock:
    """G <= limit of the store at an end"""
    throughput = np.zeros(columns_of(problem).count)
    throughput[columns_of(problem).throughput] = 1.0
    return inequality_row(name, throughput, most_gbps)


def limit_cost(problem: PlanProblem, price: Mapping[str, Floats]) -> Floats:
    """(E,) the shadow cost of the limits that a Gbit over each edge uses.

    Args:
        price: name of each of `REGION_LIMITS` -> (V,) shadow price of one unit.
    """
    connections = (
        price[CONNECTION_LIMIT_OUT][problem.tail] + price[CONNECTION_LIMIT_IN][problem.head]
    )
    cost: Floats = (
        price[EGRESS_LIMIT][problem.tail]
        + price[INGRESS_LIMIT][problem.head]
        + connections / problem.gbps_per_connection
    )
    return cost


# ---------------------------------------------------------------- the whole


def model_rows(problem: PlanProblem, integer_edges: Mask) -> list[RowBlock]:
    """The paper's model, with the stores of the ends; (4j) is the upper bound of N.

    M is a variable on `integer_edges` (mask over E). On other edges M is real and eliminated as L *
    F / l. With no integer edges this is the relaxation, with all of them the full model.
    """
    rows = [
        edge_capacity(problem, integer_edges),
        flow_balance(problem),
        ingress_limit(problem),
        egress_limit(problem),
        connection_limit_out(problem, integer_edges),
        connection_limit_in(problem, integer_edges),
    ]
    if problem.is_choice.any():
        rows.append(type_share(problem))
    for name, most_gbps in ((STORAGE_READ, problem.read_gbps), (STORAGE_WRITE, problem.write_gbps)):
        if np.isfinite(most_gbps):
            rows.append(storage_limit(name, problem, most_gbps))
    return rows


def choice_rows(problem: PlanProblem) -> list[RowBlock]:
    """Rows for one type per region, where N is integer; none without a choice."""
    return [type_switch(problem), one_type(problem)] if problem.is_choice.any() else []


def policy_rows(problem: PlanProblem) -> list[RowBlock]:
    """Rows for the job's limit on relays; none without a limit."""
    if problem.max_relays is None:
        return []
    return [relay_switch(problem), relay_limit(problem, problem.max_relays)]
