"""Runs the demo: servers, data, orchestrator, report and check.

Each orchestrator has a module `<name>_run` of this package with

    run_example(site: DemoSite) -> dict   the fields of `DemoRun`

which runs the example in another process with `site.environment()` and writes the output of
that process to `site.log_path`.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, Final

from example_dags.demo_support.dataset import DataSet, demo_data_set
from example_dags.demo_support.report import plan_lines, result_lines
from example_dags.demo_support.servers import DemoSite, demo_site
from example_dags.demo_support.verify import corrupt_one, left_running, relayed_share, verify

from skyplane_orchestration import TransferPlan, TransferResult

#: Smallest share of the bytes that must come through relays.
_MIN_RELAYED_SHARE: Final = 0.2

_MIN_GATEWAYS: Final = 4


@dataclass(frozen=True, slots=True)
class DemoRun:
    """What an orchestrator did in the demo.

    Args:
        state: `success`, or another final state of the run.
        tasks: name of each task or op -> its state.
        plan, transfer: documents of the plan and the result; None if missing.
        fleet_key: key of the fleet; empty if none came up.
        gateways: number of gateways.
    """

    state: str
    tasks: dict[str, str]
    plan: dict[str, Any] | None
    transfer: dict[str, Any] | None
    fleet_key: str
    gateways: int


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="run_demo.py", description=__doc__)
    parser.add_argument("orchestrator", choices=("airflow", "dagster"))
    parser.add_argument(
        "--corrupt",
        action="store_true",
        help="flip one bit at the destination before the check, which must then fail",
    )
    parser.add_argument(
        "--directory", type=Path, default=Path(".demo"), help="for state and the plan's picture"
    )
    options = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    print(f"the log of the run will be in {options.directory / _log_name(options)}")
    options.directory.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f"{options.orchestrator}-", dir=options.directory))
    try:
        with demo_site(work.resolve()) as site:
            try:
                problems = _demo(site, options.orchestrator, options.directory, options.corrupt)
            finally:
                _end_fleets(site)
                if site.log_path.exists():
                    shutil.copyfile(site.log_path, options.directory / _log_name(options))
    except KeyboardInterrupt:
        print("interrupted; everything that was started has been ended", file=sys.stderr)
        return 130
    finally:
        shutil.rmtree(work, ignore_errors=True)
    for problem in problems:
        print(f"problem: {problem}")
    return 1 if problems else 0


def _demo(site: DemoSite, orchestrator: str, directory: Path, corrupt: bool) -> list[str]:
    """Run the example, print a report, and return the problems."""
    data = demo_data_set()
    print(f"writing {len(data.sizes)} objects, {data.size_bytes} bytes, to {site.source.url}")
    data.write(site.source.client(), site.source.bucket, site.source.prefix)
    run = import_module(f"example_dags.demo_support.{orchestrator}_run").run_example
    demo_run = DemoRun(**run(site))
    print("-" * 79)
    print(f"{orchestrator}: {demo_run.state}; " + ", ".join(map(" ".join, demo_run.tasks.items())))
    problems = _report(demo_run, site, directory / "plan.svg")
    if corrupt:
        print(f"flipped one bit of {corrupt_one(data, site.destination)}")
    return [*problems, *_check(demo_run, data, site)]


def _report(demo_run: DemoRun, site: DemoSite, picture: Path) -> list[str]:
    problems = [] if demo_run.state == "success" else [f"the run ended as {demo_run.state}"]
    if demo_run.plan is None or demo_run.transfer is None:
        return [*problems, "there is no plan or no result"]
    plan = TransferPlan.from_dict(demo_run.plan)
    result = TransferResult.from_dict(demo_run.transfer)
    direct = _draw(plan, picture)
    for line in (*plan_lines(plan, direct), f"  picture: {picture}", *result_lines(plan, result)):
        print(line)
    share = relayed_share(demo_run.transfer, site.source.region, site.destination.region)
    print(
        f"  {demo_run.gateways} gateways, all of them processes of this machine; "
        f"{share:.0%} of the bytes came through relays"
    )
    if share <= _MIN_RELAYED_SHARE:
        problems.append(f"only {share:.0%} of the bytes came through relays")
    if demo_run.gateways < _MIN_GATEWAYS:
        problems.append(f"only {demo_run.gateways} gateways took part")
    return problems


def _draw(plan: TransferPlan, picture: Path) -> TransferPlan:
    """Write the plan's picture; returns the direct plan with one instance at each end."""
    from skyplane_orchestration import planner
    from skyplane_orchestration.grids import load_grid
    from skyplane_orchestration.planner.plots.plan_map import plan_svg

    grid = load_grid()
    picture.write_text(plan_svg(plan, grid), encoding="utf-8")
    return planner.direct(grid, plan.src, plan.dst, 1)


def _check(demo_run: DemoRun, data: DataSet, site: DemoSite) -> list[str]:
    """Print the two last lines of the demo and return the problems."""
    verification = verify(data, site.destination)
    running = left_running(site, (demo_run.fleet_key,) if demo_run.fleet_key else ())
    for line in (*verification.differences, *running):
        print(line)
    print(verification)
    print(f"left running: {len(running)}")
    problems = []
    if verification.differences or verification.objects != len(data.sizes):
        problems.append(f"{len(verification.differences)} differences at the destination")
    if running:
        problems.append(f"{len(running)} gateways still ran")
    return problems


def _end_fleets(site: DemoSite) -> None:
    """End the fleets that an interruption or a failure has left."""
    from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner

    if site.run_root.is_dir():
        provisioner = LocalProvisioner(LocalOptions(run_root=site.run_root))
        for directory in sorted(site.run_root.iterdir()):
            provisioner.destroy(directory.name)


def _log_name(options: argparse.Namespace) -> str:
    return f"{options.orchestrator}.log"


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
