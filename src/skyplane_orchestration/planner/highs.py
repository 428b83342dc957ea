"""The only file that calls a solver: HiGHS, through scipy.

A program is arrays and says nothing of regions. A status becomes an answer, None
(infeasible) or a typed error; it never leaks.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, LinearConstraint, OptimizeResult, linprog, milp

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.planner.problem import Floats, Mask

_OPTIMAL, _OUT_OF_TIME, _INFEASIBLE = 0, 1, 2
#: The least time limit that is given to a second call.
_LEAST_S: Final = 0.01
#: What a debug line of HiGHS begins with.
_NOISE: Final = b"HighsMipSolverData"

_one_at_a_time = threading.Lock()
_C_LIBRARY = ctypes.CDLL(None)
_C_LIBRARY.fdopen.restype = ctypes.c_void_p
_C_LIBRARY.fflush.argtypes = (ctypes.c_void_p,)
_C_LIBRARY.fwrite.argtypes = (
    ctypes.c_char_p,
    ctypes.c_size_t,
    ctypes.c_size_t,
    ctypes.c_void_p,
)
_MFD_CLOEXEC: Final = 1

#: This heuristic of HiGHS takes longer than most of our programs do without it.
QUICK: Final = {"mip_heuristic_run_feasibility_jump": False}
#: With M real there is little to presolve, and few enough integers to branch at once.
QUICKEST: Final = {
    **QUICK,
    "presolve": False,
    "mip_heuristic_run_rins": False,
    "mip_heuristic_run_rens": False,
    "mip_heuristic_run_root_reduced_cost": False,
}


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
    # Presolve takes longer than it saves, and without it the duals are those of the program
    # itself; but HiGHS now and then ends without an answer, and has one with it.
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
    rows = (
        (sparse.csc_array(program.below), np.full_like(program.most, -np.inf), program.most),
        (sparse.csc_array(program.equal), program.exact, program.exact),
    )
    return minimise_within(
        program.cost,
        rows,
        (program.lower, program.upper),
        whole,
        relative_gap=relative_gap,
        time_limit_s=time_limit_s,
    )


def minimise_within(
    cost: Floats,
    rows: Sequence[tuple[sparse.csc_array, Floats, Floats]],
    bounds: tuple[Floats, Floats],
    whole: Mask,
    *,
    relative_gap: float,
    time_limit_s: float,
    options: Mapping[str, bool] = QUICK,
) -> IntegerOptimum | None:
    """`minimise_whole` for rows that have a least and a most.

    Args:
        rows: matrix, least and most of each part.
        bounds: least and most of x.
        options: of HiGHS.

    Raises SolverFailed when the time passes without any solution.
    """
    until = time.monotonic() + time_limit_s
    presolve = options.get("presolve", True)
    # HiGHS now and then ends at once with an error, and has an answer with its other presolve.
    for with_presolve in (presolve, not presolve):
        left_s = max(until - time.monotonic(), _LEAST_S)
        given = {"mip_rel_gap": relative_gap, "time_limit": left_s, **options}
        answer = _milp_quietly(
            cost,
            constraints=[LinearConstraint(*part) for part in rows],
            bounds=Bounds(*bounds),
            integrality=whole.astype(np.int64),
            options={**given, "presolve": with_presolve},
        )
        if answer.x is not None or answer.status in (_OUT_OF_TIME, _INFEASIBLE):
            break
    if answer.x is None:
        if answer.status == _INFEASIBLE:
            return None
        raise SolverFailed(
            f"no plan was found within {time_limit_s:g} s ({answer.message}); try again,"
            " allow fewer regions, or lower the goal"
        )
    x = np.where(whole, np.round(answer.x), answer.x)
    return IntegerOptimum(float(answer.fun), float(answer.mip_dual_bound), x)


def _milp_quietly(cost: Floats, **arguments: Any) -> OptimizeResult:
    """`scipy.optimize.milp` without what HiGHS prints, and without a warning.

    scipy hands options that it does not know to HiGHS and warns.
    """
    with _one_at_a_time, warnings.catch_warnings(), _noise_set_aside():
        warnings.filterwarnings("ignore", "Unrecognized options detected")
        return milp(cost, **arguments)


class _Aside(NamedTuple):
    """A stream of C, and the file in memory that it writes to."""

    stream: int
    descriptor: int


@cache
def _aside() -> _Aside | None:
    """Stays open: another thread may be about to print to it. None where there can be none.

    Python's own `memfd_create` is missing where Python was built for an older glibc than runs,
    as the ones of uv and conda were.
    """
    # Only glibc lets one assign its `stdout`.
    if not all(hasattr(_C_LIBRARY, name) for name in ("gnu_get_libc_version", "memfd_create")):
        return None
    descriptor = _C_LIBRARY.memfd_create(b"highs", _MFD_CLOEXEC)
    return None if descriptor < 0 else _Aside(_C_LIBRARY.fdopen(descriptor, b"a"), descriptor)


#: C's `stdout` while another stream has its name.
_printed_to: list[int | None] = []


@contextmanager
def _noise_set_aside() -> Iterator[None]:
    """Keeps a debug line of HiGHS, which no option silences, off the standard output.

    It would break `plan --json`. HiGHS prints it with C's `printf`, so C's variable `stdout`
    names another stream meanwhile. The descriptor 1 is the host's and stays as it is; what C
    code of another thread prints meanwhile comes after. Without a stream to name instead, the
    line is printed.
    """
    aside = _aside()
    if aside is None:
        yield
        return
    stdout = ctypes.c_void_p.in_dll(_C_LIBRARY, "stdout")
    _printed_to.append(stdout.value)
    stdout.value = aside.stream
    try:
        yield
    finally:
        stdout.value = _printed_to[-1]
        _print_again(aside, _printed_to.pop())


def _begin_anew() -> None:
    """A forked process has no thread that would give back the lock and C's `stdout`."""
    global _one_at_a_time
    _one_at_a_time = threading.Lock()
    if _printed_to:
        ctypes.c_void_p.in_dll(_C_LIBRARY, "stdout").value = _printed_to.pop()
    # The file in memory is the parent's.
    _aside.cache_clear()


os.register_at_fork(after_in_child=_begin_anew)


def _print_again(aside: _Aside, stream: int | None) -> None:
    """What was set aside and is not HiGHS's, where it was to go."""
    _C_LIBRARY.fflush(aside.stream)
    size_bytes = os.fstat(aside.descriptor).st_size
    said = os.pread(aside.descriptor, size_bytes, 0).splitlines(keepends=True)
    os.ftruncate(aside.descriptor, 0)
    kept = b"".join(line for line in said if not line.startswith(_NOISE))
    if kept and stream:
        _C_LIBRARY.fwrite(kept, 1, len(kept), stream)
