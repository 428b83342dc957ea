"""Plans over an emulated wide area: planned, probed and achieved.

    python -m bench.wan [SCENARIO ...] [--json] [--rounds N] [--smoke] [--transfers N,N]
                        [--picture FILE.svg]
    python -m bench.wan --plan PLAN.json [--grid NAME|DIR] [--scale N]

SCENARIO is a name of bench/wan/scenarios or a TOML file; without one, all of that folder run. The
second form runs a plan of `skyplane-orch plan --json` over lines with the rates and round trips of
its grid, divided by N. Needs root and /dev/net/tun; without them it says so and ends well.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.report import Case, finish, spread_of
from bench.wan import area as areas, peer, scenario as scenarios
from bench.wan.area import Area
from bench.wan.network import Unavailable
from bench.wan.picture import Bars, svg
from bench.wan.scenario import Scenario
from bench.wan.trial import Trial, planned, running
from skyplane_orchestration.cli.main import keep_stdout
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.model.plan import TransferPlan

#: Floor and goal by scenario: of achieved over planned, or over what remains.
BOUNDS = {
    "a": (0.90, 0.95),
    "b": (0.90, 0.95),
    "c": (0.80, 0.90),
    "d": (0.80, 0.90),
    "f": (0.80, 0.90),
    "line": (0.90, 0.97),
}
ROUNDS = 5
SMOKE_S = 4.0


@dataclass(frozen=True, slots=True)
class Run:
    """The trials of one scenario.

    Attributes:
        trials: by transfer, in rounds.
        direct: the same over the direct path alone; empty where the scenario does not ask.
        iperf3_gbps: by transfer and round, beside them; likewise.
    """

    name: str
    scenario: Scenario
    carries_gbps: float
    trials: list[list[Trial]]
    direct: list[list[Trial]]
    iperf3_gbps: list[list[float]]


def run(name: str, scenario: Scenario, rounds: int, given: TransferPlan | None = None) -> Run:
    """Run all transfers of a scenario so many times. Raises Unavailable."""
    memory = Path("/dev/shm")
    with (
        tempfile.TemporaryDirectory(
            prefix="wan-", dir=memory if memory.is_dir() else None
        ) as folder,
        areas.opened(scenario, Path(folder)) as area,
    ):
        trials, direct, beside = [], [], []
        for src, dst in scenario.transfers:
            plan = given or planned(area, src, dst)
            now: list[Trial] = []
            rates: list[float] = []
            for trial in _rounds(area, plan, rounds):
                now.append(trial)
                if scenario.beside_iperf3:
                    rates.append(peer.iperf3_gbps(area, plan))
                share = share_of(trial, scenario)
                print(f"wan-{name}: {src} to {dst}: {share:.3f}", file=sys.stderr, flush=True)
            trials.append(now)
            beside.append(rates)
            if scenario.against_direct:
                alone = planned(area, src, dst, is_direct=True)
                direct.append(list(_rounds(area, alone, rounds)))
        return Run(name, scenario, area.carries_gbps, trials, direct, beside)


def _rounds(area: Area, plan: TransferPlan, rounds: int) -> Iterator[Trial]:
    """The trials of one plan. A fleet that loses gateways serves one of them."""
    fleets = rounds if any(event.kill for event in area.scenario.events) else 1
    for _ in range(fleets):
        with running(area, plan) as copy:
            for _ in range(rounds // fleets):
                yield copy()


def remaining_gbps(plan: TransferPlan, scenario: Scenario) -> float:
    """What the plan's paths carry after all events, on lines as they really are."""
    shares = {(line.src, line.dst): line.rate_share for line in scenario.lines}
    for event in scenario.events:
        if event.kill:
            shares |= {
                (edge.src, edge.dst): 0.0
                for edge in plan.edges
                if event.kill in (edge.src, edge.dst)
            }
        else:
            shares[event.src, event.dst] = event.rate_share
    flows = {(edge.src, edge.dst): edge for edge in plan.edges}

    def left(edge: tuple[str, str]) -> float:
        one = flows[edge]
        return min(1.0, one.capacity_gbps * shares.get(edge, 1.0) / one.flow_gbps)

    return sum(
        path.flow_gbps * min(left(edge) for edge in pairwise(path.regions)) for path in plan.paths
    )


def share_of(trial: Trial, scenario: Scenario) -> float:
    """Achieved over planned; after an event, or on a wrong grid, over what remains."""
    if trial.after_gbps is not None:
        return trial.after_gbps / remaining_gbps(trial.plan, scenario)
    if any(line.rate_share != 1 for line in scenario.lines):
        return trial.result.goodput_gbps / remaining_gbps(trial.plan, scenario)
    return trial.of_plan


