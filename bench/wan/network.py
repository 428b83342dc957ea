"""Regions of a wide area as network namespaces of this machine, joined by `switch.c`.

Needs root, /dev/net/tun, `nsenter` and a C compiler. Whatever ends this process, the switch then
ends all processes in its namespaces and itself; the namespaces and devices go with it.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Final

from tests.faults import go_programs
from tests.faults.go_programs import Unavailable

from skyplane_orchestration.units import gbps_of

__all__ = ["HOST", "Counts", "Network", "Pair", "Unavailable", "binary", "opened"]

_SOURCE: Final = Path(__file__).with_name("switch.c")
_BUILD_S: Final = 60
#: This process, in its own namespace.
HOST: Final = "host"
#: In the environment of what runs in a namespace: the process id of its switch.
_MARK: Final = "SKYPLANE_WAN"
MTU: Final = 9000
#: What a queue holds at least, as time at its rate.
_LEAST_QUEUE_S: Final = 0.05

#: For how long the switch is tested alone, and the processes that do it.
_ALONE_S: Final = 1.0
_TAKES: Final = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as listener:
    print(listener.getsockname()[1], flush=True)
    end = listener.accept()[0]
    while end.recv(1 << 20):
        pass
"""
_SENDS: Final = """
import socket, sys, time
end = socket.create_connection((sys.argv[1], int(sys.argv[2])))
began, sent, piece = time.monotonic(), 0, bytes(1 << 18)
while time.monotonic() - began < float(sys.argv[3]):
    sent += end.send(piece)
print(sent / (time.monotonic() - began))
"""


def binary(build_s: float | None = _BUILD_S) -> Path:
    """The switch, built once for each version of its source. Raises Unavailable."""
    text = _SOURCE.read_bytes()
    folder = go_programs.cache_folder()
    target = folder / f"wan-switch-{hashlib.sha256(text).hexdigest()[:12]}"

    def build() -> None:
        compiler = shutil.which("cc") or shutil.which("gcc")
        if compiler is None:
            raise Unavailable("there is no C compiler to build the switch with")
        unfinished = target.with_suffix(".new")
        command = [compiler, "-O2", "-Wall", "-Wextra", "-o", str(unfinished), str(_SOURCE)]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=build_s)
        unfinished.rename(target)

    go_programs.make_once(target, "wan-switch", build, build_s)
    return target


@dataclass(frozen=True, slots=True)
class Pair:
    """One direction between two nodes.

    Attributes:
        rtt_s: round trip; a packet takes half of it.
        gbps: rate of TCP's payload; None for no limit.
        loss: share of packets that are lost, whatever the load.
        queue_s: how long a packet may wait for the rate; None for a round trip.
    """

    rtt_s: float
    gbps: float | None = None
    loss: float = 0.0
    queue_s: float | None = None


@dataclass(frozen=True, slots=True)
class Flow:
    """Payload of one direction of a TCP connection, what was sent again included.

    Attributes:
        most_under_way_bytes: so much was on its way to that port of that node at one moment.
    """

    src: str
    dst: str
    from_port: int
    to_port: int
    payload_bytes: int
    most_under_way_bytes: int


@dataclass(frozen=True, slots=True)
class Counts:
    """What the switch has carried so far.

    Attributes:
        payload_bytes, dropped, lost: of TCP by pair; packets that found a queue full; packets
            lost by the pair's own loss.
        cpu_s: of the switch.
        late: packets that left over 2 ms too late.
        worst_late_s: the latest since the last count.
    """

    payload_bytes: dict[tuple[str, str], int]
    dropped: dict[tuple[str, str], int]
    lost: dict[tuple[str, str], int]
    flows: tuple[Flow, ...]
    cpu_s: float
    packets: int
    late: int
    worst_late_s: float


