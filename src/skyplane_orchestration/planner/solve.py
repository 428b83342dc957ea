"""Solves the model: `relax` with every variable real, `solve_integers` with N and M integer.

`relax` eliminates M, so the program is small, and its duals price each limit. `solve_integers`
solves the full model on few regions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.planner.formulation import (
    RowBlock,
    choice_rows,
    columns_of,
    limit_cost,
    model_rows,
    relay_share,
    stacked,
)
from skyplane_orchestration.planner.highs import (
    _OPTIONS,
    LIMIT_S,
    NO_PRESOLVE,
    LinearProgram,
    solve_integer,
    solve_linear,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.solution import IntegerSolution, Relaxation

#: Edges that join the relaxation at a time: fewer need more rounds, more make rounds longer.
COLUMNS_AT_ONCE = 800
#: The largest coefficient of a cost vector is scaled to this, because the solver's tolerance on
#: reduced costs (1e-7) is absolute. Reduced costs below _PRICED_OUT are noise.
_COST_SCALE = 1000.0
_PRICED_OUT = 1e-6

#: Weight of the total flow against one Gbit/s of throughput. It prefers short paths, and is too
#: small to give up a Gbit/s for fewer hops.
HOP_WEIGHT = 1e-5


# ---------------------------------------------------------------- the model, relaxed


def relax(
    problem: PlanProblem, cost: Floats, *, extra: Sequence[RowBlock] = ()
) -> Relaxation | None:
    """Minimise cost @ x over the relaxed model, throughput in [goal, most]; None if infeasible.

    By column generation: few plans use more than one relay, so the program starts with the edges of
    the ends and adds others only while their reduced cost is negative.

    Args:
        extra: more rows (a cost ceiling, cuts).

    Raises SolverFailed when HiGHS ends without a result.
    """
    if problem.max_relays is not None:
        extra = [*extra, relay_share(problem, problem.max_relays)]
    taken = (problem.tail == problem.src) | (problem.head == problem.dst)
    while True:
        found = _relax_on(problem.with_edges(taken), taken, cost, extra)
        if found is None and taken.all():
            return None
        if found is None:
            taken = np.ones_like(taken)
            continue
        reduced = _reduced_cost(problem, cost, extra, found)
        scale = _COST_SCALE / (float(np.abs(cost).max()) or 1.0)
        wanted = np.flatnonzero((reduced * scale < -_PRICED_OUT) & ~taken)
        if not len(wanted):
            flow = np.zeros(problem.edge_count)
            flow[taken] = found.flow_gbps
            return replace(found, flow_gbps=flow, edge_reduced_cost=np.maximum(reduced, 0.0))
        most_wanted = np.argsort(reduced[wanted], kind="stable")[:COLUMNS_AT_ONCE]
        taken[wanted[most_wanted]] = True


def _relax_on(
    part: PlanProblem, taken: Mask, cost: Floats, extra: Sequence[RowBlock]
) -> Relaxation | None:
    """The optimum over the edges taken (mask over E), `part` of the problem.

    Cost and rows are those of all edges; so are the prices of the nodes and limits.
    """
    columns = columns_of(part)
    others = np.ones(columns_of(part).count - 2 * part.edge_count, dtype=bool)
    kinds = np.split(others, [part.option_count])
    kept = np.concatenate([taken, kinds[0], taken, kinds[1]])
    place = np.cumsum(kept) - 1
    blocks = model_rows(part, np.zeros(part.edge_count, dtype=bool))
    for block in extra:
        row, column, value = block.entries
        inside = kept[column]
        entries = row[inside], place[column[inside]], value[inside]
        blocks.append(replace(block, entries=entries, columns=columns.count))
    lower, upper = _bounds(part)
    if part.goal_gbps < min(part.read_gbps, part.write_gbps) <= part.most_gbps:
        upper[columns.throughput] = np.inf  # the store's row has the limit and its shadow price
    scale = _COST_SCALE / (float(np.abs(cost).max()) or 1.0)
    present = np.zeros(columns.count, dtype=bool)
    present[columns.flow] = present[columns.instances] = present[columns.throughput] = True
    program = _program(cost[kept] * scale, blocks, (lower, upper)).only(present)
    answer = solve_linear(program)
    if answer is None:
        return None
    flow, instances, throughput = np.split(answer.x, [part.edge_count, len(answer.x) - 1])
    below, _ = _by_kind(blocks)
    ends = np.cumsum([len(block.upper) for block in below])
    prices = np.split(answer.below_price / scale, ends[:-1])
    return Relaxation(
        objective=answer.objective / scale,
        flow_gbps=flow,
        instances=instances,
        throughput_gbps=float(throughput[0]),
        edge_reduced_cost=np.zeros(part.edge_count),
        region_price=answer.equal_price / scale,
        limit_price={block.name: price for block, price in zip(below, prices, strict=True)},
    )


def _reduced_cost(
    problem: PlanProblem, cost: Floats, extra: Sequence[RowBlock], found: Relaxation
) -> Floats:
    """(E,) increase of the objective per Gbit/s forced onto an edge, at the prices of an optimum
    over fewer edges.
    """
    price = found.region_price
    reduced: Floats = (
        cost[columns_of(problem).flow]
        - (price[problem.tail] - price[problem.head])
        + limit_cost(problem, found.limit_price)
    )
    for block in extra:
        row, column, value = block.entries
        on_edges = column < problem.edge_count
        used = value[on_edges] * found.limit_price[block.name][row[on_edges]]
        reduced += np.bincount(column[on_edges], weights=used, minlength=problem.edge_count)
    return reduced


def _by_kind(blocks: Sequence[RowBlock]) -> tuple[list[RowBlock], list[RowBlock]]:
    """The inequalities and the equations, in order; a block without rows is neither."""
    equal = [block for block in blocks if len(block.upper) and block.lower[0] == block.upper[0]]
    below = [block for block in blocks if len(block.upper) and block.lower[0] != block.upper[0]]
    return below, equal


def _program(
    cost: Floats, blocks: Sequence[RowBlock], bounds: tuple[Floats, Floats]
) -> LinearProgram:
    below, equal = _by_kind(blocks)
    most = np.concatenate([block.upper for block in below])
    exact = np.concatenate([block.upper for block in equal])
    return LinearProgram(cost, stacked(below), most, stacked(equal), exact, *bounds)


def _bounds(problem: PlanProblem) -> tuple[Floats, Floats]:
    """Lower and upper bounds of every column: (4j), and the range of throughput."""
    columns = columns_of(problem)
    lower = np.zeros(columns.count)
    upper = np.full(columns.count, np.inf)
    upper[columns.instances] = problem.quota
    lower[columns.throughput], upper[columns.throughput] = problem.goal_gbps, problem.most_gbps
    upper[columns.relaying] = upper[columns.chosen] = 1.0
    lower[columns.constant] = upper[columns.constant] = 1.0
    return lower, upper


# ---------------------------------------------------------------- the model as stated


def solve_integers(
    problem: PlanProblem,
    cost: Floats,
    *,
    extra: Sequence[RowBlock] = (),
    integer_edges: Mask | None = None,
    relative_gap: float = 1e-6,
    node_limit: int | None = None,
    time_limit_s: float = LIMIT_S,
) -> IntegerSolution | None:
    """Minimise cost @ x over the full model, N and M integer; None if infeasible.

    Args:
        extra: more rows (a cost ceiling, a limit on relays).
        integer_edges: edges whose connections are integer variables; None for all. The connections
            of other edges are real, so that the result is a bound and not a plan.
        node_limit: see `solve_integer`.

    Raises SolverFailed when the time limit passes, and when no solution is known at the limit on
    nodes.
    """
    columns = columns_of(problem)
    if integer_edges is None:
        integer_edges = np.ones(problem.edge_count, dtype=bool)
    blocks = [*model_rows(problem, integer_edges), *choice_rows(problem), *extra]
    lower, upper = _bounds(problem)
    program = _program(cost, blocks, (lower, upper))
    whole = np.zeros(columns.count, dtype=bool)
    for part in (columns.instances, columns.connections, columns.relaying, columns.chosen):
        whole[part] = True
    # Columns without a row have no effect, except the constant, which has a cost.
    entries = np.diff(program.below.indptr) + np.diff(program.equal.indptr)
    kept = (entries > 0) | (cost != 0) & (lower == upper)
    answer = solve_integer(
        program.only(kept),
        whole[kept],
        relative_gap=relative_gap,
        node_limit=node_limit,
        time_limit_s=time_limit_s,
        options=_OPTIONS if integer_edges.any() else NO_PRESOLVE,
    )
    if answer is None:
        return None
    x = np.zeros(columns.count)
    x[kept] = answer.x
    return IntegerSolution(
        problem=problem,
        flow_gbps=np.maximum(x[columns.flow], 0.0),
        instances=x[columns.instances],
        connections=x[columns.connections],
        throughput_gbps=float(x[columns.throughput]),
        objective=answer.objective,
        bound=answer.bound,
    )
