"""The share of a 170 ms line that gateways fill, with many connections and with one.

    python -m bench.long_line [--json] [--smoke]

The line connects two network namespaces (`tests/faults/wan.py`; needs root). One connection can
have 256 KiB in flight; six and a half connections fill the line. In every round plain sockets and a
fleet of two gateways send over it in turn, with 16 connections and with one. The time of the
gateways is that of the whole transfer, from submission to the last commit. The rate of a plain
socket is that of the kernel alone.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from tests.faults import wan

from bench.report import Case, finish, spread_of
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import Limits, TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanCost,
    PlanEdge,
    PlanPath,
    SolverReport,
    TransferPlan,
)
from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner

RTT_S: Final = 0.170
WINDOW_BYTES: Final = 256 << 10
LINE_BYTES_PER_S: Final = 10e6
SOURCE, SINK = "aws:ap-southeast-2", "aws:eu-west-3"
MIB: Final = 1 << 20

MANY: Final = 16
ROUNDS: Final = 3
#: Objects of 5 MiB that go by many connections, and by one: 15 and 9 s, of which listing,
#: first orders and last receipts take one.
OBJECTS: Final = {MANY: 28, 1: 2}

#: Of what the line carries; of what plain sockets get; of one connection's rate.
FLOOR_FILLED, GOAL_FILLED = 0.8, 0.9
FLOOR_OF_PLAIN, GOAL_OF_PLAIN = 0.8, 0.95
FLOOR_SCALED, GOAL_SCALED = 4.0, 6.0


@dataclass(frozen=True)
class Round:
    """Bytes per second by number of connections."""

    plain: dict[int, float]
    gateways: dict[int, float]


def plan_of(connections: int) -> TransferPlan:
    """A plan with one gateway at each end and this many connections."""
    return TransferPlan(
        src=SOURCE,
        dst=SINK,
        objective={},
        throughput_gbps=1.0,
        volume_gb=None,
        transfer_s=None,
        provision_s=0.0,
        cost=PlanCost(None, None, None, None, 0.0),
        instances={region: InstanceGroup("process", 1) for region in (SOURCE, SINK)},
        edges=(PlanEdge(SOURCE, SINK, 1.0, connections, 5.0, 0.0),),
        paths=(PlanPath((SOURCE, SINK), 1.0),),
        binding=(),
        solver=SolverReport("optimal", 0.0, 0.0, 0.0),
        grid=GridReference("test", "2024-01-01", "measured"),
    )


class Gateways:
    """A fleet over the line; copies objects of 5 MiB from one folder to another."""

    def __init__(self, client: Client, fleet: Fleet, folder: Path) -> None:
        self._client, self._fleet, self._folder = client, fleet, folder
        self._numbers = count()

    def rate(self, objects: int) -> float:
        number = next(self._numbers)
        source, target = self._folder / f"in-{number}", self._folder / f"out-{number}"
        source.mkdir()
        for each in range(objects):
            (source / str(each)).write_bytes(os.urandom(5 * MIB))
        job = TransferJob(
            Location(f"{source}/"), Location(f"{target}/"), limits=Limits(chunk_mib=5)
        )
        result = self._client.transfer(job, self._fleet)
        for path in source.iterdir():
            if (target / path.name).read_bytes() != path.read_bytes():
                raise AssertionError(f"{path.name} is not what it was")
        return result.copied_bytes / result.seconds


@contextmanager
def gateways(line: wan.Line, folder: Path, connections: int) -> Iterator[Gateways]:
    """A fleet whose ends are those of the line."""
    options = LocalOptions(
        run_root=folder / "run",
        address_map=dict(zip((SOURCE, SINK), wan.ADDRESSES, strict=True)),
        launch_prefix={
            SOURCE: ("ip", "netns", "exec", line.near),
            SINK: ("ip", "netns", "exec", line.far),
        },
    )
    client = Client(
        identity=RunIdentity("bench", "long-line", str(connections)),
        provisioner=LocalProvisioner(options),
        poll_s=0.1,
    )
    place = folder / str(connections)
    place.mkdir()
    fleet = client.provision(plan_of(connections))
    try:
        yield Gateways(client, fleet, place)
    finally:
        client.teardown(fleet)


# ---------------------------------------------------------------- plain sockets

_TAKES: Final = """
import socket, sys, threading
def take(end):
    while end.recv(1 << 20):
        pass
    end.sendall(b".")
