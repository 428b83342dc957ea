"""Duration of copies between two places whose answers come 30 ms late, beside rclone.

    python -m bench.latency [--json] [--smoke] [--rounds N] [--only CASE]

Each round runs in turn `skyplane-orch cp` and rclone, as it is and with 32 transfers, of one object
of 1 KiB, of 16 objects of 64 MiB and of 2,000 of 1 KiB. Times are those of whole commands; the
better one of rclone's counts. `latency-large-trusted` reads nothing back, as rclone does.
`gateways-vs-rclone` copies the 16 without a delay through a source and a sink that run already:
from the submit to the result. `fleet` is their start and their end.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final
from unittest.mock import patch

from bench import copy, small
from bench.contest import Contest, Round, cases_of, run
from bench.peers import rclone_binary
from bench.places import Places, open_places
from bench.report import Case, spread_of
from skyplane_orchestration.cli.main import keep_stdout
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner

ROUNDS: Final = 5
LATE_MS: Final = 30

RCLONE, RCLONE_32, BETTER = "rclone", "rclone, 32 transfers", "the better rclone"
_MORE_TRANSFERS: Final = ("--transfers", "32")
_TRUSTED: Final = ("--dst-option", "checksum=trusted")


@dataclass(frozen=True, slots=True)
class Row:
    """What a case copies: `source`, an object or a folder with so many."""

    contest: Contest
    source: str
    objects: int = 1
    options: tuple[str, ...] = ()

    @property
    def is_folder(self) -> bool:
        return self.objects > 1


def rows_of(large: int, many: int) -> tuple[Row, ...]:
    return (
        Row(Contest("latency-one", "cp of one", BETTER, 3.0, 2.0), "one"),
        Row(Contest("latency-large", "cp of large", BETTER, 1.1, 0.9), "large", large),
        Row(
            Contest("latency-large-trusted", "cp, trusted", BETTER, None, 1.1),
            "large",
            large,
            _TRUSTED,
        ),
        Row(Contest("latency-small", "cp of small", BETTER, 0.75, 0.6), "small", many),
    )


#: A key and a body for each object.
Fill = Iterator[tuple[str, bytes]]

_LARGE: Final = (copy.OBJECTS, copy.OBJECT_BYTES)
_REGIONS: Final = ("us-east-1", "us-west-2")
GATEWAYS: Final = Contest("gateways-vs-rclone", "through gateways", BETTER, 2.5, 1.5)
FLEET_CASE: Final = "fleet"


class Bench:
    """Commands between two places; `rclone` None leaves its own out."""

    def __init__(self, places: Places, rclone: str | None) -> None:
        self._places, self._rclone = places, rclone
        self._numbers = count()

    def _target(self) -> str:
        return f"copy-{next(self._numbers)}"

    def round(self, row: Row) -> Round:
        end = "/" if row.is_folder else ""
        options = (*row.options, *(("-r",) if row.is_folder else ()))
        made = Round()
        own = self._places.own("cp", row.source + end, self._target() + end, *options)
        made.timed(row.contest.ours, map(self._places.seconds, [own]))
        self._places.remove_copies(row.objects)
        self._add_rclone(made, row)
        return made

    def _add_rclone(self, made: Round, row: Row) -> None:
        if self._rclone is None:
            return
        verb = "copy" if row.is_folder else "copyto"
        for name, options in ((RCLONE, ()), (RCLONE_32, _MORE_TRANSFERS)):
            other = self._places.rclone(self._rclone, verb, row.source, self._target(), *options)
            made.timed(name, map(self._places.seconds, [other]))
            self._places.remove_copies(row.objects)
        made.add_better(BETTER, RCLONE, RCLONE_32)

    def round_of_gateways(self, row: Row) -> tuple[Round, float]:
        """The round, and the seconds in which its fleet started and ended."""
        job, folder = self._job(row), self._places.folder / "fleet"
        client = Client(
            identity=RunIdentity("bench", "latency", str(random.getrandbits(64))),
            provisioner=LocalProvisioner(LocalOptions(run_root=folder, processes_per_instance=1)),
        )
        made = Round()
        with patch.dict(os.environ, self._places.environment):
            plan = client.plan(job)
            fleet_s = _seconds(lambda: client.provision(plan))
            fleet = client.provision(plan)  # The one that is up.
            try:
                assert len(fleet.sources) == len(fleet.sinks) == len(fleet.gateways) // 2 == 1
                made.timed(row.contest.ours, map(_seconds, [lambda: client.transfer(job, fleet)]))
            finally:
                fleet_s += _seconds(lambda: client.teardown(fleet))
        self._places.remove_copies(row.objects)
        self._add_rclone(made, row)
        return made, fleet_s

    def _job(self, row: Row) -> TransferJob:
        """A plan for two regions has a source and a sink."""
        near, far = self._places.urls
        urls = (f"{near}/{row.source}/", f"{far}/{self._target()}/")
        source, destination = (
            Location(url, region=f"aws:{region}", endpoint_url=endpoint)
            for url, region, endpoint in zip(urls, _REGIONS, self._places.endpoints, strict=True)
        )
        return TransferJob(source, destination)


def _seconds(call: Callable[[], object]) -> float:
    began_s = time.perf_counter()
    call()
    return time.perf_counter() - began_s


def _cases_of_commands(rounds: int, rows: Sequence[Row], fill: Iterator[Fill]) -> list[Case]:
    with open_places("s3", LATE_MS) as places:
        for bodies in fill:
            places.fill(0, bodies)
        bench = Bench(places, rclone_binary())
        made = {row: [bench.round(row) for _ in range(rounds)] for row in rows}
    return [case for row in rows for case in cases_of([row.contest], made[row])]


def _cases_of_gateways(rounds: int, row: Row, bodies: Fill) -> list[Case]:
    with open_places("s3", s3_regions=_REGIONS) as places:
        places.fill(0, bodies)
        bench = Bench(places, rclone_binary())
        made = [bench.round_of_gateways(row) for _ in range(rounds)]
    fleet_s = [seconds for _, seconds in made]
    fleet = Case(FLEET_CASE, statistics.median(fleet_s), "s", spread=spread_of(fleet_s))
    return [*cases_of([GATEWAYS], [one for one, _ in made]), fleet]


def measure(options: argparse.Namespace) -> tuple[list[Case], int]:
    """The cases whose names begin with `--only`, and the number of rounds."""
    rounds, only = 1 if options.smoke else options.rounds or ROUNDS, options.only or ""
    large = (copy.SMOKE_OBJECTS, copy.SMOKE_BYTES) if options.smoke else _LARGE
    many = small.SMOKE_OBJECTS if options.smoke else small.SMALL
    rows = [row for row in rows_of(large[0], many) if row.contest.case.startswith(only)]
    bodies = {
        "one": iter([("one", bytes(small.SIZE_BYTES))]),
        "large": copy.bodies_of(*large),
        "small": small.bodies_of("small", many),
    }
    cases: list[Case] = []
    if rows:
        sources = dict.fromkeys(row.source for row in rows)
        cases += _cases_of_commands(rounds, rows, map(bodies.__getitem__, sources))
    if GATEWAYS.case.startswith(only):
        row = Row(GATEWAYS, "large", large[0])
        cases += _cases_of_gateways(rounds, row, copy.bodies_of(*large))
    return cases, rounds


def main(arguments: Sequence[str] | None = None) -> int:
    return run("latency", __doc__, arguments, measure)


if __name__ == "__main__":
    keep_stdout()  # The solver prints.
    raise SystemExit(main())
