"""The only file that calls a solver: HiGHS, through scipy.

Two questions are asked here. `relax` solves the model with every variable real: M can then
be eliminated, the program is small, and its duals say what each limit is worth.
`solve_integers` solves the model as stated, N and M integer, on few regions. `minimise` and
`minimise_whole` do the same for programs of any kind.
A status becomes an answer, None (infeasible) or a typed error; it never leaks.
"""

from __future__ import annotations

import ctypes
import os
import threading
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, linprog, milp

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.planner.formulation import (
    RowBlock,
    choice_rows,
    columns_of,
    model_rows,
    stacked,
)
from skyplane_orchestration.planner.limit_names import (
    COST_CEILING,
    INSTANCE_QUOTA,
    THROUGHPUT_FLOOR,
    THROUGHPUT_MOST,
)
from skyplane_orchestration.planner.problem import Floats, Mask, PlanProblem
from skyplane_orchestration.planner.solution import (
    FLOW_TOLERANCE,
    Integers,
    Relaxation,
)

__all__ = [
    "FLOW_TOLERANCE",
    "HOP_WEIGHT",
    "IntegerOptimum",
    "Integers",
    "Program",
    "RealOptimum",
    "Relaxation",
    "minimise",
    "minimise_whole",
    "relax",
    "solve_integers",
]

_OPTIMAL, _INFEASIBLE = 0, 2

_one_at_a_time = threading.Lock()
_C_LIBRARY = ctypes.CDLL(None)

#: Edges that join the relaxation at a time: fewer take more rounds, more make rounds longer.
COLUMNS_AT_ONCE = 800
#: The largest coefficient of a cost vector is scaled to this, because the solver's tolerance
#: on reduced costs (1e-7) is absolute; below _PRICED_OUT they are its noise.
_COST_SCALE = 1000.0
_PRICED_OUT = 1e-6

#: Weight of the total flow against one Gbit/s of throughput: breaks ties towards short
#: paths, and is too small to give up a Gbit/s for fewer hops.
HOP_WEIGHT = 1e-5

#: This heuristic of HiGHS takes longer than most of our programs do without it.
_QUICK = {"mip_heuristic_run_feasibility_jump": False}
#: With M real there is little to presolve, and few enough integers to branch at once.
_QUICKEST = {
    **_QUICK,
    "presolve": False,
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
}


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
    whole = np.zeros(columns.count, dtype=np.int64)
    for part in (columns.instances, columns.connections, columns.relaying, columns.chosen):
        whole[part] = 1
    # A column that stands in no row decides nothing, unless it costs: the constant.
    kept = np.flatnonzero((np.diff(matrix.indptr) > 0) | (cost != 0) & (lower == upper))
    answer = _milp_quietly(
        cost[kept],
        constraints=LinearConstraint(
            matrix[:, kept],
            np.concatenate([block.lower for block in blocks]),
            np.concatenate([block.upper for block in blocks]),
        ),
        bounds=Bounds(lower[kept], upper[kept]),
        integrality=whole[kept],
        options={
            "mip_rel_gap": relative_gap,
            "time_limit": time_limit_s,
            **(_QUICK if counted.any() else _QUICKEST),
        },
    )
    if answer.x is None:
        if answer.status == _INFEASIBLE:
            return None
        raise SolverFailed(
            f"no plan was found within {time_limit_s:g} s ({answer.message}); try again,"
            " allow fewer regions, or lower the goal"
        )
    x = np.zeros(columns.count)
    x[kept] = answer.x
    return Integers(
        problem=problem,
        flow_gbps=np.maximum(x[columns.flow], 0.0),
        instances=np.round(x[columns.instances]),
        connections=np.round(x[columns.connections]),
        throughput_gbps=float(x[columns.throughput]),
        objective=float(answer.fun),
        bound=float(answer.mip_dual_bound),
    )


