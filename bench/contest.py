"""Commands that run in turn, and the ratios of their times.

A ratio is that of two commands of the same round, so it holds on a busy machine. The servers share
the processors with the commands, so their CPU time is shown too.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bench.places import STORES, Unavailable, servers_cpu_s
from bench.report import Case, finish, spread_of

#: From the options to the cases and the number of rounds. Raises `Unavailable`.
Measure = Callable[[argparse.Namespace], tuple[list[Case], int]]


@dataclass(frozen=True, slots=True)
class Contest:
    """Our command `ours` against a peer's; less is better. An emulator's figures have no floor."""

    case: str
    ours: str
    peer: str
    floor: float | None
    goal: float | None
    unit: str = "x time"


@dataclass(slots=True)
class Round:
    """Seconds, and CPU seconds of the servers, by command."""

    seconds: dict[str, float] = field(default_factory=dict)
    server_cpu_s: dict[str, float] = field(default_factory=dict)

    def timed(self, name: str, parts: Iterator[float]) -> None:
        """Add a command; each of `parts` runs one and is its duration."""
        before_s = servers_cpu_s()
        self.seconds[name] = sum(parts)
        self.server_cpu_s[name] = servers_cpu_s() - before_s

    def add_better(self, name: str, *names: str) -> None:
        """Adds a peer: in each round, the faster of those that have run."""
        better = min(self.seconds.keys() & set(names), key=self.seconds.__getitem__)
        self.seconds[name] = self.seconds[better]
        self.server_cpu_s[name] = self.server_cpu_s[better]


def cases_of(
    contests: Sequence[Contest], rounds: Sequence[Round], *, store: str = "s3"
) -> list[Case]:
    """One case for each contest of which both commands have run: medians over the rounds."""
    return [
        _case(one, rounds, has_floor=store == "s3", suffix="" if store == "s3" else f"-{store}")
        for one in contests
        if {one.ours, one.peer} <= rounds[0].seconds.keys()
    ]


def _case(one: Contest, rounds: Sequence[Round], *, has_floor: bool, suffix: str) -> Case:
    ratios = [row.seconds[one.ours] / row.seconds[one.peer] for row in rounds]
    names = (one.ours, one.peer)
    return Case(
        one.case + suffix,
        statistics.median(ratios),
        one.unit,
        against=one.peer,
        floor=one.floor if has_floor else None,
        goal=one.goal if has_floor else None,
        spread=spread_of(ratios),
        seconds=medians(names, [row.seconds for row in rounds]),
        server_cpu_s=medians(names, [row.server_cpu_s for row in rounds]),
    )


def medians(names: Iterable[str], rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(row[name] for row in rows), 3) for name in names}


def options_of(
    description: str | None, arguments: Sequence[str] | None, rows: Sequence[str] = ()
) -> argparse.Namespace:
    """What the benches that use contests take; those with named `rows` run on S3 only."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--smoke", action="store_true", help="one round of few objects")
    parser.add_argument("--rounds", type=int, metavar="N", help="rounds; each bench has its own")
    if rows:
        parser.add_argument("--rows", default=",".join(rows), metavar="ROW,ROW", help="only those")
    else:
        parser.add_argument("--store", choices=STORES, default="s3", help="gcs, azure: no floors")
        parser.add_argument("--only", metavar="CASE", help="only cases whose name begins like this")
    options = parser.parse_args(arguments)
    if rows:
        options.rows = options.rows.split(",")
        if unknown := set(options.rows) - set(rows):
            parser.error(f"there is no row {', '.join(unknown)}; there are {', '.join(rows)}")
    return options


def run(
    bench: str,
    description: str | None,
    arguments: Sequence[str] | None,
    measure: Measure,
    rows: Sequence[str] = (),
) -> int:
    """Measure and print; a bench whose servers are not here prints no case. The exit code."""
    options = options_of(description, arguments, rows)
    try:
        cases, rounds = measure(options)
    except Unavailable as error:
        print(f"{bench} is left out: {error}", file=sys.stderr)
        cases, rounds = [], 0
    if rows and options.smoke:  # Floors are those of whole sizes.
        cases = [replace(case, floor=None, goal=None) for case in cases]
    return finish(bench, cases, runs=rounds, as_json=options.json)
