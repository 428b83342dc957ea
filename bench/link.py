"""The processor time of gateways for each byte and each small object; needs no other machine.

    python -m bench.link [--json] [--smoke] [--rounds N] [--only ROW ...] [--bound PROGRAM]

Gateways are processes of this machine. `direct` copies files in memory to files in memory by two of
them over 16 connections. `null` does it with stores that cost nothing (`bench.null_store`). All
rounds of a row are interleaved with its peers: iperf3 with as many connections, and a prototype of
two gateways without retry, receipts or authentication. The prototype is no part of this project:
`--bound` or `SKYPLANE_LINK_BOUND` names its program. Rates are of whole transfers.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path
from typing import Final
from unittest.mock import patch

from tests.ports import free_port
from tests.provision.samples import make_plan

from bench import null_store
from bench.places import cpu_s_of
from bench.report import Case, finish, spread_of
from skyplane_gateway.stores import registry
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import Encryption, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner

CONNECTIONS: Final = 16
ROUNDS: Final = 5
MIB: Final = 1 << 20
#: Objects of 64 MiB are one chunk each.
OBJECT_BYTES: Final = 64 * MIB
FILES, NULL_OBJECTS, SMALL_OBJECTS, SMALL_BYTES = 24, 64, 20_000, 1024
IPERF_S: Final = 2.0
Modules = Mapping[str, str]
SOURCE, RELAY_REGION, SINK = "aws:us-east-1", "aws:eu-west-1", "gcp:europe-west3"
#: The environment variable that names the prototype's program.
BOUND: Final = "SKYPLANE_LINK_BOUND"


class Unavailable(Exception):
    """A peer is not on this machine."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One transfer: its seconds, and CPU seconds of each gateway from source to sink."""

    seconds: float
    cpu_s: tuple[float, ...]
    size_bytes: int

    @property
    def gb(self) -> float:
        return self.size_bytes / 1e9

    @property
    def rate(self) -> float:
        """GB/s."""
        return self.gb / self.seconds

    @property
    def cpu_s_per_gb(self) -> tuple[float, ...]:
        return tuple(used / self.gb for used in self.cpu_s)


class Gateways:
    """A running fleet, from the first region to the last."""

    def __init__(self, client: Client, fleet: Fleet, folder: Path, modules: Modules) -> None:
        self._client, self._fleet, self._folder = client, fleet, folder
        self._modules = modules
        self._numbers = count()
        ends = (*fleet.sources, *fleet.sinks)
        relays = [one for one in fleet.gateways if one.node not in {end.node for end in ends}]
        self._pids = [int(one.details["pid"]) for one in (ends[0], *relays, ends[-1])]

    def copy(
        self, source: str, objects: int, size_bytes: int, encrypt: Encryption = "never"
    ) -> Measured:
        """Copy the objects of a folder below this one."""
        target = self._folder / f"copy-{next(self._numbers)}"
        target.mkdir()
        job = TransferJob(
            Location(f"{self._folder}/{source}/"),
            Location(f"{target}/"),
            encrypt=encrypt,
            verify="none",
        )
        before = [cpu_s_of(pid) for pid in self._pids]
        began = time.perf_counter()
        with patch.dict(registry._MODULES, self._modules):
            result = self._client.transfer(job, self._fleet)
        seconds = time.perf_counter() - began
        used = [cpu_s_of(pid) - was for pid, was in zip(self._pids, before, strict=True)]
        if result.copied_bytes != objects * size_bytes:
            raise AssertionError(f"{result.copied_bytes} bytes were copied")
        shutil.rmtree(target)
        return Measured(seconds, tuple(used), objects * size_bytes)


@contextmanager
def gateways(folder: Path, *, is_null: bool, is_relayed: bool = False) -> Iterator[Gateways]:
    """A fleet whose file stores are real ones or null stores."""
    program = null_store.COMMAND if is_null else ()
    options = LocalOptions(run_root=folder / "run", command=program, processes_per_instance=1)
    client = Client(
        identity=RunIdentity("bench", "link", str(random.getrandbits(64))),
        provisioner=LocalProvisioner(options),
        poll_s=0.05,
    )
    plan = _plan(is_relayed=is_relayed)
    fleet = client.provision(plan)
    try:
        yield Gateways(client, fleet, folder, null_store.MODULES if is_null else {})
    finally:
        client.teardown(fleet)


def _plan(*, is_relayed: bool) -> TransferPlan:
    """One gateway at each end, and one between them."""
    nodes = (SOURCE, RELAY_REGION, SINK) if is_relayed else (SOURCE, SINK)
    hops = dict.fromkeys(pairwise(nodes), CONNECTIONS)
    return make_plan([(nodes, 1.0)], dict.fromkeys(nodes, 1), hops)


# ---------------------------------------------------------------- peers


