"""Duration of commands that copy almost nothing, compared with rclone.

    python -m bench.small_jobs [--json] [--smoke] [--rounds N]

Two servers of versitygw run on this machine. Each round runs in turn: a Python that only loads
boto3, `cp` of one new object of 1 KiB, `sync` of 2,000 objects that are all present, and rclone
with the same two jobs (`sync --checksum`, so that it also compares by listings only). Times are
those of whole processes, with compiled bytecode.

Floors are multiples of rclone's time in the same run, and starts of that Python. On a machine with
more work than processors, the longer process waits more: then the first kind can be missed. Goals
in seconds are for a quiet machine with 2 processors. `bench/s3_commands.py` finds or builds rclone.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from tests.faults import versitygw

from bench.report import Case, finish, spread_of
from bench.s3_commands import SOURCE, TARGET, Servers, put_all, rclone_binary, servers

OBJECTS: Final = 2000
ROUNDS: Final = 11
SMOKE_OBJECTS: Final = 20

GOAL_CP_S, GOAL_SYNC_S = 0.9, 0.6
#: In times of rclone.
FLOOR_CP, GOAL_CP = 15.0, 10.0
FLOOR_SYNC, GOAL_SYNC = 6.0, 4.0
#: In starts of a Python that loads boto3, for machines without rclone.
FLOOR_CP_STARTS, FLOOR_SYNC_STARTS = 4.5, 3.0

_START: Final = "import boto3; boto3.client('s3', region_name='us-east-1')"


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of each command of one round; None without rclone."""

    start_s: float
    cp_s: float
    sync_s: float
    rclone_cp_s: float | None
    rclone_sync_s: float | None


class Commands:
    """The commands of a round, between two servers that hold the same objects.

    Args:
        rclone: its binary; None without rclone.
    """

    def __init__(self, between: Servers, rclone: str | None) -> None:
        self._between, self._rclone = between, rclone
        self._numbers = count()

    def round(self) -> Round:
        number = next(self._numbers)
        return Round(
            start_s=self._between.seconds([sys.executable, "-c", _START]),
            cp_s=self._own("cp", "one", f"copied-{number}"),
            rclone_cp_s=self._other("copyto", "one", f"theirs-{number}"),
            sync_s=self._own("sync", "many/", "many/"),
            rclone_sync_s=self._other("sync", "many", "many", "--checksum"),
        )

    def _own(self, verb: str, source: str, target: str) -> float:
        return self._between.seconds(self._between.own(verb, source, target))

    def _other(self, verb: str, source: str, target: str, *more: str) -> float | None:
        if self._rclone is None:
            return None
        return self._between.seconds(
            self._between.rclone(self._rclone, verb, source, target, *more)
        )


def rounds_of(rounds: int, objects: int, rclone: str | None) -> list[Round]:
    """This many rounds, after one that warms up caches."""
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory(prefix="small-jobs-")))
        between = open_.enter_context(servers(folder))
        bodies = [("one", bytes(1024)), *((f"many/{n:05d}", bytes(100)) for n in range(objects))]
        put_all(between.source, SOURCE, bodies)
        put_all(between.target, TARGET, bodies)
        commands = Commands(between, rclone)
        return [commands.round() for _ in range(rounds + 1)][1:]


def cases_of(rounds: Sequence[Round], objects: int) -> list[Case]:
    """Medians over the rounds, and multiples of rclone; starts are those of the same round."""
    starts = [row.start_s for row in rounds]
    copies = [row.cp_s for row in rounds]
    syncs = [row.sync_s for row in rounds]
    their_copies = [row.rclone_cp_s for row in rounds if row.rclone_cp_s is not None]
    their_syncs = [row.rclone_sync_s for row in rounds if row.rclone_sync_s is not None]
    one, many = "cp of one object of 1 KiB", f"sync of {objects} objects, nothing to do"
    return [
        _seconds(one, copies, GOAL_CP_S),
        _seconds(many, syncs, GOAL_SYNC_S),
        *_times(one, copies, their_copies, FLOOR_CP, GOAL_CP),
        *_times(many, syncs, their_syncs, FLOOR_SYNC, GOAL_SYNC),
        _starts(one, copies, starts, FLOOR_CP_STARTS),
        _starts(many, syncs, starts, FLOOR_SYNC_STARTS),
        *(
            Case(name, statistics.median(values), "s", spread=spread_of(values))
            for name, values in (
                (f"rclone: {one}", their_copies),
                (f"rclone: {many}", their_syncs),
                ("Python that loads boto3", starts),
            )
            if values
        ),
    ]


def _seconds(name: str, values: Sequence[float], goal_s: float) -> Case:
    return Case(name, statistics.median(values), "s", goal=goal_s, spread=spread_of(values))


def _times(
    name: str, values: Sequence[float], theirs: Sequence[float], floor: float, goal: float
) -> list[Case]:
    """The multiple of rclone's time, of the fastest rounds of each; nothing without rclone.

    On a busy machine the longer process loses more, so medians would compare the load.
    """
    if not theirs:
        return []
    times = [own / other for own, other in zip(values, theirs, strict=True)]
    return [
        Case(
            f"{name}: of rclone",
            min(values) / min(theirs),
            "x time",
            against="rclone",
            floor=floor,
            goal=goal,
            spread=spread_of(times),
        )
    ]


def _starts(name: str, values: Sequence[float], starts: Sequence[float], floor: float) -> Case:
    counted = [value / start for value, start in zip(values, starts, strict=True)]
    return Case(
        f"{name}: of a Python that loads boto3",
        statistics.median(counted),
        "x start",
        floor=floor,
        spread=spread_of(counted),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--smoke", action="store_true", help="one round of few objects")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    options = parser.parse_args(arguments)
    rounds, objects = (1, SMOKE_OBJECTS) if options.smoke else (options.rounds, OBJECTS)
    try:
        made = rounds_of(rounds, objects, rclone_binary())
    except versitygw.Unavailable as error:
        print(f"small_jobs is left out: {error}", file=sys.stderr)
        made = []
    cases = cases_of(made, objects) if made else []
    return finish("small_jobs", cases, runs=len(made), as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
