"""Reports of all benches: a table for people, or one JSON object with `--json`.

A bench builds `Case`s and calls `finish`, which prints them and returns the exit status: 1 when a
case misses its floor. A floor on a time or an error is an upper bound, any other floor a lower
bound.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

#: Units in which less is better, so that a floor is what must not be exceeded.
LESS_IS_BETTER = frozenset(
    {
        "MiB",
        "s",
        "s/GB",
        "ms",
        "us",
        "calls/s",
        "% error",
        "% of pairs",
        "x bytes",
        "x cpu",
        "x optimum",
        "x price",
        "x start",
        "x time",
    }
)
_ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Case:
    """One figure.

    Attributes:
        case: name of the measurement.
        value, unit: the figure; of several runs, the one that is reported.
        ratio, against: the value relative to a named reference, if there is one.
        floor: the least acceptable value (times and errors: the largest).
        goal: the intended value.
        spread: the relative spread of the runs, (largest - smallest) / median.
        seconds, server_cpu_s: of a comparison, the medians by command.
    """

    case: str
    value: float
    unit: str
    ratio: float | None = None
    against: str | None = None
    floor: float | None = None
    goal: float | None = None
    spread: float | None = None
    seconds: Mapping[str, float] | None = None
    server_cpu_s: Mapping[str, float] | None = None

    @property
    def holds(self) -> bool:
        if self.floor is None:
            return True
        if self.unit in LESS_IS_BETTER:
            return self.value <= self.floor
        return self.value >= self.floor


def spread_of(values: Sequence[float]) -> float:
    """(largest - smallest) / median; 0 for one value."""
    middle = statistics.median(values)
    return (max(values) - min(values)) / middle if middle else 0.0


def finish(
    bench: str,
    cases: Sequence[Case],
    *,
    runs: int,
    as_json: bool,
    more: Mapping[str, object] | None = None,
) -> int:
    """Print the figures; the process's exit status: 1 when a case misses its floor.

    Args:
        more: entries of the JSON object beside the results.
    """
    document = {
        "bench": bench,
        "commit": commit(),
        "machine": machine(),
        "runs": runs,
        "results": [asdict(case) for case in cases],
        **(more or {}),
    }
    print(json.dumps(document, indent=2) if as_json else _table(document, cases))
    return 0 if all(case.holds for case in cases) else 1


def commit() -> str:
    """The commit under test, `+` when there are changes on top; `unknown` outside of git."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=_ROOT,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()


def machine() -> str:
    """Processor count and kind, system and Python."""
    return (
        f"{os.cpu_count()} x {_processor()}, {platform.system()} {platform.release()},"
        f" Python {platform.python_version()}"
    )


def _processor() -> str:
    cpu_info = Path("/proc/cpuinfo")
    if cpu_info.is_file():
        for line in cpu_info.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _table(document: dict[str, object], cases: Sequence[Case]) -> str:
    head = f"{document['bench']} at {document['commit']}, {document['runs']} runs"
    rows = [("case", "value", "unit", "ratio", "against", "floor", "goal", "spread", "")]
    for case in cases:
        rows.append(
            (
                case.case,
                f"{case.value:.6g}",
                case.unit,
                _figure(case.ratio),
                case.against or "",
                _figure(case.floor),
                _figure(case.goal),
                _figure(case.spread),
                "" if case.holds else "BELOW FLOOR",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines += [f"{case.case}: {_times(case.seconds)}" for case in cases if case.seconds]
    return "\n".join([head, str(document["machine"]), *lines])


def _times(seconds: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g} s" for name, value in seconds.items())


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
