"""One message from a gateway to another over lines with delay and rate, beside plain sockets.

    python -m bench.p2p [--json] [--smoke] [--rounds N] [--only ROW]

The lines are those of a table of two p3.2xlarge of AWS, with 10 Gbit/s unless `tc` slows their
receiver down: messages of 64 and 128 MiB, delays of 1, 5 and 10 ms, rates of 5, 2 and 1 Gbit/s.
Its figures of Gloo and NCCL stand beside ours as they are there. `tc` delays what the receiver
gets and not what it sends, so a delay counts once in a round trip here too; the table's windows fit
that. Its clock is the receiver's, which does not see the delay of the first byte: ours does. The
switch of `bench.wan` makes the lines. A row is refused where plain sockets show that the switch and
this machine do not carry it.

The time of gateways is that from the first frame's way to the router until the last receipt, with
null stores (`bench.null_store`); that of plain sockets from the first byte until the last of as
many connections is answered. All connections are warm: a message went over each line before.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from bench import null_store
from bench.report import Case, finish, spread_of
from bench.wan import network
from bench.wan.network import Network, Pair, Unavailable
from skyplane_gateway.stores import registry
from skyplane_orchestration.client import Client
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.identity import RunIdentity
from skyplane_orchestration.model.job import TransferJob
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
from skyplane_orchestration.units import BYTES_PER_MIB

CONNECTIONS: Final = 16
ROUNDS: Final = 5
NEAR, FAR = "aws:us-east-1", "aws:us-west-2"
#: Of an instance of the table without a limit: 64 MiB took NCCL 55 ms.
DEFAULT_GBPS: Final = 10.0
#: The least share of a row's rate that plain sockets must get.
_CARRIED: Final = 0.8
#: A queue of the switch, beside what a round trip fills.
_QUEUE_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the table; milliseconds by MiB of the message."""

    name: str
    delay_ms: float
    gbps: float | None
    gloo_ms: dict[int, int]
    nccl_ms: dict[int, int]

    @property
    def rate_gbps(self) -> float:
        return self.gbps or DEFAULT_GBPS

    def wire_s(self, mib: int) -> float:
        """The message at the rate, and its delay."""
        return mib * BYTES_PER_MIB * 8 / (self.rate_gbps * 1e9) + self.delay_ms / 1e3


def _row(name: str, delay_ms: float, gbps: float | None, *ms: int) -> Setting:
    """From the columns of the table: Gloo and NCCL at 64 MiB, Gloo and NCCL at 128 MiB."""
    return Setting(name, delay_ms, gbps, {64: ms[0], 128: ms[2]}, {64: ms[1], 128: ms[3]})


SETTINGS: Final = (
    _row("AWS default", 0, None, 107, 55, 216, 112),
    _row("1 ms", 1, None, 110, 59, 222, 115),
    _row("5 ms", 5, None, 274, 80, 512, 134),
    _row("10 ms", 10, None, 532, 113, 972, 171),
    _row("5 Gbit/s", 0, 5.0, 110, 109, 218, 217),
    _row("2 Gbit/s", 0, 2.0, 271, 270, 542, 541),
    _row("1 Gbit/s", 0, 1.0, 541, 541, 1082, 1082),
    _row("1 ms, 5 Gbit/s", 1, 5.0, 115, 110, 224, 220),
    _row("5 ms, 2 Gbit/s", 5, 2.0, 311, 275, 581, 542),
    _row("10 ms, 1 Gbit/s", 10, 1.0, 620, 543, 1160, 1083),
)
SIZES_MIB: Final = (64, 128)
#: The row that has a floor and a goal, over plain sockets.
JUDGED, JUDGED_NAME, FLOOR, GOAL = ("10 ms, 1 Gbit/s", 64), "p2p", 1.15, 1.05


# ---------------------------------------------------------------- a gateway that tells the time

#: The program of the gateways; the next word is the file that it appends to.
_CLOCKED: Final = "from bench import p2p; p2p.run_clocked_gateway()"


def run_clocked_gateway() -> None:
    """A gateway with null stores that notes, for each receipt, the time since the first frame of
    its transfer."""
    import time

    from skyplane_gateway.main import entry_point
    from skyplane_gateway.transfer_sides import TransferSides
    from skyplane_gateway.transport.router import Router

    notes, began = Path(sys.argv.pop(1)), dict[bytes, float]()
    send, take = Router.send_frame, TransferSides.on_receipt

    async def send_frame(self: Router, frame: Any, *more: Any) -> None:
        began.setdefault(frame.header.chunk_id.transfer, time.perf_counter())
        await send(self, frame, *more)

    def on_receipt(self: TransferSides, header: Any, sealed: memoryview) -> None:
        take(self, header, sealed)
        taken_s = time.perf_counter() - began[header.transfer]
        with notes.open("a") as file:
            print(taken_s, file=file)

    Router.send_frame = send_frame  # type: ignore[method-assign, assignment]
    TransferSides.on_receipt = on_receipt  # type: ignore[method-assign]
    registry._MODULES.update(null_store.MODULES)
    entry_point()


