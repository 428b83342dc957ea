"""Machines that QEMU emulates, without the help of the processor.

A guest has the network of QEMU's user mode: it reaches whatever this machine reaches. Each has an
address on this machine's loopback device, outside 127.0.0.0/8, so that the orchestrator and the
other guests reach its ports there, as they would in a cloud.
"""

from __future__ import annotations

import ast
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from tests.machine.roots import Root

from skyplane_orchestration.provision.fleet.machines import ENROLMENT_PORT

_MEMORY_MIB: Final = 1024
#: Enrolment, control and data of one gateway.
_PORTS: Final = range(ENROLMENT_PORT, ENROLMENT_PORT + 3)
#: Of this range for measurements of networks, no host is on the internet.
_NETWORK: Final = "198.19"
#: This machine's loopback address, as guests see it.
HOST_OF_GUESTS: Final = "10.0.2.2"
#: Emulated processors are slow, and here they share a few real ones.
PATIENCE_S: Final = 3600.0
_POLL_S: Final = 0.5

_CERTIFICATES: Final = Path("/etc/ssl/certs/ca-certificates.crt")
#: Settings of pip that tell where the package index is.
_INDEX_SETTINGS: Final = ("index-url", "extra-index-url", "trusted-host", "proxy")
#: The registry of this machine has no certificate.
_DOCKER: Final = json.dumps({"insecure-registries": [f"{HOST_OF_GUESTS}/32"]})
#: Saves minutes of emulation for each guest; no boot script looks at it. The sources of apt stay as
#: they are in Debian's own images, too.
_SHORTER_BOOT: Final = {
    "locale": False,
    "ssh_genkeytypes": ["ed25519"],
    "apt": {"preserve_sources_list": True},
}
_APT: Final = 'Acquire::Languages "none";\n'


@dataclass
class Guest:
    """One machine.

    Args:
        system: that of its disk.
        address: see above.
        folder: with its disk, its console and the socket of its monitor.
    """

    system: str
    address: str
    folder: Path
    process: subprocess.Popen[bytes]

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def console(self) -> str:
        return (self.folder / "console").read_bytes().decode(errors="replace")

    def shut_down(self) -> None:
        """Press its power button, unless it has ended or ends meanwhile."""
        if self.is_running:
            try:
                self._tell("system_powerdown")
            except (ConnectionError, FileNotFoundError):
                self.process.wait(PATIENCE_S)

    def reset(self) -> None:
        """Press its reset button."""
        self._tell("system_reset")

    def cut_power(self) -> None:
        self.process.kill()
        self.process.wait()

    def await_line(self, text: str) -> None:
        """Wait until the console has a text."""
        deadline_s = time.monotonic() + PATIENCE_S
        while text not in self.console():
            assert self.is_running, f"it ended before {text!r}: {self.tail()}"
            assert time.monotonic() < deadline_s, f"{text!r} is not in the console: {self.tail()}"
            time.sleep(_POLL_S)

    def await_power_off(self) -> None:
        """Wait until it has powered itself off."""
        try:
            status = self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it does not power off: {self.tail()}") from None
        assert status == 0
        assert "reboot: Power down" in self.console(), self.tail()

    def tail(self) -> str:
        return self.console()[-4000:]

    def uptime_s(self, text: str) -> float:
        """How long it was up when it first wrote a text."""
        (line, *_) = [line for line in self.console().splitlines() if text in line]
        found = re.match(r"\[ *([\d.]+)\]", line)
        assert found, line
        return float(found[1])

    def _tell(self, command: str) -> None:
        with socket.socket(socket.AF_UNIX) as stream:
            stream.connect(str(self.folder / "monitor"))
            answers = stream.makefile("r")
            for one in ("qmp_capabilities", command):
                stream.sendall(json.dumps({"execute": one}).encode() + b"\n")
                # Between a greeting and events.
                for answer in map(json.loads, answers):
                    assert "error" not in answer, answer
                    if "return" in answer:
                        break
                else:
                    raise ConnectionResetError(f"{self.system} ended before {one}")


