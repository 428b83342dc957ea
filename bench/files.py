"""A bucket as files: the table of SkyPilot's storage benchmark, by fio, beside the plain disk.

    python -m bench.files [--json] [--smoke] [--rounds N] [--rows ROW,ROW]

`files`: four processes write and read a file of 1 GB each in blocks of 64 KiB, past the page cache,
below a mount by `skyplane-orch mount` and on the disk, in turn. Another mount reads what one has
written, so nothing is in its cache. `write-stored` is the rate until the mount has ended and all is
in the store. `copy`: one object of 1 GB from the store to the disk, as a whole command. The store
is in memory; there are no floors.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench import copy
from bench.contest import run
from bench.peers import aws_binary, rclone_binary
from bench.places import SOURCE, Places, open_places
from bench.report import Case, spread_of

ROUNDS: Final = 3
FILES, COPY = "files", "copy"
ROWS: Final = (FILES, COPY)
MOUNT, DISK, OWN, RCLONE, AWS = "mount", "disk", "cp", "rclone", "aws"
_START_S: Final = 30.0
_END_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class Work:
    """Processes, and the bytes of each one's file."""

    jobs: int = 4
    size_bytes: int = 1 << 30


SMOKE: Final = Work(2, 1 << 20)

#: MB/s or IOPS by figure, such as `read`, and place.
Figures = dict[str, dict[str, float]]


class Unmountable(Exception):
    """There is no fio, or no tool that mounts."""


def fio(kind: str, folder: Path, work: Work) -> list[str]:
    """SkyPilot's command, with the same files for `read` and `write`."""
    options = {
        "name": "64kseq",
        "rw": kind,
        "direct": 1,
        "ioengine": "libaio",
        "bs": "64k",
        "numjobs": work.jobs,
        "iodepth": 128,
        "size": work.size_bytes,
        "directory": folder,
        "output-format": "json",
    }
    return ["fio", "--group_reporting", *(f"--{name}={value}" for name, value in options.items())]


def rates_of(document: Mapping[str, Any], kind: str) -> tuple[float, float]:
    """MB/s and IOPS of fio's answer."""
    [job] = document["jobs"]
    return job[kind]["bw_bytes"] / 1e6, job[kind]["iops"]


def run_fio(kind: str, folder: Path, work: Work) -> tuple[float, float]:
    done = subprocess.run(fio(kind, folder, work), capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"fio {kind} in {folder} ended with {done.returncode}: {done.stderr}")
    # What it says about its files comes first.
    return rates_of(json.loads(done.stdout[done.stdout.index("{") :]), kind)


@contextmanager
def mounted(places: Places, disk: Path) -> Iterator[Path]:
    """The source's bucket as a folder, until the block ends. The cache is empty, and on the disk.

    Raises:
        Unmountable: the command has ended, and says why.
    """
    folder, cache = disk / "mount", disk / "cache"
    for made in (folder, cache):
        made.mkdir()
    command = [sys.executable, "-m", "skyplane_orchestration.cli", "mount", places.urls[0]]
    command += [str(folder), "--src-endpoint", places.endpoints[0]]
    environment = {**places.environment, "XDG_CACHE_HOME": str(cache), "TMPDIR": str(cache)}
    environment["PATH"] += f":{Path(rclone_binary() or '').parent}"
    with (disk / "mount.log").open("w+") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        try:
            deadline_s = time.monotonic() + _START_S
            while not os.path.ismount(folder):
                if process.poll() is not None or time.monotonic() > deadline_s:
                    raise Unmountable((disk / "mount.log").read_text().strip()[-500:])
                time.sleep(0.05)
            yield folder
        finally:
            process.terminate()
            process.wait(_END_S)
    if os.path.ismount(folder):
        raise AssertionError(f"the mount has ended and {folder} is still mounted")
    folder.rmdir()
    shutil.rmtree(cache)


