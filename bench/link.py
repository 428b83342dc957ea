"""The processor time of gateways for each byte and each small object; needs no other machine.

    python -m bench.link [--json] [--smoke] [--rounds N] [--only ROW ...] [--bound PROGRAM]

Gateways are processes of this machine. `direct` copies files in memory to files in memory by two of
them over 16 connections. `null` does it with stores that cost nothing (`bench.null_store`). All
rounds of a row are interleaved with its peers: iperf3 with as many connections, and a prototype of
two gateways without retry, receipts or authentication. The prototype is no part of this project:
`--bound` or `SKYPLANE_LINK_BOUND` names its program. Rates are of whole transfers. `relay-rate`
needs what the switch of `bench.wan` needs, and is left out without.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import combinations, count, pairwise
from pathlib import Path
from typing import Final
from unittest.mock import patch

from tests.provision.samples import make_plan

from bench import null_store
from bench.link_peers import BOUND, CONNECTIONS, Prototype, iperf3_rate
from bench.places import cpu_s_of
from bench.report import Case, finish, spread_of
from bench.wan import network
from bench.wan.network import Network, Pair, Unavailable
from skyplane_gateway.stores import registry
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import Encryption, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner

ROUNDS: Final = 5
MIB: Final = 1 << 20
#: Objects of 64 MiB are one chunk each.
OBJECT_BYTES: Final = 64 * MIB
FILES, NULL_OBJECTS, SMALL_OBJECTS, SMALL_BYTES = 24, 64, 20_000, 1024
IPERF_S: Final = 2.0
Modules = Mapping[str, str]
SOURCE, RELAY_REGION, SINK = "aws:us-east-1", "aws:eu-west-1", "gcp:europe-west3"
#: Of each line of `relay-rate`. Two processors do not carry 2 Gbit/s over two lines beside three
#: gateways and the switch.
LINE_GBPS: Final = 2.0 if (os.cpu_count() or 1) > 2 else 1.0
LINE: Final = Pair(0.01, LINE_GBPS)
LINE_OBJECTS: Final = 8
#: What the switch must carry alone, for two such lines and what gateways take beside it.
SWITCH_GBPS: Final = 2.5 * LINE_GBPS


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
def gateways(
    folder: Path, *, is_null: bool, is_relayed: bool = False, made: Network | None = None
) -> Iterator[Gateways]:
    """A fleet whose file stores are real ones or null stores, over a network that was made."""
    nodes = () if made is None else made.nodes
    options = LocalOptions(
        run_root=folder / "run",
        command=null_store.COMMAND if is_null else (),
        processes_per_instance=1,
        address_map={} if made is None else {tag: made.address(tag) for tag in nodes},
        launch_prefix={} if made is None else {tag: made.enter(tag) for tag in nodes},
    )
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
RELAY_RATE = Row("relay-rate", "x rate", f"direct, lines of {LINE_GBPS:g} Gbit/s", 0.95, 1.0)
SMALL = Row("small", "objects/s", "", 6_000, 10_000)
ROWS: Final = {row.name for row in (DIRECT, DIRECT_RATE, NULL, SEALED, RELAY, RELAY_RATE, SMALL)}


class Bench:
    """Measures rounds; fleets are started once, when a row needs them."""

    def __init__(self, folder: Path, bound: str | None, scale: int, open_: ExitStack) -> None:
        self._folder, self._bound, self._scale, self._open = folder, bound, scale, open_
        self._fleets: dict[tuple[bool, bool, bool], Gateways] = {}
        self._network: Network | None = None

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
        with _left_out(DIRECT.name):
            peer = Prototype(self._bound, OBJECT_BYTES).copy(source, "crc")
            found[DIRECT] = sum(ours.cpu_s_per_gb) / peer, {**used, "prototype cpu": peer}
        with _left_out(DIRECT_RATE.name):
            found[DIRECT_RATE] = self._against_iperf3(ours)
        return found

    def null(self) -> Round:
        ours = self._large()
        used = dict(zip(("source cpu", "sink cpu"), ours.cpu_s_per_gb, strict=True))
        found: Round = {}
        with _left_out(NULL.name):
            rate, shown = self._against_iperf3(ours)
            found[NULL] = rate, shown | used
        return found

    def sealed(self) -> Round:
        plain, sealed = self._large(), self._large("always")
        more = [a - b for a, b in zip(sealed.cpu_s_per_gb, plain.cpu_s_per_gb, strict=True)]
        return {SEALED: (max(more), dict(zip(("source", "sink"), more, strict=True)))}

    def relay(self) -> Round:
        objects = max(1, NULL_OBJECTS // self._scale)
        ours = self._large(is_relayed=True)
        shown = {"GB/s": ours.rate}
        with _left_out("the prototype's relay"):
            peer = Prototype(self._bound, OBJECT_BYTES)
            shown["prototype cpu"] = peer.relay(self._folder, objects)
        return {RELAY: (ours.cpu_s_per_gb[1], shown)}

    def relay_rate(self) -> Round:
        """Both by the same switch, one after the other."""
        objects = max(1, LINE_OBJECTS // self._scale)
        found: Round = {}
        with _left_out(RELAY_RATE.name):
            direct, relayed = (
                self._fleet(is_null=True, is_relayed=is_relayed, is_on_lines=True)
                .copy(f"{objects}x{OBJECT_BYTES}", objects, OBJECT_BYTES)
                .rate
                for is_relayed in (False, True)
            )
            found[RELAY_RATE] = relayed / direct, {"GB/s": relayed, "direct GB/s": direct}
        return found

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

    def _fleet(
        self, *, is_null: bool, is_relayed: bool = False, is_on_lines: bool = False
    ) -> Gateways:
        which = (is_null, is_relayed, is_on_lines)
        if which not in self._fleets:
            folder = self._folder / ("null" if is_null else "files")
            folder.mkdir(exist_ok=True)
            lines = self._lines() if is_on_lines else None
            fleet = gateways(folder, is_null=is_null, is_relayed=is_relayed, made=lines)
            self._fleets[which] = self._open.enter_context(fleet)
        return self._fleets[which]

    def _lines(self) -> Network:
        """A line of `LINE` between any two regions; raises Unavailable where none can be made."""
        if self._network is None:
            nodes = (SOURCE, RELAY_REGION, SINK)
            made = self._open.enter_context(network.opened(nodes))
            alone_gbps = made.carries_alone_gbps()
            if alone_gbps < SWITCH_GBPS:
                raise Unavailable(f"the switch carries {alone_gbps:.1f} Gbit/s alone")
            for one, other in combinations(nodes, 2):
                made.set_line(one, other, LINE)
            self._network = made
        return self._network

    @staticmethod
    def _against_iperf3(ours: Measured) -> tuple[float, dict[str, float]]:
        peer = iperf3_rate(IPERF_S)
        return ours.rate / peer, {"GB/s": ours.rate, "iperf3 GB/s": peer}


@contextmanager
def _left_out(what: str) -> Iterator[None]:
    try:
        yield
    except Unavailable as error:
        print(f"{what} is left out: {error}", file=sys.stderr)


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
            ((RELAY_RATE,), bench.relay_rate),
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
