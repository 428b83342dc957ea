"""A plan is a function of its question: a slow machine prints the same plan."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from typing import Any

import pytest
from scipy.optimize import milp

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
)
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import frontier, highs, multicast_plan, plan

ENDS = "azure:japaneast", "aws:me-central-1"
VOLUME_GB = 3.7


def made(grid: Grid, objective: Objective) -> TransferPlan:
    limits = Limits(instance_limit=4)
    found = plan(grid, *ENDS, objective, volume_gb=VOLUME_GB, limits=limits)
    return replace(found, solver=replace(found.solver, solve_s=0.0))


def made_for_two(grid: Grid) -> TransferPlan:
    ends = ("gcp:us-west1", "azure:uksouth")
    found = multicast_plan(grid, ENDS[0], ends, MinimizeCost(4.0), volume_gb=VOLUME_GB)
    return replace(found, solver=replace(found.solver, solve_s=0.0))


@pytest.fixture
def slow_machine(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Each look at a clock takes 5 s. The time limits that the solver was given."""
    given = list[float]()

    def recorded(cost: Any, *, options: Any, **rest: Any) -> Any:
        given.append(options["time_limit"])
        return milp(cost, options=options, **rest)

    monkeypatch.setattr(highs, "milp", recorded)
    for clock in ("monotonic", "perf_counter"):
        ticks = itertools.count(1000.0, 5.0)
        monkeypatch.setattr(time, clock, lambda ticks=ticks: next(ticks))
    return given


@pytest.mark.parametrize(
    "objective",
    [
        MinimizeCost(6.0),
        MinimizeCost(6.0, exactly=True),
        Deadline(150.0),
        MaximizeThroughput(max_usd_per_gb=0.14),
        MaximizeThroughput(max_cost_usd=1.2),
    ],
    ids=str,
)
def test_the_plan_is_that_of_a_fast_machine(
    shipped: Grid, objective: Objective, request: pytest.FixtureRequest
) -> None:
    fast = made(shipped, objective)
    given: list[float] = request.getfixturevalue("slow_machine")
    assert made(shipped, objective) == fast
    assert min(given) >= highs.LIMIT_S - 10.0


def test_the_plan_for_several_destinations_is_that_of_a_fast_machine(
    shipped: Grid, request: pytest.FixtureRequest
) -> None:
    fast = made_for_two(shipped)
    given: list[float] = request.getfixturevalue("slow_machine")
    assert made_for_two(shipped) == fast
    assert min(given) >= highs.LIMIT_S - 10.0


def test_the_frontier_has_no_limit_on_time(dozen: Grid, slow_machine: list[float]) -> None:
    assert len(frontier(dozen, *dozen.tags[:2], points=4)) > 1
    assert min(slow_machine) >= highs.LIMIT_S - 10.0