def files_round(places: Places, disk: Path, work: Work) -> Figures:
    """Raises as `mounted`."""
    found: Figures = defaultdict(dict)

    def add(kind: str, place: str, folder: Path) -> None:
        found[kind][place], found[f"{kind}-iops"][place] = run_fio(kind, folder, work)

    began_s = time.perf_counter()
    with mounted(places, disk) as folder:
        add("write", MOUNT, folder)
    stored_s = time.perf_counter() - began_s
    found["write-stored"][MOUNT] = work.jobs * work.size_bytes / 1e6 / stored_s
    plain = disk / "plain"
    plain.mkdir()
    add("write", DISK, plain)
    with mounted(places, disk) as folder:
        add("read", MOUNT, folder)
    add("read", DISK, plain)
    shutil.rmtree(plain)
    stored = [*(places.folder / SOURCE / SOURCE).glob("64kseq.*")]
    sizes = [path.stat().st_size for path in stored]
    if sizes != [work.size_bytes] * work.jobs:
        raise AssertionError(f"the store holds files of {sizes} bytes")
    for path in stored:
        path.unlink()
    return found


def copy_commands(places: Places, target: Path) -> dict[str, list[str]]:
    """From the object `one` to the disk, by name of the tool."""
    url, endpoint = f"{places.urls[0]}/one", places.endpoints[0]
    own = [sys.executable, "-m", "skyplane_orchestration.cli", "cp", "-q", url, str(target)]
    found = {OWN: [*own, "--src-endpoint", endpoint]}
    if rclone := rclone_binary():
        found[RCLONE] = [rclone, "copyto", f"near:{SOURCE}/one", str(target)]
    if aws := aws_binary():
        found[AWS] = [aws, "--endpoint-url", endpoint, "s3", "cp", "--quiet", url, str(target)]
    return found


def copy_round(places: Places, disk: Path, size_bytes: int) -> Figures:
    target = disk / "copied"
    found: dict[str, float] = {}
    for name, command in copy_commands(places, target).items():
        found[name] = size_bytes / 1e6 / places.seconds(command)
        target.unlink()
    return {COPY: found}


def cases_of_figures(rounds: Sequence[Figures]) -> list[Case]:
    """One case for each figure and place; the ratio is to the disk, or to `cp`, if there is one."""
    cases = []
    for figure, places in rounds[0].items():
        reference = OWN if figure == COPY else DISK
        unit = "IOPS" if figure.endswith("iops") else "MB/s"
        for place in places:
            values = [row[figure][place] for row in rounds]
            value, ratio = statistics.median(values), None
            if place != reference and reference in places:
                ratio = value / statistics.median(row[figure][reference] for row in rounds)
            against = reference if ratio is not None else None
            named = f"{FILES}-{figure}-{place}"
            cases.append(Case(named, value, unit, ratio, against, spread=spread_of(values)))
    return cases


def measure(options: argparse.Namespace) -> tuple[list[Case], int]:
    """The cases of the rows, and the number of rounds."""
    work = SMOKE if options.smoke else Work()
    rounds = 1 if options.smoke else options.rounds or ROUNDS
    cases: list[Case] = []
    with open_places("s3") as places, tempfile.TemporaryDirectory(prefix="bench-") as folder:
        disk = Path(folder)
        if FILES in options.rows:
            try:
                if shutil.which("fio") is None:
                    raise Unmountable("there is no fio; install the package of that name")
                made = [files_round(places, disk, work) for _ in range(rounds)]
                cases += cases_of_figures(made)
            except Unmountable as error:
                print(f"{FILES} is left out: {error}", file=sys.stderr)
        if COPY in options.rows:
            [(_, body)] = copy.bodies_of(1, work.size_bytes)
            places.fill(0, iter([("one", body)]))
            made = [copy_round(places, disk, work.size_bytes) for _ in range(rounds)]
            cases += cases_of_figures(made)
    return cases, rounds


def main(arguments: Sequence[str] | None = None) -> int:
    return run("files", __doc__, arguments, measure, ROWS)


if __name__ == "__main__":
    raise SystemExit(main())
