"""How near plans are to the optima of the plain full model, and what they take.

The problems and their optima are `reference_plans.json`, made by `fit_reference_plans`.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.report import Case
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.job import Limits, MaximizeThroughput, MinimizeCost, Objective
from skyplane_orchestration.plan import TransferPlan
from skyplane_orchestration.planner import PROOF_S, frontier, plan, violations

REFERENCES = Path(__file__).with_name("reference_plans.json")
#: The worst cost of any plan over its optimum.
FLOOR_OF_OPTIMUM, GOAL_OF_OPTIMUM = 1.01, 1.001
#: The worst rate of any plan under a ceiling over the most there is.
FLOOR_OF_MOST, GOAL_OF_MOST = 0.99, 0.999
MEDIAN_GOAL_S, WORST_GOAL_S = 0.05, 0.25
CEILING_GOAL_S = 0.5
FRONTIER_ENDS = ("aws:us-west-2", "gcp:europe-west3")
FRONTIER_POINTS, FRONTIER_GOAL_S = 100, 2.0

Problem = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """One plan, the seconds it took (least of the runs), and what it is compared with."""

    plan: TransferPlan
    seconds: float
    problem: Problem
    feasible: bool


def reference_problems(kind: str, count: int | None = None) -> list[Problem]:
    """The first `count` problems of `goals` or `ceilings`; all of them for None."""
    found: list[Problem] = json.loads(REFERENCES.read_text(encoding="utf-8"))[kind]
    return found[:count]


def answers(
    grid: Grid,
    problems: Sequence[Problem],
    objectives: Sequence[Objective],
    runs: int,
    proof_s: float = PROOF_S,
) -> list[Answer]:
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
                proof_s=proof_s,
                limits=Limits(instance_limit=limit),
            )
            seconds.append(time.perf_counter() - started)
        feasible = not violations(made, grid, Limits(instance_limit=limit)) and meets(made, problem)
        found.append(Answer(made, min(seconds), problem, feasible))
    return found


def meets(made: TransferPlan, problem: Problem) -> bool:
    """True when the plan keeps what the problem asks for besides the model's constraints."""
    if "goal_gbps" in problem:
        return made.throughput_gbps >= float(problem["goal_gbps"]) * (1 - 1e-6)
    return made.cost.usd_per_gb <= float(problem["ceiling_usd_per_gb"]) * (1 + 1e-6)


def feasible_case(kind: str, found: Sequence[Answer]) -> Case:
    held = sum(answer.feasible for answer in found)
    return Case(
        f"{kind}: plans that hold by the independent check",
        held,
        "plans",
        ratio=held / len(found),
        against=f"all {len(found)}",
        floor=len(found),
        goal=len(found),
    )


def cost_cases(grid: Grid, runs: int, count: int | None = None) -> list[Case]:
    """Least cost exactly at a goal: worst cost over the optimum, feasibility, times.

    As plans are made by default, then without the time for a proof: most of the time goes
    into showing that a plan is as good as can be.
    """
    problems = reference_problems("goals", count)
    return [
        *_cost_cases(grid, problems, runs, PROOF_S, ""),
        *_cost_cases(grid, problems, runs, 0.0, " without proof"),
    ]


def _cost_cases(
    grid: Grid, problems: Sequence[Problem], runs: int, proof_s: float, how: str
) -> list[Case]:
    objectives = [MinimizeCost(problem["goal_gbps"], exactly=True) for problem in problems]
    found = answers(grid, problems, objectives, runs, proof_s)
    ratios = [answer.plan.cost.usd_per_gb / answer.problem["usd_per_gb"] for answer in found]
    seconds = [answer.seconds for answer in found]
    return [
        Case(
            f"optimal{how}: worst cost of {len(found)} plans over the full integer optimum",
            max(ratios),
            "x optimum",
            floor=FLOOR_OF_OPTIMUM,
            goal=GOAL_OF_OPTIMUM,
        ),
        feasible_case(f"optimal{how}", found),
        Case(
            f"cost{how}: median time of {len(found)}",
            statistics.median(seconds),
            "s",
            goal=MEDIAN_GOAL_S,
        ),
        Case(f"cost{how}: worst time of {len(found)}", max(seconds), "s", goal=WORST_GOAL_S),
    ]


def ceiling_cases(grid: Grid, runs: int, count: int | None = None) -> list[Case]:
    """Most throughput under a price: worst rate over the optimum, feasibility, times."""
    problems = reference_problems("ceilings", count)
    objectives = [
        MaximizeThroughput(max_usd_per_gb=problem["ceiling_usd_per_gb"]) for problem in problems
    ]
    found = answers(grid, problems, objectives, runs)
    ratios = [answer.plan.throughput_gbps / answer.problem["throughput_gbps"] for answer in found]
    seconds = [answer.seconds for answer in found]
    return [
        Case(
            f"ceiling: worst rate of {len(found)} plans over the full integer optimum",
            min(ratios),
            "of optimum",
            floor=FLOOR_OF_MOST,
            goal=GOAL_OF_MOST,
        ),
        feasible_case("ceiling", found),
        Case(f"ceiling: median time of {len(found)}", statistics.median(seconds), "s"),
        Case(f"ceiling: worst time of {len(found)}", max(seconds), "s", goal=CEILING_GOAL_S),
    ]


def frontier_case(
    grid: Grid, points: int = FRONTIER_POINTS, ends: tuple[str, str] = FRONTIER_ENDS
) -> Case:
    """Time of a whole frontier, and how far its plans can be from the best at their rates."""
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