@dataclass
class Guests:
    """All guests of a test.

    Args:
        folder: for their disks and consoles.
    """

    folder: Path
    all: list[Guest] = field(default_factory=list)

    def boot(self, root: Root, user_data: str) -> Guest:
        number = len(self.all) + 1
        folder = self.folder / f"guest{number}"
        seed = folder / "seed"
        seed.mkdir(parents=True)
        (seed / "user-data").write_text(user_data)
        (seed / "meta-data").write_text(f"instance-id: i-{number}\n")
        # YAML, as all JSON.
        (seed / "vendor-data").write_text(f"#cloud-config\n{json.dumps(self._vendor_data())}\n")
        address = add_address(number)
        with (folder / "qemu.log").open("wb") as log:
            process = subprocess.Popen(_command(root, folder, address), stdout=log, stderr=log)
        (folder / "console").touch()
        guest = Guest(root.system, address, folder, process)
        self.all.append(guest)
        return guest

    @staticmethod
    def _vendor_data() -> dict[str, Any]:
        files = {
            "/etc/pip.conf": _pip_settings(),
            "/etc/docker/daemon.json": _DOCKER,
            "/etc/apt/apt.conf.d/90languages": _APT,
        }
        if _CERTIFICATES.is_file():
            # A proxy may sign TLS with a certificate that only this machine knows.
            files[str(_CERTIFICATES)] = _CERTIFICATES.read_text()
        written = [{"path": path, "content": text} for path, text in files.items()]
        return {**_SHORTER_BOOT, "write_files": written}


@contextmanager
def emulated(folder: Path) -> Iterator[Guests]:
    """Guests that are gone afterwards."""
    guests = Guests(folder)
    try:
        yield guests
    finally:
        for guest in guests.all:
            guest.cut_power()
            delete_address(guest.address)


def add_address(number: int) -> str:
    """An address of the loopback device for this process alone. Skips the test without one."""
    address = f"{_NETWORK}.{os.getpid() & 255}.{number}"
    if refusal := _change_loopback("replace", address):
        pytest.skip(f"guests need addresses on the loopback device: {refusal}")
    return address


def delete_address(address: str) -> None:
    assert not _change_loopback("del", address)


def _change_loopback(verb: str, address: str) -> str:
    """Why it is refused, if it is."""
    command = ["ip", "address", verb, f"{address}/32", "dev", "lo"]
    try:
        done = subprocess.run(command, check=False, capture_output=True, text=True)
    except FileNotFoundError:
        return "there is no command ip"
    return done.stderr.strip() if done.returncode else ""


def _command(root: Root, folder: Path, address: str) -> list[str]:
    disk = folder / "disk"
    backing = ["-F", "raw", "-b", str(root.disk)]
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", *backing, str(disk)], check=True)
    seed = f"driver=vvfat,dir={folder / 'seed'},label=cidata,read-only=on"
    forwards = "".join(f",hostfwd=tcp:{address}:{port}-:{port}" for port in _PORTS)
    return [
        "qemu-system-x86_64",
        # Where the processor could help, that may hang in a machine that is emulated itself.
        *("-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1", "-m", str(_MEMORY_MIB)),
        *("-nodefaults", "-display", "none", "-serial", f"file:{folder / 'console'}"),
        *("-qmp", f"unix:{folder / 'monitor'},server=on,wait=off"),
        *("-kernel", str(root.kernel), "-initrd", str(root.initrd)),
        *("-append", f"{root.kernel_options} ds=nocloud"),
        *("-drive", f"file={disk},if=virtio,format=qcow2,cache=unsafe"),
        *("-drive", f"if=none,id=seed,{seed}", "-device", "virtio-blk-pci,drive=seed"),
        *("-netdev", f"user,id=net{forwards}", "-device", "virtio-net-pci,netdev=net"),
        *("-device", "virtio-rng-pci"),
    ]


def _pip_settings() -> str:
    """Where the package index of this machine is, for guests; none of it is secret."""
    command = [sys.executable, "-m", "pip", "config", "list"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    lines = ["[global]", f"cert = {_CERTIFICATES}"]
    for line in shown.splitlines():
        name, _, value = line.partition("=")
        setting = name.rpartition(".")[2]
        if setting in _INDEX_SETTINGS:
            lines.append(f"{setting} = {ast.literal_eval(value)}")
    return "\n".join(lines) + "\n"