@dataclass(frozen=True, slots=True)
class Sent:
    """Seconds of one message: first frame to last receipt, and the whole transfer."""

    seconds: float
    transfer_s: float


class Gateways:
    """A fleet over the line."""

    def __init__(self, client: Client, fleet: Fleet, folder: Path, notes: Path) -> None:
        self._client, self._fleet, self._folder, self._notes = client, fleet, folder, notes
        self._numbers = count()

    def send(self, mib: int) -> Sent:
        size = mib * BYTES_PER_MIB
        job = TransferJob(
            Location(f"{self._folder}/1x{size}/"),
            Location(f"{self._folder}/none-{next(self._numbers)}/"),
            verify="none",
        )
        self._notes.write_text("")
        result = self._client.transfer(job, self._fleet)
        if result.copied_bytes != size:
            raise AssertionError(f"{result.copied_bytes} bytes were copied")
        return Sent(float(self._notes.read_text().split()[-1]), result.seconds)


@contextmanager
def gateways(made: Network, folder: Path) -> Iterator[Gateways]:
    notes = folder / "receipts"
    root = Path(__file__).resolve().parents[1]
    begin = f"import sys; sys.path.insert(0, {str(root)!r}); {_CLOCKED}"
    options = LocalOptions(
        run_root=folder / "run",
        address_map={tag: made.address(tag) for tag in (NEAR, FAR)},
        launch_prefix={tag: made.enter(tag) for tag in (NEAR, FAR)},
        command=(sys.executable, "-c", begin, str(notes)),
        processes_per_instance=1,
    )
    client = Client(
        identity=RunIdentity("bench", "p2p", str(random.getrandbits(64))),
        provisioner=LocalProvisioner(options),
        poll_s=0.05,
    )
    with patch.dict(registry._MODULES, null_store.MODULES):
        fleet = client.provision(_plan())
        try:
            yield Gateways(client, fleet, folder, notes)
        finally:
            client.teardown(fleet)


def _plan() -> TransferPlan:
    return TransferPlan(
        src=NEAR,
        dst=FAR,
        objective={},
        throughput_gbps=1.0,
        volume_gb=None,
        transfer_s=None,
        provision_s=0.0,
        cost=PlanCost(None, None, None, None, 0.0),
        instances={region: InstanceGroup("process", 1) for region in (NEAR, FAR)},
        edges=(PlanEdge(NEAR, FAR, 1.0, CONNECTIONS, 5.0, 0.0),),
        paths=(PlanPath((NEAR, FAR), 1.0),),
        binding=(),
        solver=SolverReport("given", 0.0, 0.0, 0.0),
        grid=GridReference("none", "", "measured"),
    )


# ---------------------------------------------------------------- plain sockets

_TAKES: Final = """
import socket, struct, sys, threading
def take(end):
    piece = memoryview(bytearray(1 << 20))
    while head := end.recv(8, socket.MSG_WAITALL):
        left = struct.unpack("!Q", head)[0]
        while left:
            left -= end.recv_into(piece[:left] if left < len(piece) else piece)
        end.sendall(b".")
with socket.create_server((sys.argv[1], 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    while True:
        threading.Thread(target=take, args=(listener.accept()[0],), daemon=True).start()
"""

_SENDS: Final = """
import socket, struct, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
host, port, connections = sys.argv[1], *map(int, sys.argv[2:])
ends = [socket.create_connection((host, port)) for _ in range(connections)]
piece = memoryview(bytes(1 << 20))
def send(end, size):
    end.sendall(struct.pack("!Q", size))
    while size:
        size -= end.send(piece[:min(size, len(piece))])
    end.recv(1)
with ThreadPoolExecutor(connections) as pool:
    for line in sys.stdin:
        size, began = int(line), time.perf_counter()
        list(pool.map(send, ends, [size // connections] * connections))
        print(time.perf_counter() - began, flush=True)
"""


class PlainSockets:
    """As many warm connections between two processes."""

    def __init__(self, sender: subprocess.Popen[str]) -> None:
        assert sender.stdin is not None
        assert sender.stdout is not None
        self._input, self._output = sender.stdin, sender.stdout

    def send(self, mib: int) -> float:
        """Seconds until the last connection is answered."""
        self._input.write(f"{mib * BYTES_PER_MIB}\n")
        self._input.flush()
        return float(self._output.readline())


