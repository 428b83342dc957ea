"""The model as programs, and what the solver's answers say of it.

Two questions are asked here. `relax` solves the model with every variable real: M can then
be eliminated, the program is small, and its duals say what each limit is worth.
`solve_integers` solves the model as stated, N and M integer, on few regions.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from skyplane_orchestration.planner.constraint_names import (
    COST_CEILING,
    INSTANCE_QUOTA,
    THROUGHPUT_FLOOR,
    THROUGHPUT_MOST,
)
from skyplane_orchestration.planner.formulation import (
    RowBlock,
    choice_rows,
    columns_of,
    model_rows,
    stacked,
)
from skyplane_orchestration.planner.highs import (
    QUICK,
    QUICKEST,
    Program,
    RealOptimum,
    minimise,
    minimise_within,
)
from skyplane_orchestration.planner.problem import Floats, Mask, PlanProblem
from skyplane_orchestration.planner.solution import Integers, Relaxation

#: Edges that join the relaxation at a time: fewer take more rounds, more make rounds longer.
COLUMNS_AT_ONCE = 800
#: The largest coefficient of a cost vector is scaled to this, because the solver's tolerance
#: on reduced costs (1e-7) is absolute; below _PRICED_OUT they are its noise.
_COST_SCALE = 1000.0
_PRICED_OUT = 1e-6

#: Weight of the total flow against one Gbit/s of throughput: breaks ties towards short
#: paths, and is too small to give up a Gbit/s for fewer hops.
HOP_WEIGHT = 1e-5


# ---------------------------------------------------------------- the model, relaxed


def relax(
    problem: PlanProblem,
    cost: Floats,
    *,
    extra: Sequence[RowBlock] = (),
    instances_at_least: Floats | None = None,
) -> Relaxation | None:
    """Minimise cost @ x over the relaxed model, throughput in [goal, most]; None if infeasible.

    By column generation: few plans use more than one relay, so the program starts with the
    edges of the ends and takes others in only while their reduced cost is negative.

    Args:
        extra: more rows (a cost ceiling, cuts).
        instances_at_least: (K,) lower bounds of N.

    Raises SolverFailed when HiGHS stops without an answer.
    """
    columns = columns_of(problem)
    blocks = [*model_rows(problem, np.zeros(problem.edge_count, dtype=bool)), *extra]
    blocks = [block for block in blocks if len(block.upper)]
    equal = [block for block in blocks if block.lower[0] == block.upper[0]]
    below = [block for block in blocks if block.lower[0] != block.upper[0]]
    lower, upper = _bounds(problem)
    if problem.goal_gbps < min(problem.read_gbps, problem.write_gbps) <= problem.most_gbps:
        upper[columns.throughput] = np.inf  # the store's row says it, and has the shadow price
    if instances_at_least is not None:
        lower[columns.instances] = instances_at_least
    scale = _COST_SCALE / (float(np.abs(cost).max()) or 1.0)
    program = Program(
        cost=cost * scale,
        below=stacked(below),
        most=np.concatenate([block.upper for block in below]),
        equal=stacked(equal),
        exact=np.concatenate([block.upper for block in equal]),
        lower=lower,
        upper=upper,
    )
    answer = _by_column_generation(program, columns.flow, _starting_columns(problem))
    return None if answer is None else _relaxation(problem, program, answer, below, equal, scale)


def _starting_columns(problem: PlanProblem) -> Mask:
    """The columns that are always there, and the edges of the ends; all where there are few."""
    columns = columns_of(problem)
    taken = np.zeros(columns.count, dtype=bool)
    taken[columns.instances] = taken[columns.throughput] = True
    if problem.edge_count <= COLUMNS_AT_ONCE:
        taken[columns.flow] = True
        return taken
    taken[columns.flow] = (problem.tail == problem.src) | (problem.head == problem.dst)
    return taken


def _by_column_generation(program: Program, flow: slice, taken: Mask) -> RealOptimum | None:
    """The optimum over `taken` columns and the flows that join them; reduced costs are all's."""
    while True:
        answer = minimise(program.only(taken))
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
    program: Program,
    answer: RealOptimum,
    below: Sequence[RowBlock],
    equal: Sequence[RowBlock],
    scale: float,
) -> Relaxation:
    """The answer by the model's names, in the unit of the cost before it was scaled."""
    columns = columns_of(problem)
    limits = _split(below, answer.below_price / scale)
    reduced = program.reduced_cost(answer) / scale
    length = (program.cost + program.below.T @ answer.below_price) / scale
    price = program.cost / scale
    for block in below:
        if block.name == COST_CEILING:
            _, column, value = block.entries
            price[column] += limits[block.name][0] * value
    rate = reduced[columns.throughput]
    return Relaxation(
        objective=answer.objective / scale,
        flow_gbps=answer.x[columns.flow],
        instances=answer.x[columns.instances],
        throughput_gbps=float(answer.x[columns.throughput]),
        edge_reduced_cost=np.maximum(reduced[columns.flow], 0.0),
        edge_length=np.maximum(length[columns.flow], 0.0),
        instance_price=price[columns.instances],
        shadow_price={
            **limits,
            **_split(equal, answer.equal_price / scale),
            INSTANCE_QUOTA: np.maximum(-reduced[columns.instances], 0.0),
            THROUGHPUT_FLOOR: np.array([max(rate, 0.0)]),
            THROUGHPUT_MOST: np.array([max(-rate, 0.0)]),
        },
        region_price=limits,
    )