with socket.create_server((sys.argv[1], 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=take, args=(listener.accept()[0],), daemon=True).start()
"""

_SENDS: Final = """
import socket, sys, threading, time
host, port, connections, size = sys.argv[1], *map(int, sys.argv[2:])
ends = [socket.create_connection((host, port)) for _ in range(connections)]
def send(end):
    for _ in range(size // connections >> 16):
        end.sendall(bytes(1 << 16))
    end.shutdown(socket.SHUT_WR)
    end.recv(1)
threads = [threading.Thread(target=send, args=(end,)) for end in ends]
began = time.perf_counter()
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print((size // connections >> 16 << 16) * connections / (time.perf_counter() - began))
"""


@contextmanager
def plain_sink(line: wan.Line) -> Iterator[int]:
    """A server at the far end that discards what it receives; its port."""
    process = subprocess.Popen(
        ["ip", "netns", "exec", line.far, sys.executable, "-c", _TAKES, wan.ADDRESSES[1]],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        with process.stdout:
            yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


def plain_rate(line: wan.Line, port: int, connections: int, size_bytes: int) -> float:
    """The rate of this many plain sockets, from the first byte until the last is acknowledged."""
    words = (wan.ADDRESSES[1], str(port), str(connections), str(size_bytes))
    command = ["ip", "netns", "exec", line.near, sys.executable, "-c", _SENDS, *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return float(done.stdout)


# ---------------------------------------------------------------- figures


def rounds_of(line: wan.Line, folder: Path, rounds: int, objects: dict[int, int]) -> list[Round]:
    """This many rounds; in each, all senders take turns."""
    made = []
    with (
        plain_sink(line) as port,
        gateways(line, folder, MANY) as many,
        gateways(line, folder, 1) as one,
    ):
        for _ in range(rounds):
            plain, over = {}, {}
            for connections, fleet in ((MANY, many), (1, one)):
                size_bytes = objects[connections] * 5 * MIB
                plain[connections] = plain_rate(line, port, connections, size_bytes)
                over[connections] = fleet.rate(objects[connections])
            made.append(Round(plain, over))
    return made


def cases_of(rounds: Sequence[Round]) -> list[Case]:
    """Medians over the rounds; the ratio is to plain sockets of the same round."""

    def case(
        name: str, values: list[float], unit: str, plain: list[float], floor: float, goal: float
    ) -> Case:
        ratios = [value / other for value, other in zip(values, plain, strict=True)]
        return Case(
            name,
            statistics.median(values),
            unit,
            ratio=statistics.median(ratios),
            against="plain sockets",
            floor=floor,
            goal=goal,
            spread=spread_of(values),
        )

    where = f"{LINE_BYTES_PER_S / 1e6:g} MB/s, {1000 * RTT_S:g} ms"
    filled = [row.gateways[MANY] / LINE_BYTES_PER_S for row in rounds]
    plain = [row.plain[MANY] / LINE_BYTES_PER_S for row in rounds]
    of_plain = [row.gateways[MANY] / row.plain[MANY] for row in rounds]
    scaled = [row.gateways[MANY] / row.gateways[1] for row in rounds]
    plain_scaled = [row.plain[MANY] / row.plain[1] for row in rounds]
    one = [row.gateways[1] * RTT_S / WINDOW_BYTES for row in rounds]
    plain_one = [row.plain[1] * RTT_S / WINDOW_BYTES for row in rounds]
    return [
        case(
            f"{where}, {MANY} connections: of the line",
            filled, "x line", plain, FLOOR_FILLED, GOAL_FILLED,
        ),
        Case(
            f"{where}, {MANY} connections: of as many plain sockets",
            statistics.median(of_plain), "x plain",
            floor=FLOOR_OF_PLAIN, goal=GOAL_OF_PLAIN, spread=spread_of(of_plain),
        ),
        case(
            f"{where}, {MANY} connections: of one",
            scaled, "x one", plain_scaled, FLOOR_SCALED, GOAL_SCALED,
        ),
        Case(
            f"{where}, one connection: of its window a round trip",
            statistics.median(one), "x window/RTT",
            ratio=statistics.median(a / b for a, b in zip(one, plain_one, strict=True)),
            against="plain sockets", spread=spread_of(one),
        ),
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--smoke", action="store_true", help="one short round: does it run")
    options = parser.parse_args(arguments)
    rounds, objects = (1, {MANY: 2, 1: 1}) if options.smoke else (ROUNDS, OBJECTS)
    with tempfile.TemporaryDirectory(prefix="long-line-") as folder:
        try:
            with wan.line(RTT_S, LINE_BYTES_PER_S, most_window_bytes=WINDOW_BYTES) as line:
                made = rounds_of(line, Path(folder), rounds, objects)
        except wan.Unavailable as error:
            print(f"long_line is left out: {error}", file=sys.stderr)
            made = []
    cases = cases_of(made) if made else []
    return finish("long_line", cases, runs=len(made), as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
