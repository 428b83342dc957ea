"""Copies to several destinations: bytes on the shared edge and time; and how plans are made.

    python -m bench.multicast [--json] [--smoke] [--copies]

`multicast-3` copies to three destinations behind one relay, over lines of one rate between gateways
that are processes of this machine. A proxy counts the bytes on the shared edge. In each round the
same three copies run one by one as well.
The other cases plan seeded problems over every region of the shipped grid. Their time includes the
separate plans of the comparison.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.faults.shaped_lines import Lines, between_gateways

from bench.report import Case, finish, spread_of
from skyplane_orchestration.cli.main import keep_stdout
from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.model.job import Limits, MinimizeCost, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import multicast_plan

SEED = 20261120
PROBLEMS = 12
#: A person waits for it.
FLOOR_S, GOAL_S = 20.0, 5.0
#: A line between two gateways of the copies, Gbit/s; and rounds and objects of the copies.
LINE_GBPS = 0.2
ROUNDS, OBJECTS = 5, 8
#: The most that a shared copy may take, over the slowest copy alone.
TIME_FLOOR = 1.2
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


def copied(sinks: Sequence[str], root: Path, lines: Lines) -> tuple[float, int]:
    """Seconds of the slowest transfer of one copy, and bytes on the edges out of the source."""
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.identity import RunIdentity
    from skyplane_orchestration.provision.local import LocalProvisioner

    run = uuid.uuid4().hex
    client = Client(identity=RunIdentity("bench", "multicast", run), provisioner=LocalProvisioner())
    places = [Location(f"{root}/{run}/{number}/", tag) for number, tag in enumerate(sinks)]
    job = TransferJob(
        Location(f"{root}/source/", FAN_OUT[0]),
        places[0],
        objective=MinimizeCost(FAN_OUT[2]),
        limits=Limits(chunk_mib=5),
    )
    before = Counter(lines.carried_bytes)
    further = places[1:]
    results = list(client.run_to_all(job, further).values()) if further else [client.run(job)]
    for place in places:
        shutil.rmtree(f"/{place.key}")
    sent = lines.carried_bytes - before
    out = sum(count for (tail, _), count in sent.items() if tail == FAN_OUT[0])
    return max(result.seconds for result in results), out


def copies_cases(rounds: int, data_bytes: int) -> list[Case]:
    """`multicast-3`, beside the same copies one by one; medians over the rounds."""
    grid, sinks = load_grid(), FAN_OUT[1]
    rates = {(one, other): LINE_GBPS for one in grid.tags for other in grid.tags}
    shares, times = [], []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        root = Path(folder)
        (root / "source").mkdir()
        for number in range(OBJECTS):
            body = random.Random(number).randbytes(data_bytes // OBJECTS)
            (root / "source" / f"object-{number:02}").write_bytes(body)
        patch.setenv("XDG_RUNTIME_DIR", folder)
        with between_gateways(rates, patch) as lines:
            for _ in range(rounds):
                together_s, sent = copied(sinks, root, lines)
                alone = [copied([sink], root, lines) for sink in sinks]
                shares.append(sent / data_bytes)
                times.append(together_s / max(seconds for seconds, _ in alone))
                alone_share = sum(sent for _, sent in alone) / data_bytes
    return [
        Case(
            "multicast-3: bytes on the shared edge",
            statistics.median(shares),
            "x bytes",
            ratio=alone_share,
            against="x bytes of three copies one by one",
            floor=1.02,
            goal=1.0,
            spread=spread_of(shares),
        ),
        Case(
            "multicast-3: seconds over the slowest copy alone",
            statistics.median(times),
            "x time",
            floor=TIME_FLOOR,
            goal=1.05,
            spread=spread_of(times),
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--smoke", action="store_true", help="few problems: does it run")
    parser.add_argument("--copies", action="store_true", help="only multicast-3")
    options = parser.parse_args(arguments)
    grid = load_grid()
    count = 1 if options.smoke else PROBLEMS
    sizes = (2,) if options.smoke else (2, 3, 6)
    copies = copies_cases(1, 16 << 20) if options.smoke else copies_cases(ROUNDS, 256 << 20)
    if options.copies:
        return finish("multicast", copies, runs=len(copies), as_json=options.json)
    cases = [
        *copies,
        fan_out_case(grid),
        *(case for size in sizes for case in cases_of(grid, size, count)),
        *tight_cases(grid, count),
    ]
    return finish("multicast", cases, runs=1, as_json=options.json)


if __name__ == "__main__":
    keep_stdout()
    raise SystemExit(main())