def cases_of(one: Run) -> Iterator[Case]:
    """The rows of a scenario. Raises AssertionError where bytes are lost."""
    for trial in (trial for rounds in (*one.trials, *one.direct) for trial in rounds):
        if trial.differing:
            raise AssertionError(f"wan-{one.name}: not the same at both ends: {trial.differing}")
    shares = list(_shares(one))
    floor, goal = BOUNDS.get(one.name, (None, None))
    remains = one.scenario.events or any(line.rate_share != 1 for line in one.scenario.lines)
    unit = "x what remains" if remains else "x planned"
    yield Case(
        one.name if one.name == "line" else f"wan-{one.name}",
        statistics.median(statistics.median(row) for row in shares),
        "x iperf3" if one.scenario.beside_iperf3 else unit,
        floor=floor,
        goal=goal,
        spread=spread_of([share for row in shares for share in row]),
    )
    for ours, alone in zip(one.trials, one.direct, strict=False):
        gains = [
            over.result.goodput_gbps / direct.result.goodput_gbps
            for over, direct in zip(ours, alone, strict=True)
        ]
        predicted = ours[0].plan.throughput_gbps / alone[0].plan.throughput_gbps
        name = "overlay-over-direct" if one.name == "a" else f"overlay-over-direct, {one.name}"
        yield Case(
            name, 100 * abs(statistics.median(gains) / predicted - 1), "% error",
            ratio=statistics.median(gains), against=f"{predicted:.2f} predicted",
            floor=10.0, goal=5.0, spread=spread_of(gains),
        )  # fmt: skip


def _shares(one: Run) -> Iterator[list[float]]:
    """By transfer and round: of the plan, of what remains, or of iperf3 beside it."""
    for trials, rates in zip(one.trials, one.iperf3_gbps, strict=True):
        if rates:
            yield [
                trial.result.goodput_gbps / rate for trial, rate in zip(trials, rates, strict=True)
            ]
        else:
            yield [share_of(trial, one.scenario) for trial in trials]


def details_of(one: Run) -> dict[str, Any]:
    """Planned, probed and achieved by transfer and edge, for the report."""
    return {
        "scenario": one.name,
        "about": one.scenario.about,
        "scale": one.scenario.scale,
        "switch_carries_gbps": one.carries_gbps,
        "iperf3_gbps": one.iperf3_gbps,
        "transfers": [_transfer(rounds) for rounds in (*one.trials, *one.direct)],
    }


def _transfer(rounds: Sequence[Trial]) -> dict[str, Any]:
    first = rounds[0]
    achieved = {
        (edge.src, edge.dst): statistics.median(
            next(row.achieved_gbps for row in trial.result.edges
                 if (row.src, row.dst) == (edge.src, edge.dst))
            for trial in rounds
        )
        for edge in first.fleet_plan.edges
    }  # fmt: skip
    return {
        "src": first.plan.src,
        "dst": first.plan.dst,
        "planned_gbps": first.plan.throughput_gbps,
        "planned_after_probe_gbps": first.fleet_plan.throughput_gbps,
        "achieved_gbps": [trial.result.goodput_gbps for trial in rounds],
        "steady_gbps": [trial.steady_gbps for trial in rounds],
        "after_event_gbps": [trial.after_gbps for trial in rounds],
        "seconds": [trial.result.seconds for trial in rounds],
        "late_share": [trial.late_share for trial in rounds],
        "switch_cpu": [trial.switch_cpu for trial in rounds],
        "warnings": sorted({text for trial in rounds for text in trial.result.warnings}),
        "edges": [
            {
                "src": edge.src,
                "dst": edge.dst,
                "connections": edge.connections,
                "planned_gbps": edge.flow_gbps,
                "probed_gbps": first.probed_gbps.get((edge.src, edge.dst)),
                "achieved_gbps": achieved[edge.src, edge.dst],
            }
            for edge in first.fleet_plan.edges
        ],
    }


