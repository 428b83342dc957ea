"""Calls the solver, HiGHS through SciPy. No other module does.

A program is arrays only. A solver status becomes a result, None (infeasible) or a typed error.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, linprog, milp

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.grids.arrays import Floats, Mask

_OPTIMAL, _LIMIT_REACHED, _INFEASIBLE = 0, 1, 2
#: After this time a program is an error. No result depends on the time it took: programs that may
#: take long have a limit on nodes.
LIMIT_S: Final = 60.0
#: The least time limit of a second attempt.
_LEAST_S: Final = 0.01
#: Python's filters of warnings are those of the process.
_one_at_a_time = threading.Lock()

#: This heuristic of HiGHS takes longer than most of our programs do without it.
_OPTIONS: Final = {"mip_heuristic_run_feasibility_jump": False}
#: For M real: presolve has little to do, and the integers are few enough to branch at once.
NO_PRESOLVE: Final = {
    **_OPTIONS,
    "presolve": False,
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
}


@dataclass(frozen=True, slots=True, eq=False)
class LinearProgram:
    """Minimise cost @ x with below @ x <= most, equal @ x == exact, lower <= x <= upper.

    Matrices are (rows, C), dense or sparse by columns; the other fields are vectors.
    """

    cost: Floats
    below: Any
    most: Floats
    equal: Any
    exact: Floats
    lower: Floats
    upper: Floats

    def only(self, taken: Mask) -> LinearProgram:
        """The program with all other columns fixed at 0."""
        kept = np.flatnonzero(taken)
        return LinearProgram(
            self.cost[kept],
            self.below[:, kept],
            self.most,
            self.equal[:, kept],
            self.exact,
            self.lower[kept],
            self.upper[kept],
        )


class LinearOptimum(NamedTuple):
    """An optimum over real x; prices are duals: >= 0 for `below`, of either sign for `equal`."""

    objective: float
    x: Floats
    below_price: Floats
    equal_price: Floats


class IntegerOptimum(NamedTuple):
    """The best integer x found, and the solver's bound on the objective."""

    objective: float
    bound: float
    x: Floats


def solve_linear(program: LinearProgram) -> LinearOptimum | None:
    """The optimum over real x; None if infeasible.

    Raises SolverFailed when HiGHS ends without a result.
    """
    # Presolve takes longer than it saves, and without it the duals are those of the program
    # itself. But HiGHS sometimes ends without a result, and succeeds with presolve.
    for presolve in (False, True):
        # The stubs know no array of bounds.
        answer = linprog(  # type: ignore[call-overload]
            program.cost,
            A_ub=program.below,
            b_ub=program.most,
            A_eq=program.equal,
            b_eq=program.exact,
            bounds=np.column_stack([program.lower, program.upper]),
            method="highs-ds",
            options={"presolve": presolve},
        )
        if answer.status in (_OPTIMAL, _INFEASIBLE):
            break
    if answer.status == _INFEASIBLE:
        return None
    if answer.status != _OPTIMAL:
        raise SolverFailed(f"a linear program has no answer: {answer.message}")
    return LinearOptimum(
        objective=float(answer.fun),
        x=np.asarray(answer.x),
        below_price=np.maximum(-answer.ineqlin.marginals, 0.0),
        equal_price=np.asarray(answer.eqlin.marginals),
    )


def solve_integer(
    program: LinearProgram,
    whole: Mask,
    *,
    relative_gap: float,
    node_limit: int | None = None,
    time_limit_s: float = LIMIT_S,
    options: Mapping[str, bool] = _OPTIONS,
) -> IntegerOptimum | None:
    """The best x whose `whole` entries (mask over columns) are integers; None if infeasible.

    Args:
        node_limit: the nodes of the search tree after which the best x so far is the result. The
            same program has the same result on every machine.
        options: options of HiGHS.

    Raises SolverFailed when the time limit passes, and when no x is known at the limit on nodes.
    """
    rows = [
        LinearConstraint(program.below, -np.inf, program.most),
        LinearConstraint(program.equal, program.exact, program.exact),
    ]
    until = time.monotonic() + time_limit_s
    presolve = options.get("presolve", True)
    # HiGHS sometimes ends at once with an error, and succeeds with the other presolve setting.
    for with_presolve in (presolve, not presolve):
        left_s = max(until - time.monotonic(), _LEAST_S)
        # Any: the stubs know none of `options`.
        given: Any = {"mip_rel_gap": relative_gap, "time_limit": left_s, **options}
        given["presolve"] = with_presolve
        if node_limit is not None:
            given["node_limit"] = node_limit
        with _one_at_a_time, warnings.catch_warnings():
            # SciPy does not know all options of HiGHS.
            warnings.filterwarnings("ignore", "Unrecognized options detected")
            answer = milp(
                program.cost,
                constraints=rows,
                bounds=Bounds(program.lower, program.upper),
                integrality=whole.astype(np.int64),
                options=given,
            )
        if answer.x is not None or answer.status in (_LIMIT_REACHED, _INFEASIBLE):
            break
    if answer.status == _INFEASIBLE:
        return None
    is_late = answer.status == _LIMIT_REACHED and time.monotonic() >= until
    if answer.x is None or is_late:
        limit = f" within {time_limit_s:g} s" if is_late else ""
        raise SolverFailed(
            f"no plan was found{limit} ({answer.message}); try again,"
            " allow fewer regions, or lower the goal"
        )
    x = np.where(whole, np.round(answer.x), answer.x)
    return IntegerOptimum(float(answer.fun), float(answer.mip_dual_bound), x)


def _reset_after_fork() -> None:
    """A forked child has no thread that would release the lock."""
    global _one_at_a_time
    _one_at_a_time = threading.Lock()


os.register_at_fork(after_in_child=_reset_after_fork)
