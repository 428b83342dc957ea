"""Solves the model: `relax` with every variable real, `solve_integers` with N and M integer.

`relax` eliminates M, so the program is small, and its duals price each limit. `solve_integers`
solves the full model on few regions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.planner.formulation import (
    RowBlock,
    choice_rows,
    columns_of,
    model_rows,
    stacked,
)
from skyplane_orchestration.planner.highs import (
    _OPTIONS,
    LIMIT_S,
    NO_PRESOLVE,
    LinearOptimum,
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
    columns = columns_of(problem)
    blocks = [*model_rows(problem, np.zeros(problem.edge_count, dtype=bool)), *extra]
    lower, upper = _bounds(problem)
    if problem.goal_gbps < min(problem.read_gbps, problem.write_gbps) <= problem.most_gbps:
        upper[columns.throughput] = np.inf  # the store's row has the limit and its shadow price
    scale = _COST_SCALE / (float(np.abs(cost).max()) or 1.0)
    program = _program(cost * scale, blocks, (lower, upper))
    answer = _by_column_generation(program, columns.flow, _starting_columns(problem))
    return None if answer is None else _relaxation(problem, program, answer, blocks, scale)


def _by_kind(blocks: Sequence[RowBlock]) -> tuple[list[RowBlock], list[RowBlock]]:
    """The inequalities and the equations, in order; a block without rows is neither."""
    equal = [block for block in blocks if len(block.upper) and block.lower[0] == block.upper[0]]
    below = [block for block in blocks if len(block.upper) and block.lower[0] != block.upper[0]]
    return below, equal


def _program(
    cost: Floats, blocks: Sequence[RowBlock], bounds: tuple[Floats, Floats]
) -> LinearProgram:
    """The program with the rows of all blocks."""
    below, equal = _by_kind(blocks)
    most = np.concatenate([block.upper for block in below])
    exact = np.concatenate([block.upper for block in equal])
    return LinearProgram(cost, stacked(below), most, stacked(equal), exact, *bounds)


def _starting_columns(problem: PlanProblem) -> Mask:
    """The columns that are always present, and the edges of the ends."""
    columns = columns_of(problem)
    taken = np.zeros(columns.count, dtype=bool)
    taken[columns.instances] = taken[columns.throughput] = True
    taken[columns.flow] = (problem.tail == problem.src) | (problem.head == problem.dst)
    return taken


def _by_column_generation(program: LinearProgram, flow: slice, taken: Mask) -> LinearOptimum | None:
    """The optimum over all columns; flows outside of `taken` join while their reduced cost is
    negative.
    """
    while True:
        answer = solve_linear(program.only(taken))
        if answer is None and taken[flow].all():
            return None
        if answer is None:
            taken[flow] = True
            continue
        reduced = program.reduced_cost(answer)
        wanted = np.flatnonzero((reduced[flow] < -_PRICED_OUT) & ~taken[flow])
        if not len(wanted):
            x = np.zeros(len(taken))
            x[taken] = answer.x
            return answer._replace(x=x)
        most_wanted = np.argsort(reduced[flow][wanted], kind="stable")[:COLUMNS_AT_ONCE]
        taken[flow.start + wanted[most_wanted]] = True


def _relaxation(
    problem: PlanProblem,
    program: LinearProgram,
    answer: LinearOptimum,
    blocks: Sequence[RowBlock],
    scale: float,
) -> Relaxation:
    """The optimum by the model's names, in the unit of the cost before scaling."""
    columns = columns_of(problem)
    below, _ = _by_kind(blocks)
    ends = np.cumsum([len(block.upper) for block in below])
    prices = np.split(answer.below_price / scale, ends[:-1])
    reduced = program.reduced_cost(answer) / scale
    return Relaxation(
        objective=answer.objective / scale,
        flow_gbps=answer.x[columns.flow],
        instances=answer.x[columns.instances],
        throughput_gbps=float(answer.x[columns.throughput]),
        edge_reduced_cost=np.maximum(reduced[columns.flow], 0.0),
        limit_price={block.name: price for block, price in zip(below, prices, strict=True)},
    )


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
