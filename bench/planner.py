"""Planning time, plan quality, and the quality of the prices and rates behind plans.

    python -m bench.planner [--json] [--smoke]

Times are for the shipped grid. Cases that need measurements use the grid of January 2022 beside the
repository; without it they are left out, with a line on stderr.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Sequence

from bench.cross_validation import FOLDS, model_case
from bench.planner_grids import MEASURED_DIR, measured_grid, price_cases
from bench.planner_quality import FRONTIER_POINTS, ceiling_cases, cost_cases, frontier_case
from bench.report import Case, finish, spread_of
from skyplane_orchestration.cli.main import keep_stdout
from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.model.job import Limits, MinimizeCost, Policy
from skyplane_orchestration.planner import build_problem, plan
from skyplane_orchestration.planner.formulation import cost_per_second
from skyplane_orchestration.planner.solve import solve_integers

SEED = 20261120
PAIRS = 20
#: Goals as a share of what the ends' instances may send and receive.
SHARE = 0.7
#: Every plan must be made within this; interactive use wants the goal.
FLOOR_S, GOAL_S = 1.0, 0.3
#: The plain model takes up to 40 s on all 135 regions: it is compared on as many as these.
PLAIN_REGIONS = 48
PLAIN_PAIRS = 3


def plan_seconds(
    grid: Grid, src: str, dst: str, goal_gbps: float, runs: int, *, exactly: bool
) -> list[float]:
    """Wall seconds of each of `runs` plans."""
    seconds = []
    for _ in range(runs):
        started = time.perf_counter()
        plan(grid, src, dst, MinimizeCost(goal_gbps, exactly=exactly), volume_gb=1000)
        seconds.append(time.perf_counter() - started)
    return seconds


def random_jobs(grid: Grid, count: int) -> list[tuple[str, str, float]]:
    """Pairs of regions with a goal that their ends could reach."""
    chooser = random.Random(SEED)
    jobs = []
    for _ in range(count):
        src, dst = chooser.sample(grid.tags, 2)
        ends = build_problem(grid, src, dst, goal_gbps=0.0, limits=Limits(max_relays=0))
        jobs.append((src, dst, round(SHARE * ends.most_gbps, 2)))
    return jobs


def plain_against_ours(grid: Grid, pairs: int) -> Case:
    """Time of the full model in the solver over the planner's time, on fewer regions."""
    chooser = random.Random(SEED)
    plain_s = ours_s = 0.0
    for _ in range(pairs):
        tags = chooser.sample(grid.tags, PLAIN_REGIONS)
        src, dst = tags[:2]
        goal = (
            0.5
            * build_problem(grid, src, dst, goal_gbps=0.0, limits=Limits(max_relays=0)).most_gbps
        )
        started = time.perf_counter()
        ours = plan(
            grid,
            src,
            dst,
            MinimizeCost(goal, exactly=True),
            policy=Policy(allow_regions=tuple(tags)),
        )
        ours_s += time.perf_counter() - started
        problem = build_problem(
            grid, src, dst, goal_gbps=goal, policy=Policy(allow_regions=tuple(tags))
        )
        at_goal = problem.with_goal(goal, goal)
        started = time.perf_counter()
        solve_integers(
            at_goal,
            cost_per_second(at_goal) / ours.cost.usd_per_gb,
            relative_gap=1e-4,
            time_limit_s=60.0,
        )
        plain_s += time.perf_counter() - started
    return Case(
        f"plain full model on {PLAIN_REGIONS} regions, mean of {pairs}",
        plain_s / pairs,
        "s",
        ratio=plain_s / ours_s,
        against="this planner on the same problems",
    )


def speed_cases(grid: Grid, runs: int, count: int) -> list[Case]:
    """Times of least-cost plans over every region of the shipped grid."""
    named = plan_seconds(grid, "aws:us-west-2", "azure:uksouth", 10.0, runs, exactly=False)
    cases = [
        Case(
            "aws:us-west-2 -> azure:uksouth at 10 Gbit/s",
            min(named),
            "s",
            floor=FLOOR_S,
            goal=GOAL_S,
            spread=spread_of(named),
        )
    ]
    every: list[float] = []
    for exactly in (False, True):
        taken = [
            plan_seconds(grid, src, dst, goal, runs, exactly=exactly)
            for src, dst, goal in random_jobs(grid, count)
        ]
        least = [min(one) for one in taken]
        every.extend(least)
        kind = "exactly at the goal" if exactly else "at the goal or faster"
        cases.append(
            Case(
                f"worst of {count} random pairs, {kind}",
                max(least),
                "s",
                floor=FLOOR_S,
                goal=GOAL_S,
                spread=max(spread_of(one) for one in taken),
            )
        )
        cases.append(Case(f"median of {count} pairs, {kind}", statistics.median(least), "s"))
    regions = len(grid.regions)
    cases.append(
        Case(
            f"regions{regions}: least cost over all {regions} regions, median of {len(every)}",
            statistics.median(every),
            "s",
            floor=FLOOR_S,
            goal=GOAL_S,
        )
    )
    return cases


def measured_cases(shipped: Grid, runs: int, *, smoke: bool) -> list[Case]:
    """Cases on the measured grid. Without that grid: none, and a line on stderr."""
    measured = measured_grid()
    if measured is None:
        print(
            f"no measured grid at {MEASURED_DIR}: the cases that need it are left out",
            file=sys.stderr,
        )
        return []
    return [
        *price_cases(shipped, measured),
        model_case(measured, FOLDS, 1 if smoke else None),
        *cost_cases(measured, runs, 2 if smoke else None),
        *ceiling_cases(measured, runs, 2 if smoke else None),
        frontier_case(measured, 3 if smoke else FRONTIER_POINTS),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--smoke", action="store_true", help="few pairs, one run: does it run")
    options = parser.parse_args(arguments)
    grid = load_grid()
    runs, count, pairs = (1, 2, 1) if options.smoke else (3, PAIRS, PLAIN_PAIRS)
    cases = [
        *speed_cases(grid, runs, count),
        plain_against_ours(grid, pairs),
        *measured_cases(grid, runs, smoke=options.smoke),
    ]
    return finish("planner", cases, runs=runs, as_json=options.json)


if __name__ == "__main__":
    keep_stdout()
    raise SystemExit(main())
