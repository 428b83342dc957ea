"""How near plans are to the optima of the plain full model, and what they take.

The problems and their optima are `reference_plans.json`, made by `fit_reference_plans`.
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
from skyplane_orchestration.planner import PROOF_S, build_problem, frontier, plan, violations
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
class Answer:
    """One plan, the seconds it took (least of the runs), and what it is compared with.

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
        found.append(Answer(made, min(seconds), spread_of(seconds), problem, feasible))
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


def time_cases(
    kind: str, found: Sequence[Answer], median_s: float | None, worst_s: float
) -> list[Case]:
    """Median and worst of the plans' times; the spread is that of the least steady plan."""
    seconds = [answer.seconds for answer in found]
    spread = max(answer.spread for answer in found)
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


def gap_case(kind: str, found: Sequence[Answer]) -> Case:
    """How far the plans may be from the best by what was proven while they were made."""
    gaps = [answer.plan.solver.gap for answer in found]
    proven = sum(answer.plan.solver.status == "optimal" for answer in found)
    return Case(
        f"{kind}: worst gap that the plans state, {proven} of {len(found)} proven optimal",
        100 * max(gaps),
        "% gap",
        ratio=statistics.median(gaps),
        against="median gap, as a share",
    )


def cost_cases(grid: Grid, runs: int, count: int | None = None) -> list[Case]:
    """Least cost exactly at a goal: worst cost over the optimum, feasibility, times.

    As plans are made by default, then without the time for a proof: most of the time goes
    into showing that a plan is as good as can be. Last, what the plain full model takes.
    """
    problems = reference_problems("goals", count)
    found = _answers_at_goals(grid, problems, runs, PROOF_S)
    without = _answers_at_goals(grid, problems, runs, 0.0)
    return [
        *_cost_cases(found, ""),
        gap_case("cost", found),
        *_cost_cases(without, " without proof"),
        plain_case(grid, found[:: max(1, len(found) // PLAIN_PROBLEMS)]),
    ]


def _answers_at_goals(
    grid: Grid, problems: Sequence[Problem], runs: int, proof_s: float
) -> list[Answer]:
    objectives = [MinimizeCost(problem["goal_gbps"], exactly=True) for problem in problems]
    return answers(grid, problems, objectives, runs, proof_s)


def _cost_cases(found: Sequence[Answer], how: str) -> list[Case]:
    ratios = [answer.plan.cost.usd_per_gb / answer.problem["usd_per_gb"] for answer in found]
    return [
        Case(
            f"optimal{how}: worst cost of {len(found)} plans over the full integer optimum",
            max(ratios),
            "x optimum",
            floor=FLOOR_OF_OPTIMUM,
            goal=GOAL_OF_OPTIMUM,
        ),
        feasible_case(f"optimal{how}", found),
        *time_cases(f"cost{how}", found, MEDIAN_GOAL_S, WORST_GOAL_S),
    ]


def plain_case(grid: Grid, found: Sequence[Answer]) -> Case:
    """Time of the full model over all regions, handed to the solver as it is."""
    plain_s = 0.0
    for answer in found:
        problem, goal = answer.problem, answer.problem["goal_gbps"]
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
        ratio=plain_s / sum(answer.seconds for answer in found),
        against="this planner on the same problems",
    )


def ceiling_cases(grid: Grid, runs: int, count: int | None = None) -> list[Case]:
    """Most throughput under a price: worst rate over the optimum, feasibility, times."""
    problems = reference_problems("ceilings", count)
    objectives = [
        MaximizeThroughput(max_usd_per_gb=problem["ceiling_usd_per_gb"]) for problem in problems
    ]
    found = answers(grid, problems, objectives, runs)
    ratios = [answer.plan.throughput_gbps / answer.problem["throughput_gbps"] for answer in found]
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
