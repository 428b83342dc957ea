"""Duration of whole copies between two S3 servers, compared with rclone and s5cmd.

    python -m bench.copy [--json] [--smoke] [--rounds N]

Two servers of versitygw (`--data-integrity-etag`) keep their files in memory. Each round runs in
turn: `skyplane-orch cp -r` of 16 objects of 64 MiB; rclone with single PUTs, and in parts of 8 MiB;
s5cmd down to memory and up again. Then 2,000 objects of 1 KiB: `cp -r` as shipped, `cp -r` with
`checksum=trusted` at the destination, rclone with 32 transfers. Times are those of whole commands.

A ratio is that of two commands of the same round, so it holds on a busy machine. The servers share
the processors with the commands, so their CPU time is printed too. The last case is the CPU time
of the gateways alone, during one transfer of the small objects.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from unittest.mock import patch

from tests.faults import versitygw

from bench.report import Case, finish, spread_of
from bench.s3_commands import (
    SOURCE,
    TARGET,
    Servers,
    client_of,
    cpu_s_of,
    put_all,
    rclone_binary,
    s5cmd_binary,
    servers,
)
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner

ROUNDS: Final = 5
MIB: Final = 1 << 20

OWN, TRUSTED, SMALL = "cp", "cp, checksum=trusted", "cp of small objects"
RCLONE, PARTS, S5CMD, RCLONE_SMALL = (
    "rclone",
    "rclone in parts",
    "s5cmd down and up",
    "rclone of small objects",
)
#: Case -> our command, the peer's command, floor, goal. Less is better.
RATIOS: Final = {
    "copy-vs-rclone": (OWN, RCLONE, 1.5, 1.0),
    "copy-vs-rclone-multipart": (OWN, PARTS, 1.0, 0.7),
    "copy-vs-s5cmd": (OWN, S5CMD, 0.9, 0.7),
    "small-vs-rclone": (SMALL, RCLONE_SMALL, 1.75, 1.3),
    "small-vs-rclone-trusted": (TRUSTED, RCLONE_SMALL, 1.5, 1.0),
}
#: Of the gateways, per small object.
FLOOR_CPU_MS, GOAL_CPU_MS = 2.0, 1.0

_TRUSTS: Final = ("--dst-option", "checksum=trusted")
_IN_PARTS: Final = ("--s3-upload-cutoff", "8M", "--s3-chunk-size", "8M")


@dataclass(frozen=True, slots=True)
class Workload:
    """The objects to copy."""

    large: int = 16
    large_bytes: int = 64 * MIB
    small: int = 2000
    small_bytes: int = 1024


SMOKE: Final = Workload(large=2, large_bytes=9 * MIB, small=20)


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds by command, and CPU seconds of both servers by command.

    Attributes:
        gateway_cpu_ms: of the gateways, per small object.
    """

    seconds: Mapping[str, float]
    server_cpu_s: Mapping[str, float]
    gateway_cpu_ms: float


@dataclass(slots=True)
class Bench:
    """The commands of a round. Attributes `rclone`, `s5cmd`: their binaries, if there are any."""

    between: Servers
    work: Workload
    rclone: str | None
    s5cmd: str | None
    _seconds: dict[str, float] = field(default_factory=dict)
    _server_cpu_s: dict[str, float] = field(default_factory=dict)

    def round(self) -> Round:
        self._seconds, self._server_cpu_s = {}, {}
        between = self.between
        large, small = ("large/", "copy/"), ("small/", "copy/")
        self._run(OWN, between.own("cp", *large, "-r"))
        if self.rclone is not None:
            self._run(RCLONE, between.rclone(self.rclone, "copy", "large", "copy"))
            self._run(PARTS, between.rclone(self.rclone, "copy", "large", "copy", *_IN_PARTS))
        if self.s5cmd is not None:
            local = f"{between.folder / 'down'}/"
            near, far = between.source.url, between.target.url
            self._run(
                S5CMD,
                [self.s5cmd, "--endpoint-url", near, "cp", f"s3://{SOURCE}/large/*", local],
                [self.s5cmd, "--endpoint-url", far, "cp", local, f"s3://{TARGET}/copy/"],
            )
            shutil.rmtree(local)
        self._run(SMALL, between.own("cp", *small, "-r"), small=True)
        self._run(TRUSTED, between.own("cp", *small, "-r", *_TRUSTS), small=True)
        if self.rclone is not None:
            many = ("--transfers", "32")
            command = between.rclone(self.rclone, "copy", "small", "copy", *many)
            self._run(RCLONE_SMALL, command, small=True)
        gateway_cpu_s = self._gateway_cpu_s()
        self._empty()
        return Round(self._seconds, self._server_cpu_s, 1000 * gateway_cpu_s / self.work.small)

    def _run(self, name: str, *commands: Sequence[str], small: bool = False) -> None:
        """Time a copy into an empty folder, and check what it has written."""
        self._empty()
        before_s = self.between.cpu_s
        self._seconds[name] = sum(map(self.between.seconds, commands))
        self._server_cpu_s[name] = self.between.cpu_s - before_s
        count, size = self._found()
        work = self.work
        wanted = (
            (work.small, work.small * work.small_bytes)
            if small
            else (work.large, work.large * work.large_bytes)
        )
        if (count, size) != wanted:
            raise AssertionError(f"{name} has written {count} objects of {size} bytes: {wanted}")

    def _found(self) -> tuple[int, int]:
        pages = client_of(self.between.target).get_paginator("list_objects_v2")
        rows = [row for page in pages.paginate(Bucket=TARGET) for row in page.get("Contents", ())]
        return len(rows), sum(row["Size"] for row in rows)

    def _empty(self) -> None:
        """The bucket is a folder of this machine; no command pays for the deletes."""
        shutil.rmtree(self.between.folder / TARGET / TARGET / "copy", ignore_errors=True)

    def _gateway_cpu_s(self) -> float:
        """CPU seconds of all gateways during a transfer of the small objects."""
        self._empty()
        between = self.between
        job = TransferJob(
            Location(f"s3://{SOURCE}/small/", endpoint_url=between.source.url),
            Location(
                f"s3://{TARGET}/copy/",
                endpoint_url=between.target.url,
                options={"checksum": "trusted"},
            ),
        )
        client = Client(
            identity=RunIdentity("bench", "copy", str(random.getrandbits(64))),
            provisioner=LocalProvisioner(LocalOptions(run_root=between.folder / "fleet")),
        )
        with patch.dict(os.environ, between.environment):
            fleet = client.provision(client.plan(job))
            try:
                before_s = _cpu_s_of_fleet(fleet)
                client.transfer(job, fleet)
                return _cpu_s_of_fleet(fleet) - before_s
            finally:
                client.teardown(fleet)


