"""How containers of the stand-in node run: as machines of the strict fakes, or as processes.

A process has a network namespace of its own on a bridge, as a Pod has. So gateways have the same
ports in each, and a port-forward arrives where only what listens on loopback is found.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.faults.go_programs import Unavailable
from tests.provision.kubernetes.kubelet import Running, Runs

from strict_clouds.machines import Machine, MachineBooter

_BRIDGE: Final = "skyplane-pods"
_NETWORK: Final = "10.77.0"
#: Where Pods reach this machine.
HOST: Final = f"{_NETWORK}.1"
#: How others see Pods.
POD_CIDR: Final = f"{_NETWORK}.0/24"
#: More addresses of this machine, which Pods reach: of load balancers, and of machines.
BALANCERS: Final = "10.77.128"
MACHINES: Final = "10.77.192.0/18"
_OWN: Final = "10.77.128.0/17"
_CLONE_NEWNET: Final = 0x40000000


@dataclass
class MachinePod:
    """A container that is a machine of the strict fakes; without one it runs until its end."""

    machine: Machine | None
    address: str
    is_over: bool = False

    def exit_code(self) -> int | None:
        if self.is_over:
            return 143
        return None if self.machine is None or self.machine.is_running else 1

    def end(self, grace_s: float) -> None:
        if self.machine is not None:
            self.machine.shut_down()
        self.is_over = True

    def log(self) -> bytes:
        return b"" if self.machine is None else self.machine.console().encode()

    async def dial(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        raise ConnectionRefusedError("a stand-in does not listen")


@dataclass
class MachinePods(Runs):
    """Boots machines from the enrolment documents of Pods, which the API server has kept."""

    machines: MachineBooter | None
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def start(self, pod: Mapping[str, Any], files: Mapping[str, Mapping[str, bytes]]) -> Running:
        [document] = (texts["document"].decode() for texts in files.values())
        if self.machines is None:
            return MachinePod(None, f"198.51.100.{next(self._numbers) % 250 + 1}")
        machine = self.machines.boot(document)
        return MachinePod(machine, machine.address)


@dataclass
class ProcessPod:
    """A container that is the gateway's supervisor in a namespace of the network."""

    address: str
    namespace: str
    folder: Path
    process: subprocess.Popen[bytes]

    def exit_code(self) -> int | None:
        return self.process.poll()

    def end(self, grace_s: float) -> None:
        if self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM if grace_s else signal.SIGKILL)

        def kill() -> None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)

        timer = threading.Timer(grace_s, kill)
        timer.daemon = True
        timer.start()

    def log(self) -> bytes:
        return (self.folder / "log").read_bytes()

    async def dial(self, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        plain = await asyncio.to_thread(_connected_in, self.namespace, port)
        return await asyncio.open_connection(sock=plain)


@dataclass
class ProcessPods(Runs):
    """Attributes: pods: all that were started."""

    folder: Path
    pods: list[ProcessPod] = field(default_factory=list)

    def start(self, pod: Mapping[str, Any], files: Mapping[str, Mapping[str, bytes]]) -> Running:
        number = len(self.pods) + 2
        folder = self.folder / f"pod-{number}"
        (folder / "tmp").mkdir(parents=True)
        places = {"/tmp": str(folder / "tmp")}
        for mounted, texts in files.items():
            place = folder / mounted.strip("/").replace("/", "-")
            place.mkdir()
            for name, data in texts.items():
                (place / name).write_bytes(data)
            places[mounted] = str(place)
        container = pod["spec"]["containers"][0]
        namespace, address = f"skyplane-{number}", f"{_NETWORK}.{number}"
        _ip(f"netns add {namespace}")
        _ip(f"link add sky{number} type veth peer name eth0 netns {namespace}")
        _ip(f"link set sky{number} master {_BRIDGE} up")
        for words in (f"addr add {address}/24 dev eth0", "link set eth0 up", "link set lo up"):
            _ip(f"-n {namespace} {words}")
        _ip(f"-n {namespace} route add default via {_NETWORK}.1")
        given = container.get("env", [])
        environment = {one["name"]: _placed(one["value"], places) for one in given}
        program = (sys.executable, "-m", "skyplane_gateway", *container.get("args", ()))
        if "command" in container:  # Of an image with a Python, as this machine is one.
            program = tuple(container["command"])
            environment["TMPDIR"] = str(folder / "tmp")
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [
                    *("ip", "netns", "exec", namespace),
                    *(_placed(word, places) for word in program),
                ],
                env={"PATH": os.environ["PATH"], "PYTHONUNBUFFERED": "1", **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        made = ProcessPod(address, namespace, folder, process)
        self.pods.append(made)
        return made

    def clear(self) -> None:
        for one in self.pods:
            one.end(0.0)
            one.process.wait(30)
            _ip(f"netns del {one.namespace}")


def _placed(text: str, places: Mapping[str, str]) -> str:
    for mounted, place in places.items():
        if text == mounted or text.startswith(f"{mounted}/"):
            return place + text.removeprefix(mounted)
    return text


@contextmanager
def process_pods() -> Iterator[ProcessPods]:
    """Raises Unavailable: this user may make no network namespaces."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        raise Unavailable("network namespaces need root and iproute2")
    with tempfile.TemporaryDirectory(prefix="pods-", ignore_cleanup_errors=True) as folder:
        _ip(f"link add {_BRIDGE} type bridge")
        try:
            _ip(f"addr add {_NETWORK}.1/24 dev {_BRIDGE}")
            _ip(f"link set {_BRIDGE} up")
            _ip(f"route replace local {_OWN} dev lo src {HOST}")
            made = ProcessPods(Path(folder))
            try:
                yield made
            finally:
                made.clear()
        finally:
            # With the route, whose source is its address.
            _ip(f"link del {_BRIDGE}")


def _ip(words: str) -> None:
    done = subprocess.run(["ip", *words.split()], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Unavailable(f"ip {words}: {done.stderr.strip()}")


def _connected_in(namespace: str, port: int) -> socket.socket:
    """A connection to a port of loopback in a namespace; the thread enters it and ends."""
    made: list[socket.socket | OSError] = []

    def connect() -> None:
        with Path(f"/var/run/netns/{namespace}").open() as file:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.setns(file.fileno(), _CLONE_NEWNET) != 0:
                made.append(OSError(ctypes.get_errno(), "setns"))
                return
        try:
            made.append(socket.create_connection(("127.0.0.1", port), timeout=10))
        except OSError as error:
            made.append(error)

    thread = threading.Thread(target=connect)
    thread.start()
    thread.join()
    [found] = made
    if isinstance(found, OSError):
        raise found
    found.setblocking(False)
    return found
