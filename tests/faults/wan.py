"""A long line between two network namespaces: what goes over it takes its time.

Each namespace has a TUN device; a process in between reads packets from one and writes them
to the other after half the round trip, no more of them a second than the rate allows. The
kernel's own netem is not needed for that, and often is not there. Needs root, `ip` and
/dev/net/tun. `python -m tests.faults.wan A B RTT_S BYTES_PER_S` is that process; for every
line that it reads it tells, as JSON, what has gone from A to B so far.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import select
import shutil
import struct
import subprocess
import sys
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

DEVICE: Final = "wan0"
ADDRESSES: Final = ("10.231.9.1", "10.231.9.2")
_MTU: Final = 9000

# <linux/if_tun.h>, <sched.h>, <sys/prctl.h>
_TUNSETIFF: Final = 0x400454CA
_IFF_TUN: Final = 0x0001
_IFF_NO_PI: Final = 0x1000
_CLONE_NEWNET: Final = 0x40000000
_PR_SET_TIMERSLACK: Final = 29

#: Of IPv4's protocols.
_TCP: Final = 6

#: Of what is on its way beyond the rate, so much waits; the rest is lost, as at a real line.
_QUEUE_S: Final = 0.5


class Unavailable(Exception):
    """There can be no such line here; says why."""


@dataclass(frozen=True, slots=True)
class Carried:
    """What went from the near end to one port of the far end, headers not counted.

    Attributes:
        connections_bytes: of each TCP connection, what was sent again included.
        most_under_way_bytes: so much was between the ends at one moment, at most.
    """

    connections_bytes: tuple[int, ...]
    most_under_way_bytes: int


@dataclass(frozen=True, slots=True)
class Line:
    """Both ends: names of the namespaces, in the order of `ADDRESSES`."""

    near: str
    far: str
    _process: subprocess.Popen[bytes]

    def carried(self, port: int) -> Carried:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()
        told = json.loads(self._process.stdout.readline())
        row = told.get(str(port), {"connections": [], "most_under_way": 0})
        return Carried(tuple(row["connections"]), row["most_under_way"])


@contextmanager
def line(rtt_s: float, bytes_per_s: float, *, most_window_bytes: int) -> Iterator[Line]:
    """Two namespaces and the line between them; this namespace reaches both addresses.

    Args:
        rtt_s: round trip.
        bytes_per_s: in each direction.
        most_window_bytes: what one connection may have on its way, as between systems whose
            buffers nobody has tuned.

    Raises:
        Unavailable.
    """
    if os.geteuid() != 0 or shutil.which("ip") is None or not Path("/dev/net/tun").exists():
        raise Unavailable("a line between network namespaces needs root, ip and /dev/net/tun")
    near, far = (f"sky{os.getpid()}{end}" for end in "ab")
    with ExitStack() as stack:
        for number, name in enumerate((near, far)):
            _namespace(stack, name, number, most_window_bytes)
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.faults.wan", near, far),
                *(str(rtt_s), str(bytes_per_s)),
            ],
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        stack.callback(process.wait)
        stack.callback(process.kill)
        assert process.stdin is not None
        assert process.stdout is not None
        stack.callback(process.stdin.close)
        stack.callback(process.stdout.close)
        if process.stdout.readline() != b"there\n":
            raise Unavailable("the line does not come up; its process says why")
        for number, name in enumerate((near, far)):
            for command in (
                f"ip -n {name} addr add {ADDRESSES[number]}/24 dev {DEVICE}",
                f"ip -n {name} link set {DEVICE} mtu {_MTU} up",
                f"ip route replace {ADDRESSES[number]}/32 via 10.231.8.{4 * number + 2}",
            ):
                _run(command)
        yield Line(near, far, process)


def _namespace(stack: ExitStack, name: str, number: int, window_bytes: int) -> None:
    """A namespace joined to ours by a pair of addresses, for control calls."""
    _run(f"ip netns add {name}")
    stack.callback(_run, f"ip netns del {name}")
    ours, theirs = f"10.231.8.{4 * number + 1}/30", f"10.231.8.{4 * number + 2}/30"
    windows = f"4096 {min(16384, window_bytes)} {window_bytes}"
    _run(f"ip link add {name}x type veth peer name {name}y netns {name}")
    # By hand: connections that were cut off keep a namespace for minutes, and it its links.
    stack.callback(_run, f"ip link del {name}x")
    for command in (
        f"ip addr add {ours} dev {name}x",
        f"ip link set {name}x up",
        f"ip -n {name} addr add {theirs} dev {name}y",
        f"ip -n {name} link set {name}y up",
        f"ip -n {name} link set lo up",
    ):
        _run(command)
    # What a sender may have on its way, in that namespace alone.
    script = 'echo "$1" > /proc/sys/net/ipv4/tcp_wmem'
    subprocess.run(["ip", "netns", "exec", name, "sh", "-c", script, "sh", windows], check=True)


def _run(command: str) -> None:
    done = subprocess.run(command.split(), check=False, capture_output=True, text=True)
    if done.returncode != 0:
        # Not allowed here, or another run has these addresses.
        raise Unavailable(f"{command}: {done.stderr.strip()}")


# ---------------------------------------------------------------- the process in between


@dataclass
class _Tally:
    """Payload of TCP, by the port that it goes to."""

    connections: defaultdict[int, Counter[int]] = field(
        default_factory=lambda: defaultdict(Counter)
    )
    under_way: Counter[int] = field(default_factory=Counter)
    most_under_way: Counter[int] = field(default_factory=Counter)

    def leaves(self, packet: bytes) -> None:
        origin, port, size = _tcp_payload(packet)
        if size:
            self.connections[port][origin] += size
            self.under_way[port] += size
            self.most_under_way[port] = max(self.most_under_way[port], self.under_way[port])

    def arrives(self, packet: bytes) -> None:
        _, port, size = _tcp_payload(packet)
        self.under_way[port] -= size

    def told(self) -> dict[int, Any]:
        return {
            port: {
                "connections": list(sizes.values()),
                "most_under_way": self.most_under_way[port],
            }
            for port, sizes in self.connections.items()
        }


def _tcp_payload(packet: bytes) -> tuple[int, int, int]:
    """Ports it comes from and goes to, and bytes; all zero for a packet of another kind."""
    if packet[0] >> 4 != 4 or packet[9] != _TCP:
        return 0, 0, 0
    start = 4 * (packet[0] & 15)
    origin, port = struct.unpack_from("!HH", packet, start)
    (total,) = struct.unpack_from("!H", packet, 2)
    return origin, port, total - start - 4 * (packet[start + 12] >> 4)


@dataclass
class _Direction:
    """Packets from one device to the other."""

    inlet: int
    outlet: int
    delay_s: float
    bytes_per_s: float
    packets: deque[tuple[float, bytes]] = field(default_factory=deque)
    free_at_s: float = 0.0
    tally: _Tally = field(default_factory=_Tally)

    def take(self, now_s: float) -> None:
        packet = os.read(self.inlet, 65536)
        begins_s = max(self.free_at_s, now_s)
        if begins_s - now_s > _QUEUE_S:
            return
        self.free_at_s = begins_s + len(packet) / self.bytes_per_s
        self.packets.append((self.free_at_s + self.delay_s, packet))
        self.tally.leaves(packet)

    def give(self, now_s: float) -> None:
        while self.packets and self.packets[0][0] <= now_s:
            packet = self.packets.popleft()[1]
            self.tally.arrives(packet)
            # A device that is not up yet, or full, loses it.
            with contextlib.suppress(OSError):
                os.write(self.outlet, packet)


def _device(namespace: str) -> int:
    """The TUN device of a namespace, made by this process and gone with it."""
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.open("/proc/self/ns/net", os.O_RDONLY)
    there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(there, _CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        wanted = struct.pack("16sH", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI)
        fcntl.ioctl(device, _TUNSETIFF, wanted)
        libc.setns(own, _CLONE_NEWNET)
    finally:
        os.close(own)
        os.close(there)
    return device


def carry(near: str, far: str, rtt_s: float, bytes_per_s: float) -> None:
    """Carry packets between two namespaces until the process is killed, or its input ends."""
    one, other = _device(near), _device(far)
    ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000, 0, 0, 0)
    ways = [
        _Direction(one, other, rtt_s / 2, bytes_per_s),
        _Direction(other, one, rtt_s / 2, bytes_per_s),
    ]
    poll = select.epoll()
    asked = sys.stdin.fileno()
    for inlet in (asked, *(way.inlet for way in ways)):
        poll.register(inlet, select.EPOLLIN)
    _say("there")
    while True:
        due_s = min((way.packets[0][0] for way in ways if way.packets), default=None)
        wait_s = -1.0 if due_s is None else max(0.0, due_s - time.monotonic())
        ready = dict(poll.poll(wait_s))
        now_s = time.monotonic()
        if asked in ready:
            if not os.read(asked, 4096):
                return
            _say(json.dumps(ways[0].tally.told()))
        for way in ways:
            if way.inlet in ready:
                way.take(now_s)
            way.give(now_s)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    carry(sys.argv[1], sys.argv[2], float(sys.argv[3]), float(sys.argv[4]))
