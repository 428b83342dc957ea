"""Seconds of a small copy as a Dagster run: five ops, or one op.

    python -m bench.dagster_forms [--json] [--smoke] [--rounds N]

A file of 1 MB is copied between two folders. Each op is a process of its own, as by default. Times
are those of the runs, from start to end, without the start of the command.
"""

# No postponed annotations: Dagster reads those of the functions.

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any, Final

import dagster as dg

from bench.report import Case, finish, spread_of
from skyplane_orchestration import Location, TransferJob
from skyplane_orchestration.dagster import (
    SkyplaneResource,
    build_skyplane_transfer_asset,
    skyplane_assets,
)

ROUNDS: Final = 5
SIZE_BYTES: Final = 1_000_000
#: `one_op_apart` has its gateways in processes of their own.
FIVE, ONE, APART = FORMS = ("five_ops", "one_op", "one_op_apart")
_ROOT: Final = Path(__file__).resolve().parents[1]
#: Names the folder of a round to the process that loads the definitions.
_FOLDER: Final = "SKYPLANE_BENCH_FOLDER"


def definitions(folder: Path) -> dg.Definitions:
    """An asset of each form."""
    source = Location(f"file://{folder}/source/", "aws:us-east-1")
    ends = {form: Location(f"file://{folder}/{form}/", "aws:us-west-2") for form in FORMS}

    @skyplane_assets(jobs={ONE: TransferJob(source, ends[ONE])})
    def inside(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
        yield from skyplane.run(context=context)

    @skyplane_assets(jobs={APART: TransferJob(source, ends[APART])})
    def apart(context: dg.AssetExecutionContext, skyplane: SkyplaneResource) -> Iterator[Any]:
        yield from skyplane.run(context=context, gateways="always")

    five = build_skyplane_transfer_asset(FIVE, source=source, destination=ends[FIVE])
    resource = SkyplaneResource(deployment="bench", run_root=str(folder / "run"))
    return dg.Definitions(assets=[five, inside, apart], resources={"skyplane": resource})


def seconds_of(form: str, folder: Path) -> float:
    """Materialize the asset of a form in another process; the seconds of its run."""
    home = folder / "home"
    for place in (home, folder / "source", folder / form):
        place.mkdir(exist_ok=True)
    (folder / "source" / "a").write_bytes(os.urandom(SIZE_BYTES))
    environment = {
        **os.environ,
        "DAGSTER_HOME": str(home),
        "DAGSTER_DISABLE_TELEMETRY": "1",
        "XDG_CONFIG_HOME": str(folder / "config"),
        _FOLDER: str(folder),
    }
    subprocess.run(
        [sys.executable, "-m", "dagster", "asset", "materialize", "-f", __file__, "--select", form],
        cwd=_ROOT, env=environment, check=True, capture_output=True,
    )  # fmt: skip
    assert (folder / form / "a").stat().st_size == SIZE_BYTES
    with dg.DagsterInstance.from_config(str(home)) as instance:
        (record,) = instance.get_run_records()
    assert record.start_time is not None
    assert record.end_time is not None
    return record.end_time - record.start_time


def measure(rounds: int) -> Iterator[Case]:
    times: dict[str, list[float]] = {form: [] for form in FORMS}
    for _ in range(rounds):
        for form, seconds in times.items():
            with tempfile.TemporaryDirectory(prefix="dagster-forms-") as folder:
                seconds.append(seconds_of(form, Path(folder)))
    whole_s = median(times[FIVE])
    for form, seconds in times.items():
        value = median(seconds)
        yield Case(form, value, "s", ratio=value / whole_s, against=FIVE, spread=spread_of(seconds))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.dagster_forms")
    parser.add_argument("--json", action="store_true", help="one JSON object")
    parser.add_argument("--smoke", action="store_true", help="one round")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    options = parser.parse_args(arguments)
    rounds = 1 if options.smoke else options.rounds
    return finish("dagster_forms", list(measure(rounds)), runs=rounds, as_json=options.json)


if _FOLDER in os.environ:
    defs = definitions(Path(os.environ[_FOLDER]))

if __name__ == "__main__":
    sys.exit(main())