@contextmanager
def plain_sockets(made: Network) -> Iterator[PlainSockets]:
    with ExitStack() as open_:

        def started(node: str, *words: str) -> subprocess.Popen[str]:
            command = [*made.enter(node), sys.executable, "-c", *words]
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            open_.enter_context(process)
            open_.callback(process.kill)
            return process

        takes = started(FAR, _TAKES, made.address(FAR))
        assert takes.stdout is not None
        port = takes.stdout.readline().strip()
        yield PlainSockets(started(NEAR, _SENDS, made.address(FAR), port, str(CONNECTIONS)))


# ---------------------------------------------------------------- figures


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds of one message by plain sockets, and by gateways."""

    plain_s: float
    gateways: Sent


def _short(made: Network, plain: PlainSockets, setting: Setting, mib: int) -> str:
    """Sets the line; what plain sockets get over it if that is too little, else nothing."""
    there = Pair(2 * setting.delay_ms / 1e3, setting.rate_gbps, queue_s=_QUEUE_S)
    made.set_pair(NEAR, FAR, there)
    made.set_pair(FAR, NEAR, Pair(0.0))
    # The first warms the connections up.
    taken_s = min([plain.send(mib) for _ in range(4)][1:])
    if setting.wire_s(mib) >= _CARRIED * taken_s:
        return ""
    got_gbps = mib * BYTES_PER_MIB * 8e-9 / taken_s
    return f"of {setting.rate_gbps:g} Gbit/s plain sockets get {got_gbps:.2f} here"


def rounds_of(plain: PlainSockets, ours: Gateways, mib: int, rounds: int) -> list[Round]:
    """Messages over the line, in turn; one of each goes before."""
    return [Round(plain.send(mib), ours.send(mib)) for _ in range(rounds + 1)][1:]


def case_of(setting: Setting, mib: int, rounds: Sequence[Round]) -> Case:
    """The ratio of the medians of a row's rounds, each to the plain sockets of the same round."""
    ratios = [one.gateways.seconds / one.plain_s for one in rounds]
    is_judged = (setting.name, mib) == JUDGED
    seconds = {
        "gateways": statistics.median(one.gateways.seconds for one in rounds),
        "whole transfer": statistics.median(one.gateways.transfer_s for one in rounds),
        "plain sockets": statistics.median(one.plain_s for one in rounds),
        **_beside(setting, mib),
    }
    return Case(
        JUDGED_NAME if is_judged else f"{mib} MiB, {setting.name}",
        statistics.median(ratios),
        "x time",
        against="plain sockets",
        floor=FLOOR if is_judged else None,
        goal=GOAL if is_judged else None,
        spread=spread_of(ratios),
        seconds={name: round(value, 4) for name, value in seconds.items()},
    )


def _beside(setting: Setting, mib: int) -> dict[str, float]:
    return {
        "the wire": setting.wire_s(mib),
        "Gloo": setting.gloo_ms[mib] / 1e3,
        "NCCL": setting.nccl_ms[mib] / 1e3,
    }


def measure(rounds: int, only: str | None) -> tuple[list[Case], list[str]]:
    """The cases of all rows that the switch carries, and why each other is refused."""
    cases, refused = [], []
    with ExitStack() as open_:
        folder = Path(open_.enter_context(tempfile.TemporaryDirectory(prefix="p2p-")))
        made = open_.enter_context(network.opened((NEAR, FAR)))
        plain = open_.enter_context(plain_sockets(made))
        ours = open_.enter_context(gateways(made, folder))
        for setting in SETTINGS:
            for mib in SIZES_MIB:
                name = JUDGED_NAME if (setting.name, mib) == JUDGED else None
                if only is not None and only not in (name, setting.name):
                    continue
                short = _short(made, plain, setting, mib)
                if short:
                    refused.append(f"{mib} MiB, {setting.name} is refused: {short}")
                    continue
                made_rounds = rounds_of(plain, ours, mib, rounds)
                cases.append(case_of(setting, mib, made_rounds))
    return cases, refused


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--smoke", action="store_true", help="one round of the judged row")
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")
    parser.add_argument("--only", metavar="ROW", help="rows of this line, or p2p")
    options = parser.parse_args(arguments)
    rounds, only = (1, JUDGED_NAME) if options.smoke else (options.rounds, options.only)
    cases: list[Case] = []
    refused: list[str] = []
    try:
        cases, refused = measure(rounds, only)
    except Unavailable as error:
        print(f"p2p is left out: {error}", file=sys.stderr)
    for line in refused:
        print(line, file=sys.stderr)
    if options.smoke:
        cases = [replace(case, floor=None, goal=None) for case in cases]
    if not options.json:
        for case in cases:
            print(case.case, json.dumps(case.seconds))
    return finish("p2p", cases, runs=rounds, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
