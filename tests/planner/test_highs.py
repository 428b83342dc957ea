"""The solver's results and its errors."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import milp

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.planner import highs
from skyplane_orchestration.planner.highs import (
    IntegerOptimum,
    LinearProgram,
    solve_integer,
    solve_linear,
)


def program(least: float = 1.5) -> LinearProgram:
    """Minimise 2 x + y with x + y >= least, z = 1, all at most 5."""
    return LinearProgram(
        cost=np.array([2.0, 1.0, 0.0]),
        below=np.array([[-1.0, -1.0, 0.0]]),
        most=np.array([-least]),
        equal=np.array([[0.0, 0.0, 1.0]]),
        exact=np.array([1.0]),
        lower=np.zeros(3),
        upper=np.full(3, 5.0),
    )


def integer_optimum(least: float = 1.5, node_limit: int | None = None) -> IntegerOptimum | None:
    whole = np.array([True, True, False])
    return solve_integer(
        program(least), whole, relative_gap=1e-9, node_limit=node_limit, time_limit_s=5.0
    )


def test_the_real_optimum_comes_with_its_prices() -> None:
    found = solve_linear(program())
    assert found is not None
    assert found.objective == pytest.approx(1.5)
    assert found.x.tolist() == pytest.approx([0.0, 1.5, 1.0])
    assert found.below_price.tolist() == pytest.approx([1.0])
    assert found.equal_price.tolist() == pytest.approx([0.0])


def test_the_integer_optimum_is_whole() -> None:
    found = integer_optimum()
    assert found is not None
    assert found.x.tolist() == [0.0, 2.0, 1.0]
    assert found.objective == pytest.approx(found.bound) == pytest.approx(2.0)


def test_an_infeasible_program_has_no_optimum() -> None:
    assert solve_linear(program(least=11.0)) is None
    assert integer_optimum(least=11.0) is None


def test_an_error_of_the_solver_is_not_its_last_word(monkeypatch: pytest.MonkeyPatch) -> None:
    given = list[bool]()

    def stumble(cost: Any, *, options: Any, **rest: Any) -> Any:
        given.append(options["presolve"])
        if len(given) == 1:
            return SimpleNamespace(x=None, status=4, message="Solve error")
        return milp(cost, options=options, **rest)

    monkeypatch.setattr(highs, "milp", stumble)
    found = integer_optimum()
    assert found is not None
    assert (found.objective, given) == (2.0, [True, False])


@pytest.mark.parametrize("x", [None, np.zeros(3)])
def test_one_that_is_out_of_time_is_an_error(monkeypatch: pytest.MonkeyPatch, x: Any) -> None:
    calls, now = list[float](), [100.0]

    def run_out(cost: Any, *, options: Any, **_: Any) -> Any:
        calls.append(options["time_limit"])
        now[0] += options["time_limit"]
        return SimpleNamespace(x=x, status=1, message="Time limit reached")

    monkeypatch.setattr(highs, "milp", run_out)
    monkeypatch.setattr(highs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with pytest.raises(SolverFailed, match=r"within 5 s \(Time limit reached\)"):
        integer_optimum()
    assert calls == [5.0]


def test_the_limit_on_nodes_gives_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [np.array([0.0, 2.0, 1.0]), None]

    def stop(cost: Any, *, options: Any, **_: Any) -> Any:
        assert options["node_limit"] == 7
        message = "Solution limit reached"
        return SimpleNamespace(
            x=answers.pop(0), status=1, fun=2.0, mip_dual_bound=1.0, message=message
        )

    monkeypatch.setattr(highs, "milp", stop)
    found = integer_optimum(node_limit=7)
    assert found is not None
    assert (found.objective, found.bound) == (2.0, 1.0)
    with pytest.raises(SolverFailed, match=r"no plan was found \(Solution limit reached\)"):
        integer_optimum(node_limit=7)


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_process_that_is_forked_meanwhile_can_plan() -> None:
    with highs._one_at_a_time:
        child = os.fork()
        if child == 0:
            os._exit(0 if highs._one_at_a_time.acquire(blocking=False) else 1)
    assert os.waitpid(child, 0)[1] == 0