def iperf3_rate(seconds: float) -> float:
    """GB/s of iperf3 over as many connections."""
    binary = shutil.which("iperf3")
    if binary is None:
        raise Unavailable("iperf3 is not installed")
    with _listening(lambda port: [binary, "-s", "-1", "-p", port]) as (_, port):
        words = ["-p", port, "-P", str(CONNECTIONS), "-t", str(seconds), "-l", "1M", "-J"]
        command = [binary, "-c", "127.0.0.1", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(json.loads(done.stdout)["end"]["sum_received"]["bits_per_second"]) / 8e9


class Prototype:
    """The program of `--bound`: its source prints what it took, its sink is measured here."""

    def __init__(self, program: str | None) -> None:
        if program is None or not Path(program).is_file():
            raise Unavailable(f"no prototype at {program}; name it by --bound or {BOUND}")
        self._program = program

    def copy(self, folder: Path, mode: str) -> float:
        """CPU s/GB of both ends together, for the files of a folder.

        The sink has copied them before: a gateway has memory from its earlier transfers, too.
        """
        target = folder.parent / "bound"
        target.mkdir()
        environment = {**os.environ, "SIZE": str(OBJECT_BYTES)}
        start = [sys.executable, self._program]
        to_sink = [str(target), mode]
        with _listening(lambda port: [*start, "sink", port, *to_sink], environment) as (sink, port):
            command = [*start, "source", port, str(folder), str(CONNECTIONS), mode]
            for _ in range(2):
                before = cpu_s_of(sink.pid)
                done = subprocess.run(
                    command, capture_output=True, text=True, check=True, env=environment
                )
                used = cpu_s_of(sink.pid) - before
                for path in target.iterdir():
                    path.unlink()
        target.rmdir()
        size_bytes = sum(path.stat().st_size for path in folder.iterdir())
        return float(json.loads(done.stdout)["cpu_src"]) + used / (size_bytes / 1e9)


@contextmanager
def _listening(
    command: Callable[[str], Sequence[str]], environment: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A program that listens, and its port.

    No connection asks whether it listens, because that would be the only one it takes.
    """
    port = free_port()
    words = command(str(port))
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, env=environment)
    try:
        while not any(f":{port:04X} " in row and " 0A " in row for row in _tcp_rows()):
            if process.poll() is not None:
                raise subprocess.CalledProcessError(process.returncode, words)
            time.sleep(0.01)
        yield process, str(port)
    finally:
        process.kill()
        process.wait()


def _tcp_rows() -> list[str]:
    tables = (Path("/proc/net") / name for name in ("tcp", "tcp6"))
    return [row for table in tables if table.is_file() for row in table.read_text().splitlines()]


# ---------------------------------------------------------------- rows


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of one kind; each round gives one value."""

    name: str
    unit: str
    against: str
    floor: float
    goal: float

    def case(self, values: Sequence[float], shown: Sequence[dict[str, float]]) -> Case:
        names = shown[0] if shown else ()
        medians = {name: round(statistics.median(row[name] for row in shown), 3) for name in names}
        middle = statistics.median(values)
        spread = spread_of(values)
        about = (self.against, self.floor, self.goal, spread, medians or None)
        return Case(self.name, middle, self.unit, None, *about)


#: A round of a group gives, for each of its rows, the value and the figures behind it.
Round = dict[Row, tuple[float, dict[str, float]]]

DIRECT = Row("direct", "x cpu", "the prototype", 1.5, 1.2)
DIRECT_RATE = Row("direct-rate", "x rate", "iperf3 -P 16", 0.20, 0.26)
NULL = Row("null", "x rate", "iperf3 -P 16", 0.40, 0.55)
SEALED = Row("sealed", "s/GB", "plain, CPU at one end", 0.15, 0.10)
RELAY = Row("relay", "s/GB", "CPU of the relay", 0.45, 0.38)
SMALL = Row("small", "objects/s", "", 6_000, 10_000)
ROWS: Final = {row.name for row in (DIRECT, DIRECT_RATE, NULL, SEALED, RELAY, SMALL)}


class Bench:
    """Measures rounds; fleets are started once, when a row needs them."""

    def __init__(self, folder: Path, bound: str | None, scale: int, open_: ExitStack) -> None:
        self._folder, self._bound, self._scale, self._open = folder, bound, scale, open_
        self._fleets: dict[tuple[bool, bool], Gateways] = {}

    def files(self) -> Round:
        """`direct` and `direct-rate`."""
        objects = max(1, FILES // self._scale)
        source = self._folder / "files" / "source"
        if not source.is_dir():
            source.mkdir(parents=True)
            body = os.urandom(OBJECT_BYTES)
            for number in range(objects):
                (source / f"{number:04}").write_bytes(body)
        ours = self._fleet(is_null=False).copy("source", objects, OBJECT_BYTES)
        found: Round = {}
        used = dict(zip(("source cpu", "sink cpu"), ours.cpu_s_per_gb, strict=True))
        with _left_out(DIRECT):
            peer = Prototype(self._bound).copy(source, "crc")
            found[DIRECT] = sum(ours.cpu_s_per_gb) / peer, {**used, "prototype cpu": peer}
        with _left_out(DIRECT_RATE):
            found[DIRECT_RATE] = self._against_iperf3(ours)
        return found

    def null(self) -> Round:
        ours = self._large()
        used = dict(zip(("source cpu", "sink cpu"), ours.cpu_s_per_gb, strict=True))
        found: Round = {}
        with _left_out(NULL):
            rate, shown = self._against_iperf3(ours)
            found[NULL] = rate, shown | used
        return found

    def sealed(self) -> Round:
        plain, sealed = self._large(), self._large("always")
        more = [a - b for a, b in zip(sealed.cpu_s_per_gb, plain.cpu_s_per_gb, strict=True)]
        return {SEALED: (max(more), dict(zip(("source", "sink"), more, strict=True)))}

    def relay(self) -> Round:
        ours = self._large(is_relayed=True)
        return {RELAY: (ours.cpu_s_per_gb[1], {"GB/s": ours.rate})}

    def small(self) -> Round:
        objects = max(100, SMALL_OBJECTS // self._scale)
        source = f"{objects}x{SMALL_BYTES}"
        ours = self._fleet(is_null=True).copy(source, objects, SMALL_BYTES)
        used = dict(zip(("source cpu s", "sink cpu s"), ours.cpu_s, strict=True))
        return {SMALL: (objects / ours.seconds, used)}

    def _large(self, encrypt: Encryption = "never", *, is_relayed: bool = False) -> Measured:
        objects = max(1, NULL_OBJECTS // self._scale)
        fleet = self._fleet(is_null=True, is_relayed=is_relayed)
        return fleet.copy(f"{objects}x{OBJECT_BYTES}", objects, OBJECT_BYTES, encrypt)

    def _fleet(self, *, is_null: bool, is_relayed: bool = False) -> Gateways:
        which = (is_null, is_relayed)
        if which not in self._fleets:
            folder = self._folder / ("null" if is_null else "files")
            folder.mkdir(exist_ok=True)
            made = gateways(folder, is_null=is_null, is_relayed=is_relayed)
            self._fleets[which] = self._open.enter_context(made)
        return self._fleets[which]

    @staticmethod
    def _against_iperf3(ours: Measured) -> tuple[float, dict[str, float]]:
        peer = iperf3_rate(IPERF_S)
        return ours.rate / peer, {"GB/s": ours.rate, "iperf3 GB/s": peer}


@contextmanager
def _left_out(row: Row) -> Iterator[None]:
    try:
        yield
    except Unavailable as error:
        print(f"{row.name} is left out: {error}", file=sys.stderr)


def measure(options: argparse.Namespace) -> tuple[list[Case], int]:
    """All rows that are asked for, their rounds interleaved."""
    rounds = 1 if options.smoke else options.rounds or ROUNDS
    memory = Path("/dev/shm")
    found: dict[Row, list[tuple[float, dict[str, float]]]] = {}
    with ExitStack() as open_:
        where = memory if memory.is_dir() else None
        folder = open_.enter_context(tempfile.TemporaryDirectory(prefix="link-", dir=where))
        bench = Bench(Path(folder), options.bound, 24 if options.smoke else 1, open_)
        groups: list[tuple[tuple[Row, ...], Callable[[], Round]]] = [
            ((DIRECT, DIRECT_RATE), bench.files),
            ((NULL,), bench.null),
            ((SEALED,), bench.sealed),
            ((RELAY,), bench.relay),
            ((SMALL,), bench.small),
        ]
        wanted = [run for rows, run in groups if {row.name for row in rows} & set(options.only)]
        for _ in range(rounds):
            for run in wanted:
                for row, value in run().items():
                    found.setdefault(row, []).append(value)
    cases = [
        row.case([value for value, _ in values], [shown for _, shown in values])
        for row, values in found.items()
        if row.name in options.only
    ]
    return cases, rounds


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--smoke", action="store_true", help="one round of few objects")
    parser.add_argument("--rounds", type=int, metavar="N", help=f"rounds; {ROUNDS} by default")
    parser.add_argument("--only", choices=sorted(ROWS), nargs="+", default=ROWS, help="rows")
    parser.add_argument("--bound", default=os.environ.get(BOUND), help="the prototype's program")
    options = parser.parse_args(arguments)
    cases, rounds = measure(options)
    if options.smoke:
        cases = [replace(case, floor=None, goal=None) for case in cases]
    return finish("link", cases, runs=rounds, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