def bars_of(one: Run) -> Iterator[Bars]:
    """One row by transfer; where there is one alone, also by edge."""
    for rounds in one.trials:
        plan, probed = rounds[0].plan, rounds[0].fleet_plan
        yield Bars(
            f"{plan.src} to {plan.dst}",
            plan.throughput_gbps,
            probed.throughput_gbps if rounds[0].probed_gbps else None,
            _median([trial.steady_gbps for trial in rounds]),
            statistics.median(trial.result.goodput_gbps for trial in rounds),
        )
        if len(one.trials) == 1:
            for edge in _transfer(rounds)["edges"]:
                rates = (edge["planned_gbps"], edge["probed_gbps"], None, edge["achieved_gbps"])
                yield Bars(f"{edge['src']} > {edge['dst']}", *rates)


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _of_plan(file: Path, grid: str, scale: float) -> tuple[Scenario, TransferPlan]:
    """A scenario around a plan, and the plan at the scaled rates; raises as `_wanted`."""
    plan = TransferPlan.from_dict(json.loads(file.read_text(encoding="utf-8")))
    if plan.trees or not plan.edges:
        raise ValueError("--plan takes plans for one destination, in another region")
    scenario = Scenario(
        about=f"the plan of {file.name}",
        grid=grid,
        transfers=((plan.src, plan.dst),),
        objective=plan.objective,
        regions=tuple(plan.instances),
        scale=scale,
        instances=max(group.count for group in plan.instances.values()),
    )
    gbps = plan.throughput_gbps / scale
    return scenario, replace(
        plan,
        throughput_gbps=gbps,
        volume_gb=gbps * scenario.seconds / 8,
        edges=tuple(
            replace(
                edge, flow_gbps=edge.flow_gbps / scale, capacity_gbps=edge.capacity_gbps / scale
            )
            for edge in plan.edges
        ),
        paths=tuple(replace(path, flow_gbps=path.flow_gbps / scale) for path in plan.paths),
    )


def _wanted(options: argparse.Namespace) -> list[tuple[str, Scenario, TransferPlan | None]]:
    """Name, scenario and given plan of each run. Raises SkyplaneError, OSError, ValueError."""
    if options.scale <= 0 or options.rounds < 1:
        raise ValueError("--scale is above 0, and --rounds at least 1")
    if options.plan is not None:
        return [("plan", *_of_plan(options.plan, options.grid, options.scale))]
    wanted: list[tuple[str, Scenario, TransferPlan | None]] = []
    for name in options.scenario or scenarios.names():
        scenario = scenarios.load(name)
        if options.transfers is not None:
            numbers = [int(text) for text in options.transfers.split(",")]
            count = len(scenario.transfers)
            if not all(1 <= number <= count for number in numbers):
                raise ValueError(f"--transfers has numbers from 1 to {count} for {name}")
            some = tuple(scenario.transfers[number - 1] for number in numbers)
            scenario = replace(scenario, transfers=some)
        if options.smoke:
            scenario = replace(scenario, seconds=SMOKE_S, transfers=scenario.transfers[:1])
        wanted.append((Path(name).stem, scenario, None))
    return wanted


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.wan",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("scenario", nargs="*", help="default: all")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--smoke", action="store_true", help="one short round: does it run")
    parser.add_argument("--transfers", help="of each scenario, by number: 1,4; default: all")
    parser.add_argument("--picture", type=Path, help="SVG with the rates of the first scenario")
    parser.add_argument("--plan", type=Path, help="a plan of skyplane-orch plan --json")
    parser.add_argument("--grid", default="shipped", help="of the plan")
    parser.add_argument("--scale", type=float, default=20.0, help="of the plan's rates")
    options = parser.parse_args(arguments)
    rounds = 1 if options.smoke else options.rounds
    try:
        wanted = _wanted(options)
        for _, scenario, _ in wanted:
            load_grid(scenario.grid)
    except (SkyplaneError, OSError, ValueError) as error:
        print(f"bench.wan: {error}", file=sys.stderr)
        return 2
    made: list[Run] = []
    try:
        for name, scenario, plan in wanted:
            made.append(run(name, scenario, rounds, plan))
    except Unavailable as error:
        print(f"the emulated wide area is left out: {error}", file=sys.stderr)
    if options.picture is not None and made:
        title = f"Planned, probed and achieved: {made[0].scenario.about}"
        options.picture.write_text(svg(title, list(bars_of(made[0]))), encoding="utf-8")
    cases = [case for one in made for case in cases_of(one)]
    if options.smoke:
        cases = [replace(case, floor=None, goal=None) for case in cases]
    more = {"scenarios": [details_of(one) for one in made]}
    return finish("wan", cases, runs=rounds, as_json=options.json, more=more)


if __name__ == "__main__":
    keep_stdout()  # The solver prints.
    raise SystemExit(main())