def _split(blocks: Sequence[RowBlock], values: Floats) -> dict[str, Floats]:
    ends = np.cumsum([len(block.upper) for block in blocks])
    parts = np.split(values, ends[:-1])
    return {block.name: part for block, part in zip(blocks, parts, strict=True)}


def _bounds(problem: PlanProblem) -> tuple[Floats, Floats]:
    """Least and most of every column: (4j), and the range of throughput."""
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
    counted: Mask | None = None,
    relative_gap: float = 1e-6,
    time_limit_s: float = 20.0,
) -> Integers | None:
    """Minimise cost @ x over the full model, N and M integer; None if infeasible.

    Args:
        extra: more rows (a cost ceiling, a limit on relays).
        counted: edges whose connections are integer variables; None for all. The others'
            connections are real, so that the answer is a bound and not yet a plan.

    Raises SolverFailed when the limit passes without any solution.
    """
    columns = columns_of(problem)
    if counted is None:
        counted = np.ones(problem.edge_count, dtype=bool)
    blocks = [*model_rows(problem, counted), *choice_rows(problem), *extra]
    matrix = stacked(blocks)
    lower, upper = _bounds(problem)
    whole = np.zeros(columns.count, dtype=bool)
    for part in (columns.instances, columns.connections, columns.relaying, columns.chosen):
        whole[part] = True
    # A column that stands in no row decides nothing, unless it costs: the constant.
    kept = np.flatnonzero((np.diff(matrix.indptr) > 0) | (cost != 0) & (lower == upper))
    least = np.concatenate([block.lower for block in blocks])
    most = np.concatenate([block.upper for block in blocks])
    answer = minimise_within(
        cost[kept],
        ((matrix[:, kept], least, most),),
        (lower[kept], upper[kept]),
        whole[kept],
        relative_gap=relative_gap,
        time_limit_s=time_limit_s,
        options=QUICK if counted.any() else QUICKEST,
    )
    if answer is None:
        return None
    x = np.zeros(columns.count)
    x[kept] = answer.x
    return Integers(
        problem=problem,
        flow_gbps=np.maximum(x[columns.flow], 0.0),
        instances=x[columns.instances],
        connections=x[columns.connections],
        throughput_gbps=float(x[columns.throughput]),
        objective=answer.objective,
        bound=answer.bound,
    )
