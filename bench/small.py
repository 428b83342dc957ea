"""Duration of copies of small objects between two places, beside rclone.

    python -m bench.small [--json] [--smoke] [--rounds N] [--store s3|gcs|azure] [--only CASE]

Each round runs in turn: `skyplane-orch cp` of one object of 1 KiB; `cp -r` of 2,000 as shipped and
with `checksum=trusted` at the destination; the same with rclone and 32 transfers. Then, in fewer
rounds, 50,000 objects with `checksum=trusted`, and rclone with 64 transfers. Times are those of
whole commands. The last case is the CPU time of the gateways alone, source and sink together.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final
from unittest.mock import patch

from bench.contest import Contest, Round, cases_of, run
from bench.peers import rclone_binary
from bench.places import Places, cpu_s_of, open_places
from bench.report import Case, spread_of
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner

ROUNDS, ROUNDS_OF_MANY = 5, 3
SMALL, MANY, SMOKE_OBJECTS = 2000, 50_000, 20
SIZE_BYTES: Final = 1024

ONE, OWN, TRUSTED, OWN_MANY = "cp of one", "cp", "cp, checksum=trusted", "cp of 50,000"
RCLONE_ONE, RCLONE, RCLONE_MANY = "rclone of one", "rclone", "rclone of 50,000"
CONTESTS: Final = (
    Contest("one-object", ONE, RCLONE_ONE, 15.0, 10.0),
    Contest("small-vs-rclone", OWN, RCLONE, 1.75, 1.3),
    Contest("small-vs-rclone-trusted", TRUSTED, RCLONE, 1.5, 1.0),
    Contest("small-50k", OWN_MANY, RCLONE_MANY, 1.25, 0.9),
)
#: Of the gateways, per small object.
CPU_CASE, FLOOR_CPU_MS, GOAL_CPU_MS = "cpu-per-small-object", 2.0, 1.0

_TRUSTS: Final = ("--dst-option", "checksum=trusted")


class Bench:
    """The commands of a round.

    Args:
        rclone: its binary; None leaves it out.
        small, many: the numbers of objects.
    """

    def __init__(self, places: Places, rclone: str | None, *, small: int, many: int = 0) -> None:
        self._places, self._rclone = places, rclone
        self._small, self._many = small, many
        self._numbers = count()

    def round(self) -> Round:
        row = Round()
        self._run(row, ONE, self._own("cp", "one", ""))
        self._run(row, OWN, self._own("cp", "small/", "/", "-r"), self._small)
        if self._places.store != "gcs":  # Its checksums are always trusted.
            self._run(row, TRUSTED, self._own("cp", "small/", "/", "-r", *_TRUSTS), self._small)
        if self._rclone is not None:
            self._run(row, RCLONE_ONE, self._other("copyto", "one"))
            self._run(row, RCLONE, self._other("copy", "small", "--transfers", "32"), self._small)
        return row

    def round_of_many(self) -> Round:
        row = Round()
        self._run(row, OWN_MANY, self._own("cp", "many/", "/", "-r", *_TRUSTS), self._many)
        if self._rclone is not None:
            self._run(
                row, RCLONE_MANY, self._other("copy", "many", "--transfers", "64"), self._many
            )
        return row

    def _own(self, verb: str, source: str, end: str, *more: str) -> list[str]:
        return self._places.own(verb, source, f"copy-{next(self._numbers)}{end}", *more)

    def _other(self, verb: str, source: str, *more: str) -> list[str]:
        assert self._rclone is not None
        target = f"copy-{next(self._numbers)}"
        return self._places.rclone(self._rclone, verb, source, target, *more)

    def _run(self, row: Round, name: str, command: Sequence[str], objects: int = 1) -> None:
        row.timed(name, map(self._places.seconds, [command]))
        self._places.remove_copies(objects)

    def gateway_cpu_ms(self) -> float:
        """CPU of the gateways of a fleet during a transfer of the small objects, per object."""
        near, far = self._places.urls
        here, there = self._places.endpoints
        job = TransferJob(
            Location(f"{near}/small/", endpoint_url=here),
            Location(
                f"{far}/copy-{next(self._numbers)}/",
                endpoint_url=there,
                options={"checksum": "trusted"},
            ),
        )
        client = Client(
            identity=RunIdentity("bench", "small", str(random.getrandbits(64))),
            provisioner=LocalProvisioner(LocalOptions(run_root=self._places.folder / "fleet")),
        )
        with patch.dict(os.environ, self._places.environment):
            fleet = client.provision(client.plan(job))
            try:
                before_s = _cpu_s_of_fleet(fleet)
                client.transfer(job, fleet)
                return 1000 * (_cpu_s_of_fleet(fleet) - before_s) / self._small
            finally:
                client.teardown(fleet)
                self._places.remove_copies(self._small)


def _cpu_s_of_fleet(fleet: Fleet) -> float:
    return sum(cpu_s_of(int(gateway.details["pid"])) for gateway in fleet.gateways)


def bodies_of(folder: str, objects: int) -> Iterator[tuple[str, bytes]]:
    """Keys and bodies; every body differs from the others."""
    block = random.Random(1).randbytes(objects + SIZE_BYTES)
    for number in range(objects):
        yield f"{folder}/{number:05d}", block[number : number + SIZE_BYTES]


def cpu_case(each_ms: Sequence[float]) -> Case:
    return Case(
        CPU_CASE,
        statistics.median(each_ms),
        "ms",
        floor=FLOOR_CPU_MS,
        goal=GOAL_CPU_MS,
        spread=spread_of(each_ms),
    )


def measure(options: argparse.Namespace) -> tuple[list[Case], int]:
    """The cases whose names begin with `--only`, and the number of rounds."""
    store, rounds, only = options.store, options.rounds, options.only or ""
    small, many = (SMOKE_OBJECTS,) * 2 if options.smoke else (SMALL, MANY)
    has_many = store == "s3" and "small-50k".startswith(only)
    has_few = only != "small-50k"
    times = 1 if options.smoke else rounds or ROUNDS
    cases: list[Case] = []
    with open_places(store) as places:
        bench = Bench(places, rclone_binary(), small=small, many=many)
        if has_few:
            places.fill(0, iter([("one", bytes(SIZE_BYTES)), *bodies_of("small", small)]))
            cases += cases_of(CONTESTS, [bench.round() for _ in range(times)], store=store)
        if has_few and store == "s3":
            cases.append(cpu_case([bench.gateway_cpu_ms() for _ in range(times)]))
        if has_many:
            places.fill(0, bodies_of("many", many))
            of_many = 1 if options.smoke else rounds or ROUNDS_OF_MANY
            cases += cases_of(CONTESTS, [bench.round_of_many() for _ in range(of_many)])
    return [case for case in cases if case.case.startswith(only)], times


def main(arguments: Sequence[str] | None = None) -> int:
    return run("small", __doc__, arguments, measure)


if __name__ == "__main__":
    raise SystemExit(main())
