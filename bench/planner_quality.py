"""Distance of plans to the optima of the full model, and their planning times.

`fit_reference_plans` makes the problems and their optima, `reference_plans.json`.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import Case, spread_of
from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost, Objective
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import build_problem, frontier, plan, violations
from skyplane_orchestration.planner.formulation import cost_per_second
from skyplane_orchestration.planner.solve import solve_integers

REFERENCES = Path(__file__).with_name("reference_plans.json")
#: The worst cost of any plan over its optimum.
#: The optimum may use paths below a hundredth of the rate, plans do not (`thin_paths`).
FLOOR_OF_OPTIMUM = GOAL_OF_OPTIMUM = 1.005
#: The worst rate of any plan under a ceiling over the most there is.
FLOOR_OF_MOST = GOAL_OF_MOST = 0.999
MEDIAN_GOAL_S, WORST_GOAL_S = 0.05, 0.25
CEILING_GOAL_S = 0.5
#: The plain full model: on how many problems, to what relative gap, for how long, scaled.
PLAIN_PROBLEMS, PLAIN_GAP, PLAIN_LIMIT_S, PLAIN_SCALE = 4, 1e-4, 20.0, 1000.0
FRONTIER_ENDS = ("aws:us-west-2", "gcp:europe-west3")
FRONTIER_POINTS, FRONTIER_GOAL_S = 100, 2.0

Problem = dict[str, Any]


@dataclass(frozen=True, slots=True)
class TimedPlan:
    """One plan, its planning time (least of the runs), and its reference.

    Attributes:
        spread: of the runs' seconds, see `spread_of`.
    """

    plan: TransferPlan
    seconds: float
    spread: float
    problem: Problem
    feasible: bool


def reference_problems(kind: str, count: int | None = None) -> list[Problem]:
    """The first `count` problems of `goals` or `ceilings`; all of them for None."""
    found: list[Problem] = json.loads(REFERENCES.read_text(encoding="utf-8"))[kind]
    return found[:count]


def timed_plans(
    grid: Grid,
    problems: Sequence[Problem],
    objectives: Sequence[Objective],
    runs: int,
) -> list[TimedPlan]:
    """The plan of every problem, timed."""
    found = []
    for problem, objective in zip(problems, objectives, strict=True):
        limit = problem["instance_limit"]
        seconds = []
        for _ in range(runs):
            started = time.perf_counter()
            made = plan(
                grid,
                problem["src"],
                problem["dst"],
                objective,
                limits=Limits(instance_limit=limit),
            )
            seconds.append(time.perf_counter() - started)
        feasible = not violations(made, grid, Limits(instance_limit=limit)) and meets(made, problem)
        found.append(TimedPlan(made, min(seconds), spread_of(seconds), problem, feasible))
    return found


def meets(made: TransferPlan, problem: Problem) -> bool:
    """True when the plan keeps the goal or the ceiling of the problem."""
    if "goal_gbps" in problem:
        return made.throughput_gbps >= float(problem["goal_gbps"]) * (1 - 1e-6)
    return made.cost.usd_per_gb <= float(problem["ceiling_usd_per_gb"]) * (1 + 1e-6)


def feasible_case(kind: str, found: Sequence[TimedPlan]) -> Case:
    held = sum(timed.feasible for timed in found)
    return Case(
        f"{kind}: plans that hold by the independent check",
        held,
        "plans",
        ratio=held / len(found),
        against=f"all {len(found)}",
        floor=len(found),
        goal=len(found),
    )


def time_cases(
    kind: str, found: Sequence[TimedPlan], median_s: float | None, worst_s: float
) -> list[Case]:
    """Median and worst of the planning times; the spread is the largest of the plans."""
    seconds = [timed.seconds for timed in found]
    spread = max(timed.spread for timed in found)
    return [
        Case(
            f"{kind}: median time of {len(found)}",
            statistics.median(seconds),
            "s",
            goal=median_s,
            spread=spread,
        ),
        Case(f"{kind}: worst time of {len(found)}", max(seconds), "s", goal=worst_s, spread=spread),
    ]


def gap_case(kind: str, found: Sequence[TimedPlan]) -> Case:
    """The largest proven gap of the plans."""
    gaps = [timed.plan.solver.gap for timed in found]
    proven = sum(timed.plan.solver.status == "optimal" for timed in found)
    return Case(
        f"{kind}: worst gap that the plans state, {proven} of {len(found)} proven optimal",
        100 * max(gaps),
        "% gap",
        ratio=statistics.median(gaps),
        against="median gap, as a share",
    )


def cost_cases(grid: Grid, runs: int, count: int | None = None) -> list[Case]:
    """Least cost exactly at a goal: worst cost over the optimum, feasibility, times.

    Last, the time of the full model.
    """
    problems = reference_problems("goals", count)
    found = _answers_at_goals(grid, problems, runs)
    return [
        *_cost_cases(found),
        gap_case("cost", found),
        plain_case(grid, found[:: max(1, len(found) // PLAIN_PROBLEMS)]),
    ]


def _answers_at_goals(grid: Grid, problems: Sequence[Problem], runs: int) -> list[TimedPlan]:
    objectives = [MinimizeCost(problem["goal_gbps"], exactly=True) for problem in problems]
    return timed_plans(grid, problems, objectives, runs)


def _cost_cases(found: Sequence[TimedPlan]) -> list[Case]:
    ratios = [timed.plan.cost.usd_per_gb / timed.problem["usd_per_gb"] for timed in found]
    return [
        Case(
            f"optimal: worst cost of {len(found)} plans over the full integer optimum",
            max(ratios),
            "x optimum",
            floor=FLOOR_OF_OPTIMUM,
            goal=GOAL_OF_OPTIMUM,
        ),
        feasible_case("optimal", found),
        *time_cases("cost", found, MEDIAN_GOAL_S, WORST_GOAL_S),
    ]


def plain_case(grid: Grid, found: Sequence[TimedPlan]) -> Case:
    """Time of the full model in the solver, over all regions."""
    plain_s = 0.0
    for timed in found:
        problem, goal = timed.problem, timed.problem["goal_gbps"]
        started = time.perf_counter()
        whole = build_problem(
            grid,
            problem["src"],
            problem["dst"],
            goal_gbps=goal,
            limits=Limits(instance_limit=problem["instance_limit"]),
        ).with_goal(goal, goal)
        with suppress(SolverFailed):  # out of time: what it took is a lower bound
            solve_integers(
                whole,
                cost_per_second(whole) / (goal * problem["usd_per_gb"]) * PLAIN_SCALE,
                relative_gap=PLAIN_GAP,
                time_limit_s=PLAIN_LIMIT_S,
            )
        plain_s += time.perf_counter() - started
    return Case(
        f"cost: the plain full model on {len(found)} of the same problems, mean",
        plain_s / len(found),
        "s",
        ratio=plain_s / sum(timed.seconds for timed in found),
        against="this planner on the same problems",
    )


def ceiling_cases(grid: Grid, runs: int, count: int | None = None) -> list[Case]:
    """Most throughput under a price: worst rate over the optimum, feasibility, times."""
    problems = reference_problems("ceilings", count)
    objectives = [
        MaximizeThroughput(max_usd_per_gb=problem["ceiling_usd_per_gb"]) for problem in problems
    ]
    found = timed_plans(grid, problems, objectives, runs)
    ratios = [timed.plan.throughput_gbps / timed.problem["throughput_gbps"] for timed in found]
    return [
        Case(
            f"ceiling: worst rate of {len(found)} plans over the full integer optimum",
            min(ratios),
            "of optimum",
            floor=FLOOR_OF_MOST,
            goal=GOAL_OF_MOST,
        ),
        feasible_case("ceiling", found),
        *time_cases("ceiling", found, None, CEILING_GOAL_S),
        gap_case("ceiling", found),
    ]


def frontier_case(
    grid: Grid, points: int = FRONTIER_POINTS, ends: tuple[str, str] = FRONTIER_ENDS
) -> Case:
    """Time of a whole frontier, and the largest gap of its plans."""
    started = time.perf_counter()
    kept = frontier(grid, *ends, points=points)
    seconds = time.perf_counter() - started
    worst = max(one.solver.gap for one in kept)
    return Case(
        f"frontier: {points} points on {len(grid.regions)} regions, {len(kept)} not beaten,"
        f" within {worst:.2%} of the bound",
        seconds,
        "s",
        goal=FRONTIER_GOAL_S,
    )
