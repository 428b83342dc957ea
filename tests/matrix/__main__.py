"""Runs the suites of the orchestrators with each release line, and prints one row per environment.

    python -m tests.matrix                            # every line, with its default Python
    python -m tests.matrix airflow-2.11 --python 3.12
    python -m tests.matrix dagster-1.13 --module tests.e2e_dagster
    python -m tests.matrix airflow-3.3 --beside       # only beside releases of Airflow
    python -m tests.matrix --compile                  # resolve the pins again

What the tests print goes to `.matrix/LINE-pyMINOR.log`. A line whose Python is not on this machine
is skipped, which its row says.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path
from typing import Final

from tests.e2e.processes import leave_by_sigterm
from tests.matrix.beside import PYTHON, Official, check_beside
from tests.matrix.environments import FOLDER, CommandFailed, compile_pins, environment, find_python
from tests.matrix.lines import COMMAND_LINE, LINES, REPOSITORY, Line

_VERSIONS: Final = """
import sys
from importlib.metadata import version
print("Python", "%d.%d.%d" % sys.version_info[:3],
      *(f"{name.removeprefix('apache-')} {version(name)}" for name in sys.argv[1:]))
"""
_PACKAGES: Final = {"airflow": "apache-airflow", "dagster": "dagster"}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.matrix")
    parser.add_argument("lines", nargs="*", metavar="LINE", help="all by default")
    parser.add_argument("--python", help="minor version, such as 3.12; default: one per line")
    parser.add_argument(
        "--compile", action="store_true", help="resolve the pins again, run nothing"
    )
    parser.add_argument("--beside", action="store_true", help="install only, run no suites")
    parser.add_argument("--module", help="run this module in the environment, and no suites")
    given = parser.parse_args()
    by_name = {line.name: line for line in (*LINES, *((COMMAND_LINE,) if given.compile else ()))}
    unknown = set(given.lines) - set(by_name)
    if unknown:
        parser.error(f"no line is named {', '.join(sorted(unknown))}; use {', '.join(by_name)}")
    chosen = [by_name[name] for name in given.lines] or list(by_name.values())
    if given.compile:
        for line in chosen:
            compile_pins(line)
        return 0
    FOLDER.mkdir(exist_ok=True)
    leave_by_sigterm()
    if given.module:
        return max(
            run_module(line, given.python or line.pythons[0], given.module) for line in chosen
        )
    totals: Counter[str] = Counter()
    for line in chosen:
        if not given.beside:
            totals += run_line(line, given.python or line.pythons[0])
        if given.python in (None, PYTHON):
            totals += run_beside(line)
    print(f"{totals['passed']} passed, {totals['failed']} failed, {totals['skipped']} skipped")
    return 1 if totals["failed"] else 0


def python_of(line: Line, minor: str) -> Path | None:
    """The interpreter for a line; None, with the reason printed, if there is none."""
    python = find_python(minor) if minor in line.pythons else None
    if python is None:
        reason = "this machine has none" if minor in line.pythons else "not supported by the line"
        print(f"{line.name:<14}skipped: Python {minor}: {reason}", flush=True)
    return python


def run_module(line: Line, minor: str, module: str) -> int:
    """Run a module in the environment of a line. Raises CommandFailed if there is none."""
    python = python_of(line, minor)
    if python is None:
        return 0
    # `run` would end it by SIGKILL, and leave what it has started.
    with subprocess.Popen(
        [environment(line, minor, python), "-m", module], cwd=REPOSITORY
    ) as process:
        try:
            return process.wait()
        finally:
            process.terminate()


def run_line(line: Line, minor: str) -> Counter[str]:
    """Run the suites of a line, and print its row. Counts by outcome."""
    begun_s = time.monotonic()
    python = python_of(line, minor)
    if python is None:
        return Counter()
    log = FOLDER / f"{line.name}-py{minor}.log"
    try:
        interpreter = environment(line, minor, python)
    except CommandFailed as error:
        print(f"{line.name:<14}Python {minor}: the install failed\n{error}", flush=True)
        return Counter(failed=1)
    installed_s = time.monotonic() - begun_s
    counts = run_suites(line, interpreter, log)
    names = [_PACKAGES[name] for name in line.orchestrators]
    versions = subprocess.check_output([interpreter, "-c", _VERSIONS, *names], text=True).strip()
    tests_s = time.monotonic() - begun_s - installed_s
    print(
        f"{line.name:<14}{versions:<46}{counts['passed']:>4} passed{counts['failed']:>3} failed"
        f"{counts['skipped']:>3} skipped{tests_s:>6.0f} s, {installed_s:.0f} s to install",
        flush=True,
    )
    if counts["failed"]:
        print(f"{'':<14}see {log.relative_to(REPOSITORY)}", flush=True)
    return counts


def run_beside(line: Line) -> Counter[str]:
    """Install the package beside releases of Airflow, and print their rows. Counts by outcome."""
    counts: Counter[str] = Counter()
    python = python_of(line, PYTHON) if line.beside else None
    for official in map(Official, line.beside if python else ()):
        assert python is not None
        try:
            wrong = check_beside(line, official, python)
        except CommandFailed as error:
            wrong = [str(error)]
        counts["failed" if wrong else "passed"] += 1
        said = "\n".join(wrong) or "what was installed is unchanged"
        print(
            f"{line.name:<14}beside Airflow {official.release}, Python {PYTHON}: {said}", flush=True
        )
    return counts


def run_suites(line: Line, interpreter: Path, log: Path) -> Counter[str]:
    """Run pytest; what failed is printed by name."""
    report = log.with_suffix(".xml")
    report.unlink(missing_ok=True)
    kept = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    with log.open("wb") as output:
        status = subprocess.call(
            [interpreter, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}",
             "-m", "not soak and not image and not kubernetes",
             "--numprocesses", "3", "--dist", "loadfile", "--no-loadscope-reorder",
             *line.suites],
            cwd=REPOSITORY, env=kept, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    counts: Counter[str] = Counter()
    cases = ET.parse(report).iter("testcase") if report.exists() else ()
    for case in cases:
        kinds = {child.tag for child in case}
        failed = bool(kinds & {"failure", "error"})
        counts["failed" if failed else "skipped" if "skipped" in kinds else "passed"] += 1
        if failed:
            print(f"{'':<14}FAILED {case.get('classname')}::{case.get('name')}", flush=True)
    if status and not counts["failed"]:
        print(f"{'':<14}pytest ended with status {status}", flush=True)
        counts["failed"] += 1
    return counts


if __name__ == "__main__":
    sys.exit(main())
