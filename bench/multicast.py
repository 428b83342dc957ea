"""Planning time, gap and saving of plans for several destinations.

    python -m bench.multicast [--json] [--smoke]

Seeded problems over every region of the shipped grid. The time includes the separate plans of the
comparison.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Sequence

from bench.report import Case, finish
from skyplane_orchestration.cli.main import keep_stdout
from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.model.job import Limits, MinimizeCost
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import multicast_plan

SEED = 20261120
PROBLEMS = 12
#: A person waits for it.
FLOOR_S, GOAL_S = 20.0, 5.0
#: What three regions of another cloud save when they share the way there.
FAN_OUT = ("gcp:us-east4", ("aws:ap-southeast-1", "aws:ap-northeast-1", "aws:ap-south-1"), 4.0)


def random_plans(grid: Grid, destinations: int, count: int) -> list[tuple[float, TransferPlan]]:
    """Seconds and plan of `count` feasible problems, with a floor of 1 to 12 Gbit/s."""
    chooser = random.Random(SEED + destinations)
    made: list[tuple[float, TransferPlan]] = []
    while len(made) < count:
        src, *others = chooser.sample(grid.tags, destinations + 1)
        floor = MinimizeCost(round(chooser.uniform(1.0, 12.0), 1), exactly=len(made) % 2 == 1)
        started = time.perf_counter()
        try:
            plan = multicast_plan(grid, src, others, floor)
        except PlanInfeasible:
            continue
        made.append((time.perf_counter() - started, plan))
    return made


def tight_plans(grid: Grid, count: int) -> list[tuple[float, TransferPlan]]:
    """Seconds and plan of problems near their limits: 40 to 95 % of the largest rate."""
    chooser = random.Random(SEED)
    made: list[tuple[float, TransferPlan]] = []
    while len(made) < count:
        src, *others = chooser.sample(grid.tags, chooser.choice([2, 3, 4, 6]) + 1)
        limits = Limits(
            instance_limit=chooser.choice([1, 2, 4, 8]),
            max_relays=chooser.choice([None, None, 1, 2]),
        )
        try:
            multicast_plan(grid, src, others, MinimizeCost(1e6), limits=limits)
        except PlanInfeasible as refused:
            most = refused.most_gbps or 0.0
        floor = MinimizeCost(most * chooser.uniform(0.4, 0.95), exactly=len(made) % 2 == 1)
        started = time.perf_counter()
        plan = multicast_plan(grid, src, others, floor, limits=limits)
        made.append((time.perf_counter() - started, plan))
    return made


def tight_cases(grid: Grid, count: int) -> list[Case]:
    """Times and proven gaps near the limits."""
    name = f"2 to 6 destinations near their limits, {count} problems"
    return times_and_gaps(name, tight_plans(grid, count))


def times_and_gaps(name: str, made: Sequence[tuple[float, TransferPlan]]) -> list[Case]:
    """Median and worst of planning times and of proven gaps."""
    seconds = [taken for taken, _ in made]
    gaps = [100 * plan.solver.gap for _, plan in made]
    return [
        Case(f"{name}: median", statistics.median(seconds), "s", floor=FLOOR_S, goal=GOAL_S),
        Case(f"{name}: worst", max(seconds), "s", floor=FLOOR_S, goal=GOAL_S),
        Case(f"{name}: proven gap, median", statistics.median(gaps), "% error"),
        Case(f"{name}: proven gap, worst", max(gaps), "% error"),
    ]


def cases_of(grid: Grid, destinations: int, count: int) -> list[Case]:
    """Times, proven gaps and savings for one number of destinations."""
    made = random_plans(grid, destinations, count)
    saved = [
        100 * (1 - plan.cost.usd_per_gb / plan.separate_usd_per_gb)
        for _, plan in made
        if plan.separate_usd_per_gb is not None
    ]
    name = f"{destinations} destinations, {count} random problems"
    return [
        *times_and_gaps(name, made),
        Case(f"{name}: saved against separate plans, median", statistics.median(saved), "%"),
        Case(f"{name}: saved against separate plans, most", max(saved), "%"),
    ]


def fan_out_case(grid: Grid) -> Case:
    src, destinations, floor = FAN_OUT
    started = time.perf_counter()
    plan = multicast_plan(grid, src, destinations, MinimizeCost(floor))
    taken = time.perf_counter() - started
    total = plan.separate_usd_per_gb or plan.cost.usd_per_gb
    return Case(
        f"{src} to {', '.join(destinations)} at {floor:g} Gbit/s or faster",
        taken,
        "s",
        ratio=plan.cost.usd_per_gb / total,
        against="USD per GB of separate plans",
        floor=FLOOR_S,
        goal=GOAL_S,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--smoke", action="store_true", help="few problems: does it run")
    options = parser.parse_args(arguments)
    grid = load_grid()
    count = 1 if options.smoke else PROBLEMS
    sizes = (2,) if options.smoke else (2, 3, 6)
    cases = [
        fan_out_case(grid),
        *(case for size in sizes for case in cases_of(grid, size, count)),
        *tight_cases(grid, count),
    ]
    return finish("multicast", cases, runs=1, as_json=options.json)


if __name__ == "__main__":
    keep_stdout()
    raise SystemExit(main())