class Network:
    """Nodes and the lines between them. A pair that nobody has set has no delay and no limit."""

    def __init__(self, nodes: Sequence[str], process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._input: IO[str] = process.stdin
        self._output: IO[str] = process.stdout
        self.nodes = tuple(nodes)
        self._pairs: dict[tuple[str, str], Pair] = {}
        line = self._output.readline()
        if not line:
            raise Unavailable("the switch does not start; its message says why")
        told = json.loads(line)
        self._pid, self._namespaces = told["pid"], told["namespaces"]
        self._prefix = f"10.231.{told['network']}"

    # -- nodes

    def address(self, node: str) -> str:
        return f"{self._prefix}.{254 if node == HOST else self.nodes.index(node) + 1}"

    def enter(self, node: str) -> tuple[str, ...]:
        """Words before a command that is to run at a node."""
        where = f"/proc/{self._pid}/fd/{self._namespaces[self.nodes.index(node)]}"
        return ("env", f"{_MARK}={self._pid}", "nsenter", f"--net={where}")

    def set_sysctl(self, node: str, name: str, value: str) -> None:
        """A setting of the network of one node, such as `net/ipv4/tcp_wmem`."""
        words = ("sh", "-c", 'echo "$1" > "$0"', f"/proc/sys/{name}", value)
        subprocess.run([*self.enter(node), *words], check=True)

    # -- lines

    def set_pair(self, src: str, dst: str, pair: Pair) -> None:
        """One direction; a change holds from now on."""
        queue_s = max(_LEAST_QUEUE_S, pair.rtt_s) if pair.queue_s is None else pair.queue_s
        self._tell(
            f"pair {self._number(src)} {self._number(dst)} {pair.rtt_s * 5e5:.0f}"
            f" {_bytes_per_s(pair.gbps):.0f} {queue_s * 1e6:.0f} {pair.loss * 1e6:.0f}"
        )
        self._pairs[src, dst] = pair

    def set_line(self, one: str, other: str, pair: Pair) -> None:
        """Both directions."""
        self.set_pair(one, other, pair)
        self.set_pair(other, one, pair)

    def pair(self, src: str, dst: str) -> Pair:
        return self._pairs.get((src, dst), Pair(0.0))

    def scale_pair(self, src: str, dst: str, share: float) -> None:
        """A line that keeps this share of its rate."""
        old = self.pair(src, dst)
        assert old.gbps is not None
        self.set_pair(src, dst, replace(old, gbps=old.gbps * share))

    def set_node(
        self,
        node: str,
        egress_gbps: float | None,
        ingress_gbps: float | None,
        queue_s: float = _LEAST_QUEUE_S,
    ) -> None:
        """The most that a node sends and receives; None for no limit."""
        rates = f"{_bytes_per_s(egress_gbps):.0f} {_bytes_per_s(ingress_gbps):.0f}"
        self._tell(f"node {self._number(node)} {rates} {queue_s * 1e6:.0f}")

    # -- figures

    def counts(self) -> Counts:
        told = json.loads(self._ask("count"))
        names = (*self.nodes, HOST)
        rows = {(names[src], names[dst]): figures for src, dst, *figures in told["pairs"]}
        flows = tuple(
            Flow(names[src], names[dst], *figures) for src, dst, *figures in told["flows"]
        )
        payload_bytes, dropped, lost = (
            {pair: figures[column] for pair, figures in rows.items()} for column in range(3)
        )
        return Counts(
            payload_bytes,
            dropped,
            lost,
            flows,
            told["cpu_s"],
            told["packets"],
            told["late"],
            told["worst_late_ms"] / 1e3,
        )

    def carries_alone_gbps(self) -> float:
        """What the switch carries between its first two nodes with no limit: its own speed."""
        one, other = self.nodes[:2]
        before = self.pair(one, other), self.pair(other, one)
        self.set_line(one, other, Pair(0.0))
        takes = subprocess.Popen(
            [*self.enter(other), sys.executable, "-c", _TAKES, self.address(other)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert takes.stdout is not None
        with takes.stdout:
            words = (self.address(other), takes.stdout.readline().strip(), str(_ALONE_S))
            command = [*self.enter(one), sys.executable, "-c", _SENDS, *words]
            sent = subprocess.run(command, check=True, capture_output=True, text=True)
        takes.wait()
        self.set_pair(one, other, before[0])
        self.set_pair(other, one, before[1])
        return gbps_of(float(sent.stdout), 1.0)

    # -- inside

    def _number(self, node: str) -> int:
        return len(self.nodes) if node == HOST else self.nodes.index(node)

    def _ask(self, command: str) -> str:
        self._input.write(f"{command}\n")
        self._input.flush()
        return self._output.readline()

    def _tell(self, command: str) -> None:
        answer = self._ask(command).strip()
        if answer != "ok":
            raise AssertionError(f"the switch answers {answer!r} to {command!r}")


def _bytes_per_s(gbps: float | None) -> float:
    return 0.0 if gbps is None else gbps / gbps_of(1.0, 1.0)


@contextmanager
def opened(nodes: Sequence[str], *, mtu: int = MTU) -> Iterator[Network]:
    """A network with a namespace for each node, until the block ends.

    Raises:
        Unavailable: it cannot be made here; says why.
    """
    if os.geteuid() != 0 or not Path("/dev/net/tun").exists() or shutil.which("nsenter") is None:
        raise Unavailable("an emulated network needs root, /dev/net/tun and nsenter")
    program = binary()
    end_left_over()
    process = subprocess.Popen(
        [str(program), str(len(nodes)), str(mtu)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # An interruption from the keyboard ends what runs in the network first.
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield Network(nodes, process)
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


def end_left_over() -> int:
    """End the processes of networks whose switch is gone, as after a kill; how many they were."""
    ended = 0
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # It has ended.
        for word in words:
            name, _, pid = word.decode(errors="replace").partition("=")
            if name == _MARK and not _is_switch(pid):
                os.kill(int(entry.name), signal.SIGKILL)
                ended += 1
    return ended


def _is_switch(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="ascii").startswith("wan-switch")
    except OSError:
        return False
