"""The machines of all fake clouds: they boot the user data that was sent, as real processes.

    with World(directory, program) as world:
        machine = world.boot(user_data)
        ...
        machine.power_off()

Each machine has an address of its own, mostly of loopback, so all can use the same ports. Programs
that would change a real machine are stand-ins (`stand_ins.py`); no other program can be found by
name.
When the context ends, or its process dies, all processes of all machines end.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from strict_clouds.firewall import Firewall, IngressRule, WideRule
from strict_clouds.stand_ins import write_wrapper

_POWER: Final = Path(__file__).with_name("power.py")

#: A folder for `PYTHONPATH`: programs in Python with it and STRICT_CLOUDS_MACHINE, the directory of
#: a machine, obey the firewalls.
NETWORK: Final = Path(__file__).with_name("machine_site")

#: Harmless programs of this machine that boot scripts use.
_REAL_PROGRAMS: Final = (
    *("cat", "chmod", "cut", "env", "grep", "mktemp", "rm", "sha256sum", "sleep", "uname"),
)
_ALWAYS_THERE: Final = ("hostname", "ip", "setpriv", "shutdown", "systemctl")

#: Programs of a machine's image; and what its package manager offers: package -> its programs.
Distribution = tuple[tuple[str, ...], Mapping[str, tuple[str, ...]]]

_APT_IMAGE: Final = ("apt-get", "curl", "python3")
DEBIAN_12: Final[Distribution] = (_APT_IMAGE, {"docker.io": ("docker",)})
#: Of Debian 13: the daemon and the command are packages of their own.
DEBIAN: Final[Distribution] = (_APT_IMAGE, {"docker.io": (), "docker-cli": ("docker",)})
AMAZON_LINUX: Final[Distribution] = (("curl", "dnf"), {"docker": ("docker",)})
FEDORA: Final[Distribution] = (("curl", "dnf", "python3.11"), {"podman": ("podman",)})


@dataclass(frozen=True, slots=True)
class Program:
    """What machines run in place of a container, or of a module that they install.

    Args:
        command: begins with an absolute path; the arguments of a call follow.
        image: the only image that `docker` and `podman` can pull; the command is its entry point.
        login: `cloud`, `host`, `user` and `password` of the image's registry; empty if it allows
            pulls without login.
        module: name of the Python module that the command stands for.
        environment: variables of the program. It has no others but PATH, HOME and the like.
    """

    command: tuple[str, ...]
    image: str
    module: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    login: Mapping[str, str] = field(default_factory=dict)


@dataclass
class Machine:
    """A machine that was booted.

    Args:
        address: its only one, of the world's network.
        directory: its files; `console` holds all its output.
    """

    address: str
    directory: Path
    _power: subprocess.Popen[bytes]
    _lock: socket.socket
    _on_end: Callable[[Machine], None] | None
    _watcher: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        self._watcher = threading.Thread(target=self._watch)
        self._watcher.start()

    @property
    def is_running(self) -> bool:
        return self._power.poll() is None

    @property
    def why_ended(self) -> str:
        """`shutdown -P now` if it shut itself down; empty if it runs or was powered off."""
        return self._read("why_ended")

    @property
    def hard_end_minutes(self) -> int | None:
        """After how many minutes it would shut itself down."""
        return int(self._read("hard_end_minutes") or 0) or None

    @property
    def firewall(self) -> Firewall:
        """Open to all until rules are set."""
        return Firewall(self.directory)

    def allow(self, rules: Iterable[IngressRule]) -> None:
        """Let its firewall allow exactly these."""
        self.firewall.allow(rules)

    def console(self) -> str:
        """All its output until now."""
        return (self.directory / "console").read_text(errors="replace")

    def sent_bytes(self) -> dict[str, int]:
        """Address of another machine -> bytes that this one has sent to it over TCP."""
        sent: Counter[str] = Counter()
        for path in self.directory.glob("sent.*.json"):
            sent.update(json.loads(path.read_text()))
        return dict(sent)

    def shut_down(self) -> None:
        """As an API call: its processes get a SIGTERM and some time. Returns at once."""
        self._power.send_signal(signal.SIGTERM)

    def power_off(self) -> None:
        """Kill all its processes, and wait until they are gone."""
        self.cut_power()
        self.wait_ended()

    def cut_power(self) -> None:
        """Kill all its processes; returns at once."""
        assert self._power.stdin is not None
        self._power.stdin.close()

    def reboot(self) -> None:
        """Kill all its processes. Raises AssertionError if it would then run on, and idle."""
        target = self._read("default_target")
        assert target == "poweroff.target", f"it would boot {target or 'as before'}, and idle"
        self.power_off()

    def wait_ended(self, timeout_s: float = 60.0) -> None:
        """Raises AssertionError, with its console output, if it runs on."""
        self._watcher.join(timeout_s)
        assert not self._watcher.is_alive(), f"{self.address} runs on:\n{self.console()}"

    def _watch(self) -> None:
        self._power.wait()
        self._lock.close()
        if self._on_end is not None:
            self._on_end(self)

    def _read(self, name: str) -> str:
        path = self.directory / name
        return path.read_text() if path.exists() else ""


class World:
    """All machines of a test.

    Args:
        directory: private to this world; stays, for its console outputs.
        program: what boot scripts run by `docker` and the like; None if they run no such program.
        network: of the addresses of machines, all of which are this computer's.
    """

    def __init__(
        self, directory: Path, program: Program | None = None, network: str = "127.77.0.0/16"
    ) -> None:
        self._network = ip_network(network)
        self._directory = directory.absolute()
        self._program = program or Program((), "")
        self.machines: list[Machine] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for machine in self.machines:
            machine.cut_power()
        for machine in self.machines:
            machine.wait_ended()

    def boot(
        self,
        user_data: str,
        *,
        distribution: Distribution = DEBIAN,
        on_end: Callable[[Machine], None] | None = None,
        programs: Mapping[str, str] | None = None,
        metadata_url: str = "",
        boot_s: float = 0.0,
    ) -> Machine:
        """Boot a machine; returns at once.

        Args:
            programs: name -> shell script, for programs in place of the stand-ins.
            metadata_url: what its `curl` asks in place of http://169.254.169.254.
            boot_s: how long it takes from its launch to its boot script.
            on_end: called in a thread when the machine has ended, for whatever reason.
        """
        present, packages = distribution
        address, lock = _free_address(self._network)
        directory = self._directory / address
        for name in ("bin", "tmp"):
            (directory / name).mkdir(parents=True)
        program = self._program
        python_path = (str(NETWORK), program.environment.get("PYTHONPATH", ""))
        facts = {
            "address": address,
            "python": sys.executable,
            "command": program.command,
            "environment": {
                **program.environment,
                "PYTHONPATH": os.pathsep.join(filter(None, python_path)),
                "STRICT_CLOUDS_MACHINE": str(directory),
            },
            "image": program.image,
            "login": dict(program.login),
            "module": program.module,
            "packages": packages,
            "metadata_url": metadata_url,
        }
        (directory / "machine.json").write_text(json.dumps(facts))
        (directory / "user-data").write_text(user_data)
        (directory / "console").touch()
        _fill_search_path(directory, present)
        for name, script in (programs or {}).items():
            (directory / "bin" / name).write_text(script)
            (directory / "bin" / name).chmod(0o755)
        power = subprocess.Popen(
            [sys.executable, "-I", "-S", str(_POWER), str(directory), str(boot_s)],
            stdin=subprocess.PIPE,
            cwd="/",
            env={},  # A machine has nothing of the one that launches it.
            start_new_session=True,
        )
        machine = Machine(address, directory, power, lock, on_end)
        self.machines.append(machine)
        return machine

    def wide_rules(self) -> tuple[WideRule, ...]:
        """Rules of all machines that allow more than was used."""
        return tuple(rule for machine in self.machines for rule in machine.firewall.wide_rules())


def _fill_search_path(directory: Path, programs: Iterable[str]) -> None:
    for program in (*_ALWAYS_THERE, *programs):
        write_wrapper(directory, program, sys.executable)
    for program in _REAL_PROGRAMS:
        found = shutil.which(program)
        assert found is not None, f"{program} is needed to boot machines"
        (directory / "bin" / program).symlink_to(found)


def _free_address(network: IPv4Network | IPv6Network) -> tuple[str, socket.socket]:
    """An address that no other machine has, and a socket that keeps it until it is closed.

    Other tests run on the same machine at the same time.
    """
    while True:
        address = str(network[random.randrange(512, network.num_addresses - 1)])
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0strict-clouds-{address}")
        except OSError:
            lock.close()
            continue
        return address, lock
