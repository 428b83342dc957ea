"""The only file that calls a solver: HiGHS, through scipy.

Two questions are asked here. `relax` solves the model with every variable real: M can then
be eliminated, the program is small, and its duals say what each edge is worth.
`solve_integers` solves the model as stated, N and M integer, on few regions.
A status becomes an answer, None (infeasible) or a typed error; it never leaks.
"""

from __future__ import annotations

import ctypes
import os
import threading
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
    columns_of,
    model_rows,
)
from skyplane_orchestration.planner.problem import Floats, Mask, PlanProblem

_OPTIMAL, _INFEASIBLE = 0, 2

_one_at_a_time = threading.Lock()
_C_LIBRARY = ctypes.CDLL(None)

#: Edges that join the relaxation at a time: fewer take more rounds, more make rounds longer.
COLUMNS_AT_ONCE = 800
#: The largest coefficient of a cost vector is scaled to this, because the solver's tolerance
#: on reduced costs (1e-7) is absolute; below _PRICED_OUT they are its noise.
_COST_SCALE = 1000.0
_PRICED_OUT = 1e-6

#: Flows below this (Gbit/s) are the solver's noise.
FLOW_TOLERANCE = 1e-7

#: Weight of the total flow against one Gbit/s of throughput: breaks ties towards short
#: paths, and is too small to give up a Gbit/s for fewer hops.
HOP_WEIGHT = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """An optimum of the model with every variable real.

    Attributes:
        objective: its value, in the unit of the cost vector it was solved for.
        flow_gbps, instances, throughput_gbps: the solution, (E,), (V,) and a scalar.
        edge_reduced_cost: (E,) how much worse the objective gets per Gbit/s forced on.
        region_price: name of a region's row block -> (V,) its duals, >= 0.
    """

    objective: float
    flow_gbps: Floats
    instances: Floats
    throughput_gbps: float
    edge_reduced_cost: Floats
    region_price: dict[str, Floats]


