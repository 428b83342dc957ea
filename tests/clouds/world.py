"""The machines of all fake clouds: they boot the user data that was sent, as real processes.

    with World(directory) as world:
        machine = world.boot(user_data)
        ...
        machine.power_off()

Each machine has a loopback address of its own, so all can use the same ports. Programs that would
change a real machine are stand-ins (`stand_ins.py`); no other program can be found by name.
When the context ends, or its process dies, all processes of all machines end.
"""

from __future__ import annotations

import hashlib
import io
import json
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.clouds.firewall import Firewall, WideRule
from tests.clouds.stand_ins import write_wrapper

from skyplane_orchestration.provision.instances.cloud import Ingress
from skyplane_orchestration.provision.instances.user_data import BootSettings
from skyplane_orchestration.provision.ssh.package import gateway_requirements

_REPOSITORY: Final = Path(__file__).parents[2]
_POWER: Final = Path(__file__).with_name("power.py")

#: A folder for `PYTHONPATH`: programs with it and SKYPLANE_FAKE_MACHINE obey the firewalls.
NETWORK: Final = Path(__file__).with_name("gateway_site")

#: What the machines can pull. The stand-ins run the source tree in its place.
IMAGE: Final = BootSettings(image="registry.example/skyplane-gateway@sha256:" + "ab" * 32)


def wheel_with(pins: str) -> bytes:
    """A wheel of which stand-ins read the gateway's pins only."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("skyplane_gateway/requirements.lock"), pins)
    return buffer.getvalue()


_WHEEL_BYTES: Final = wheel_with(gateway_requirements())
WHEEL: Final = BootSettings(
    wheel_url="https://files.example/skyplane_orchestration-0.1.0-py3-none-any.whl",
    wheel_sha256=hashlib.sha256(_WHEEL_BYTES).hexdigest(),
)

#: Harmless programs of this machine that boot scripts use.
_REAL_PROGRAMS: Final = ("chmod", "cut", "env", "grep", "mktemp", "sha256sum", "sleep")
_ALWAYS_THERE: Final = ("hostname", "setpriv", "shutdown", "systemctl")

#: Programs of a machine's image, and what its package manager offers.
DEBIAN_WITH_DOCKER: Final = (("apt-get", "curl", "docker"), ("docker.io",))
DEBIAN: Final = (("apt-get",), ("ca-certificates", "curl", "docker.io", "python3", "python3-venv"))
AMAZON_LINUX: Final = (("curl", "dnf"), ("docker", "python3.11"))
FEDORA: Final = (("curl", "dnf", "python3.11"), ("podman",))

Distribution = tuple[tuple[str, ...], tuple[str, ...]]


@dataclass
class Machine:
    """A machine that was booted.

    Args:
        address: its only one, 127.77.x.y.
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

    def allow(self, rules: Iterable[Ingress]) -> None:
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
        """Kill all its processes. Raises AssertionError if it would then run without gateways."""
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
        environment: variables that every gateway gets, such as the endpoint of a fake service.
        boot_s: how long a machine takes from its launch to its boot script.
    """

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        *,
        boot_s: float = 0.0,
    ) -> None:
        self._directory = directory.absolute()
        self._environment = dict(environment or {})
        self._boot_s = boot_s
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
        distribution: Distribution = DEBIAN_WITH_DOCKER,
        environment: Mapping[str, str] | None = None,
        on_end: Callable[[Machine], None] | None = None,
        programs: Mapping[str, str] | None = None,
        metadata_url: str = "",
        boot_s: float | None = None,
    ) -> Machine:
        """Boot a machine; returns at once.

        Args:
            environment: variables that its gateways get besides the world's.
            programs: name -> shell script, for programs in place of the stand-ins.
            metadata_url: what its `curl` asks in place of http://169.254.169.254.
            boot_s: as that of the world, for this machine.
            on_end: called in a thread when the machine has ended, for whatever reason.
        """
        boot_s = self._boot_s if boot_s is None else boot_s
        present, packages = distribution
        address, lock = _free_address()
        directory = self._directory / address
        for name in ("bin", "tmp"):
            (directory / name).mkdir(parents=True)
        facts = {
            "address": address,
            "python": sys.executable,
            "python_path": [str(NETWORK), str(_REPOSITORY / "gateway")],
            "environment": {
                **self._environment,
                **(environment or {}),
                "SKYPLANE_FAKE_MACHINE": str(directory),
            },
            "image": IMAGE.image,
            "wheel_url": WHEEL.wheel_url,
            "wheel_hex": _WHEEL_BYTES.hex(),
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

    def needless_rules(self) -> tuple[WideRule, ...]:
        """Those of `wide_rules` that no fleet needs.

        Any source may become the lead, and only the lead calls control ports. So a machine may
        leave unused ports open to another one, if the orchestrator has called these ports.
        """
        machines = {machine.address: machine.firewall for machine in self.machines}
        found = []
        for wide in self.wide_rules():
            called = {
                port for peer, port in machines[wide.address].connections if peer not in machines
            }
            used = {port for _, port in wide.used_by}
            is_open = set(range(wide.rule.first_port, wide.rule.last_port + 1))
            is_from_machine = wide.rule.source_cidr.removesuffix("/32") in machines
            if not is_from_machine or not is_open - used <= called:
                found.append(wide)
        return tuple(found)


def _fill_search_path(directory: Path, programs: Iterable[str]) -> None:
    for program in (*_ALWAYS_THERE, *programs):
        write_wrapper(directory, program, sys.executable)
    for program in _REAL_PROGRAMS:
        found = shutil.which(program)
        assert found is not None, f"{program} is needed to boot machines"
        (directory / "bin" / program).symlink_to(found)


def _free_address() -> tuple[str, socket.socket]:
    """An address that no other machine has, and a socket that keeps it until it is closed.

    Other tests run on the same machine at the same time.
    """
    while True:
        address = f"127.77.{random.randint(2, 254)}.{random.randint(1, 254)}"
        lock = socket.socket(socket.AF_UNIX)
        try:
            lock.bind(f"\0skyplane-world-{address}")
        except OSError:
            lock.close()
            continue
        return address, lock
