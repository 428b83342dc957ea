"""The proven distance between a plan and the best possible one."""

from __future__ import annotations

from typing import Final

from skyplane_orchestration.model.job import MaximizeThroughput, Objective

#: A plan with at most this proven gap counts as optimal.
OPTIMAL_GAP: Final = 1e-4


def gap_of(objective: Objective, value: float, bound: float) -> float:
    """The proven distance between the value of an objective and its bound, as a share of it."""
    if isinstance(objective, MaximizeThroughput):
        return max(0.0, bound / value - 1)
    return relative_gap(value, bound)


def relative_gap(value: float, bound: float) -> float:
    """How far a value to minimise is above its lower bound, as a share of the value."""
    return max(0.0, (value - bound) / value) if value > 0 else 0.0


def solver_status(gap: float) -> str:
    """`optimal` or `feasible`, as in `SolverReport`."""
    return "optimal" if gap <= OPTIMAL_GAP else "feasible"