def _milp_quietly(cost: Floats, **arguments: Any) -> OptimizeResult:
    """`scipy.optimize.milp` with what HiGHS prints sent to stderr, and without a warning.

    HiGHS has a debug line that no option silences; on the standard output of a process it
    would break `plan --json`. scipy hands options that it does not know to HiGHS and warns.
    """
    with _one_at_a_time, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Unrecognized options detected")
        try:
            saved = os.dup(1)
        except OSError:  # a daemon without a standard output has nothing to protect
            return milp(cost, **arguments)
        try:
            with suppress(OSError):  # nor is there anything to do without a stderr
                os.dup2(2, 1)
            return milp(cost, **arguments)
        finally:
            _C_LIBRARY.fflush(None)
            os.dup2(saved, 1)
            os.close(saved)


# ---------------------------------------------------------------- programs of any kind


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Minimise cost @ x with below @ x <= most, equal @ x == exact, lower <= x <= upper.

    Matrices are (rows, C), dense or sparse by columns; everything else is a vector.
    """

    cost: Floats
    below: Any
    most: Floats
    equal: Any
    exact: Floats
    lower: Floats
    upper: Floats

    def only(self, taken: Mask) -> Program:
        """The program with every other column at 0."""
        kept = np.flatnonzero(taken)
        return Program(
            self.cost[kept],
            self.below[:, kept],
            self.most,
            self.equal[:, kept],
            self.exact,
            self.lower[kept],
            self.upper[kept],
        )

    def reduced_cost(self, answer: RealOptimum) -> Floats:
        """(C,) how much the objective rises per unit of each column at these prices."""
        reduced: Floats = (
            self.cost + self.below.T @ answer.below_price - self.equal.T @ answer.equal_price
        )
        return reduced


class RealOptimum(NamedTuple):
    """An optimum over real x; prices are duals: below's >= 0, equal's of either sign."""

    objective: float
    x: Floats
    below_price: Floats
    equal_price: Floats


class IntegerOptimum(NamedTuple):
    """The best x found with whole numbers, and what the solver proved cannot be beaten."""

    objective: float
    bound: float
    x: Floats


def minimise(program: Program) -> RealOptimum | None:
    """The optimum over real x; None if there is none.

    Raises SolverFailed when HiGHS stops without an answer.
    """
    # As above: the stubs know no array of bounds.
    answer = linprog(  # type: ignore[call-overload]
        program.cost,
        A_ub=program.below,
        b_ub=program.most,
        A_eq=program.equal,
        b_eq=program.exact,
        bounds=np.column_stack([program.lower, program.upper]),
        method="highs-ds",
        # It takes longer than it saves, and the duals are then those of the program itself.
        options={"presolve": False},
    )
    if answer.status == _INFEASIBLE:
        return None
    if answer.status != _OPTIMAL:
        raise SolverFailed(f"a linear program has no answer: {answer.message}")
    return RealOptimum(
        objective=float(answer.fun),
        x=np.asarray(answer.x),
        below_price=np.maximum(-answer.ineqlin.marginals, 0.0),
        equal_price=np.asarray(answer.eqlin.marginals),
    )


def minimise_whole(
    program: Program, whole: Mask, *, relative_gap: float, time_limit_s: float
) -> IntegerOptimum | None:
    """The best x whose `whole` entries (mask over columns) are integers; None if infeasible.

    Raises SolverFailed when the time passes without any solution.
    """
    answer = _milp_quietly(
        program.cost,
        constraints=[
            LinearConstraint(sparse.csc_array(program.below), -np.inf, program.most),
            LinearConstraint(sparse.csc_array(program.equal), program.exact, program.exact),
        ],
        bounds=Bounds(program.lower, program.upper),
        integrality=whole.astype(np.int64),
        options={"mip_rel_gap": relative_gap, "time_limit": time_limit_s, **_QUICK},
    )
    if answer.x is None:
        if answer.status == _INFEASIBLE:
            return None
        raise SolverFailed(f"nothing was found within {time_limit_s:g} s ({answer.message})")
    x = np.where(whole, np.round(answer.x), answer.x)
    return IntegerOptimum(float(answer.fun), float(answer.mip_dual_bound), x)