@dataclass(frozen=True, slots=True, eq=False)
class Integers:
    """A solution of the full model, N and M integer.

    Attributes:
        problem: the problem (perhaps on fewer regions) whose columns these are.
        objective, bound: value reached, and what the solver proved cannot be beaten.
    """

    problem: PlanProblem
    flow_gbps: Floats
    instances: Floats
    connections: Floats
    throughput_gbps: float
    objective: float
    bound: float

    @property
    def used_regions(self) -> Mask:
        """(V,) regions that flow enters or leaves."""
        used = np.zeros(self.problem.region_count, dtype=bool)
        flows = self.flow_gbps > FLOW_TOLERANCE
        used[self.problem.tail[flows]] = used[self.problem.head[flows]] = True
        return used

    @property
    def usd_per_s(self) -> float:
        """Egress and instances, USD per second of transfer."""
        return float(
            self.flow_gbps @ self.problem.usd_per_gbit + self.instances @ self.problem.usd_per_s
        )

    @property
    def usd_per_gbit(self) -> float:
        return self.usd_per_s / self.throughput_gbps


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

    Raises SolverFailed when HiGHS stops without an answer.
    """
    columns = columns_of(problem)
    blocks = [*model_rows(problem, np.zeros(problem.edge_count, dtype=bool)), *extra]
    blocks = [block for block in blocks if len(block.upper)]
    equal = [block for block in blocks if np.array_equal(block.lower, block.upper)]
    below = [block for block in blocks if not np.array_equal(block.lower, block.upper)]
    lower = np.zeros(columns.count)
    upper = np.full(columns.count, np.inf)
    if instances_at_least is not None:
        lower[columns.instances] = instances_at_least
    upper[columns.instances] = problem.quota
    lower[columns.throughput], upper[columns.throughput] = problem.goal_gbps, problem.most_gbps
    scale = _COST_SCALE / (float(np.abs(cost).max()) or 1.0)
    program = _LinearProgram(cost * scale, _stack(below), _stack(equal), below, equal, lower, upper)
    taken = np.zeros(columns.count, dtype=bool)
    taken[columns.instances] = taken[columns.throughput] = True
    taken[columns.flow] = (problem.tail == problem.src) | (problem.head == problem.dst)
    while True:
        answer = program.solve(taken)
        if answer is None and taken[columns.flow].all():
            return None
        if answer is None:
            taken[columns.flow] = True
            continue
        reduced = answer.reduced_cost[columns.flow]
        wanted = np.flatnonzero((reduced < -_PRICED_OUT) & ~taken[columns.flow])
        if not len(wanted):
            break
        best = wanted[np.argsort(reduced[wanted], kind="stable")[:COLUMNS_AT_ONCE]]
        taken[columns.flow.start + best] = True
    return Relaxation(
        objective=answer.objective / scale,
        flow_gbps=answer.x[columns.flow],
        instances=answer.x[columns.instances],
        throughput_gbps=float(answer.x[columns.throughput]),
        edge_reduced_cost=np.maximum(reduced, 0.0) / scale,
        region_price=_duals_by_block(below, answer.below_price / scale),
    )


class _LinearAnswer(NamedTuple):
    """An optimum over the taken columns; reduced costs are those of all columns."""

    objective: float
    x: Floats
    reduced_cost: Floats
    below_price: Floats


@dataclass(frozen=True, slots=True, eq=False)
class _LinearProgram:
    """Minimise cost @ x, below <= upper, equal == upper, within the bounds of x."""

    cost: Floats
    below: sparse.csc_array
    equal: sparse.csc_array
    below_blocks: Sequence[RowBlock]
    equal_blocks: Sequence[RowBlock]
    lower: Floats
    upper: Floats

    def solve(self, taken: Mask) -> _LinearAnswer | None:
        """The optimum with every other column at 0; None when that is infeasible."""
        kept = np.flatnonzero(taken)
        # The stubs of scipy know no sparse matrix here; scipy does.
        answer = linprog(  # type: ignore[call-overload]
            self.cost[kept],
            A_ub=self.below[:, kept],
            b_ub=np.concatenate([block.upper for block in self.below_blocks]),
            A_eq=self.equal[:, kept],
            b_eq=np.concatenate([block.upper for block in self.equal_blocks]),
            bounds=np.column_stack([self.lower[kept], self.upper[kept]]),
            method="highs-ds",
        )
        if answer.status == _INFEASIBLE:
            return None
        if answer.status != _OPTIMAL:
            raise SolverFailed(f"the relaxed plan has no answer: {answer.message}")
        x = np.zeros(len(self.cost))
        x[kept] = answer.x
        return _LinearAnswer(
            objective=float(answer.fun),
            x=x,
            reduced_cost=self.cost
            - self.below.T @ answer.ineqlin.marginals
            - self.equal.T @ answer.eqlin.marginals,
            below_price=-answer.ineqlin.marginals,
        )


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
    blocks = [*model_rows(problem, counted), *extra]
    lower = np.zeros(columns.count)
    upper = np.full(columns.count, np.inf)
    upper[columns.instances] = problem.quota
    lower[columns.throughput], upper[columns.throughput] = problem.goal_gbps, problem.most_gbps
    upper[columns.connections] = np.where(counted, np.inf, 0.0)
    lower[columns.constant] = upper[columns.constant] = 1.0
    upper[columns.relaying] = 1.0 if any(b.name == "relay_switch" for b in blocks) else 0.0
    integrality = np.zeros(columns.count, dtype=np.int64)
    for part in (columns.instances, columns.connections, columns.relaying):
        integrality[part] = 1
    answer = _milp_quietly(
        cost,
        constraints=LinearConstraint(
            _stack(blocks),
            np.concatenate([block.lower for block in blocks]),
            np.concatenate([block.upper for block in blocks]),
        ),
        bounds=Bounds(lower, upper),
        integrality=integrality,
        options={"mip_rel_gap": relative_gap, "time_limit": time_limit_s},
    )
    if answer.x is None:
        if answer.status == _INFEASIBLE:
            return None
        raise SolverFailed(
            f"no plan was found within {time_limit_s:g} s ({answer.message}); try again,"
            " allow fewer regions, or lower the goal"
        )
    return Integers(
        problem=problem,
        flow_gbps=np.maximum(answer.x[columns.flow], 0.0),
        instances=np.round(answer.x[columns.instances]),
        connections=np.round(answer.x[columns.connections]),
        throughput_gbps=float(answer.x[columns.throughput]),
        objective=float(answer.fun),
        bound=float(answer.mip_dual_bound),
    )


def _milp_quietly(cost: Floats, **arguments: Any) -> OptimizeResult:
    """`scipy.optimize.milp` with what HiGHS prints sent to stderr.

    HiGHS has a debug line that no option silences; on the standard output of a process it
    would break `plan --json`.
    """
    with _one_at_a_time:
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


def _stack(blocks: Sequence[RowBlock]) -> sparse.csc_array:
    return sparse.csc_array(sparse.vstack([block.matrix for block in blocks]))


def _duals_by_block(blocks: Sequence[RowBlock], duals: Floats) -> dict[str, Floats]:
    ends = np.cumsum([len(block.upper) for block in blocks])
    return {
        block.name: np.maximum(part, 0.0)
        for block, part in zip(blocks, np.split(duals, ends[:-1]), strict=True)
    }


# ---------------------------------------------------------------- programs of any kind


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """Minimise cost @ x with below @ x <= most, equal @ x == exact, lower <= x <= upper.

    Matrices are (rows, C), dense; everything else is a vector.
    """

    cost: Floats
    below: Floats
    most: Floats
    equal: Floats
    exact: Floats
    lower: Floats
    upper: Floats


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
        options={"mip_rel_gap": relative_gap, "time_limit": time_limit_s},
    )
    if answer.x is None:
        if answer.status == _INFEASIBLE:
            return None
        raise SolverFailed(f"nothing was found within {time_limit_s:g} s ({answer.message})")
    x = np.where(whole, np.round(answer.x), answer.x)
    return IntegerOptimum(float(answer.fun), float(answer.mip_dual_bound), x)