def _cpu_s_of_fleet(fleet: Fleet) -> float:
    return sum(cpu_s_of(int(gateway.details["pid"])) for gateway in fleet.gateways)


def bodies_of(work: Workload) -> Iterator[tuple[str, bytes]]:
    """Keys and bodies; every large body differs from the others."""
    block = random.Random(1).randbytes(MIB)
    for number in range(work.large):
        body = number.to_bytes(4, "big") + block * (work.large_bytes // MIB + 1)
        yield f"large/{number:02d}", body[: work.large_bytes]
    for number in range(work.small):
        yield f"small/{number:05d}", block[number : number + work.small_bytes]


@contextmanager
def open_bench(work: Workload, *, with_peers: bool = True) -> Iterator[Bench]:
    """Two servers with the objects of the workload. Raises versitygw.Unavailable."""
    memory = Path("/dev/shm")
    with ExitStack() as open_:
        where = memory if memory.is_dir() else None
        temporary = tempfile.TemporaryDirectory(prefix="copy-bench-", dir=where)
        folder = Path(open_.enter_context(temporary))
        between = open_.enter_context(servers(folder, "--data-integrity-etag"))
        put_all(between.source, SOURCE, bodies_of(work))
        peers = (rclone_binary(), s5cmd_binary()) if with_peers else (None, None)
        yield Bench(between, work, *peers)


def cases_of(rounds: Sequence[Round], work: Workload) -> list[Case]:
    """Medians over the rounds; ratios are those within a round."""
    cases = [
        _ratio(case, rounds, *pair)
        for case, pair in RATIOS.items()
        if all(name in rounds[0].seconds for name in pair[:2])
    ]
    each = [row.gateway_cpu_ms for row in rounds]
    cases.append(
        Case(
            "gateway-cpu-per-small-object",
            statistics.median(each),
            "ms",
            floor=FLOOR_CPU_MS,
            goal=GOAL_CPU_MS,
            spread=spread_of(each),
        )
    )
    of_round: list[tuple[str, Callable[[Round], Mapping[str, float]]]] = [
        ("", lambda row: row.seconds),
        ("CPU of both servers: ", lambda row: row.server_cpu_s),
    ]
    for prefix, values_of in of_round:
        for name in rounds[0].seconds:
            values = [values_of(row)[name] for row in rounds]
            cases.append(
                Case(f"{prefix}{name}", statistics.median(values), "s", spread=spread_of(values))
            )
    return cases


def _ratio(
    case: str, rounds: Sequence[Round], ours: str, theirs: str, floor: float, goal: float
) -> Case:
    ratios = [row.seconds[ours] / row.seconds[theirs] for row in rounds]
    return Case(
        case,
        statistics.median(ratios),
        "x time",
        against=theirs,
        floor=floor,
        goal=goal,
        spread=spread_of(ratios),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--smoke", action="store_true", help="one round of few objects")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    options = parser.parse_args(arguments)
    work, rounds = (SMOKE, 1) if options.smoke else (Workload(), options.rounds)
    try:
        with open_bench(work) as bench:
            made = [bench.round() for _ in range(rounds)]
    except versitygw.Unavailable as error:
        print(f"copy is left out: {error}", file=sys.stderr)
        made = []
    cases = cases_of(made, work) if made else []
    return finish("copy", cases, runs=len(made), as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
