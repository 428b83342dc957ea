"""Files of fleets: one directory per fleet, with one directory per gateway.

    <run root>/<fleet key>/fleet-meta.json         deployment, host and hard end
                           fleet.json              the fleet document of a running fleet
                           <node, quoted>/         private to one gateway (mode 0700)
                               config.json         its configuration (0600)
                               gateway.pem         its certificate and key (0600)
                               authority.pem       certificate of the fleet's authority
                               gateway.log         its output
                               ready.json          its ports and process id, once it listens

The fleet's directory is also its lock: a process that changes a fleet holds a flock on it.
The kernel releases the lock when the process ends.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.config import GatewayConfig
from skyplane_orchestration.errors import ConfigurationInvalid, SkyplaneError
from skyplane_orchestration.provision.local import machine, this_machine
from skyplane_orchestration.provision.provisioner import FleetSpec

_HEX: Final = frozenset("0123456789abcdef")
_POLL_S: Final = 0.05

_META: Final = "fleet-meta.json"
_FLEET: Final = "fleet.json"


class DirectoryBusy(SkyplaneError):
    """Another process holds the lock of this fleet; internal to provisioners."""


@dataclass(frozen=True, slots=True)
class FleetMeta:
    """The record of a fleet; it stands for a cloud's tags.

    `processes_per_instance` is kept, because a worker with other processors may repair the fleet.
    """

    deployment: str
    generation: int
    created_unix_s: float
    hard_end_unix_s: float
    host: str
    processes_per_instance: int = 1

    @classmethod
    def of(cls, spec: FleetSpec, now_unix_s: float, processes_per_instance: int = 1) -> FleetMeta:
        """The record of a new fleet on this machine."""
        return cls(
            deployment=spec.deployment,
            generation=spec.generation,
            created_unix_s=now_unix_s,
            hard_end_unix_s=now_unix_s + spec.times.hard_end_s,
            host=this_machine.host_identity(),
            processes_per_instance=processes_per_instance,
        )


@dataclass(frozen=True, slots=True)
class GatewayFiles:
    """The files of one gateway."""

    directory: Path

    @property
    def node(self) -> str:
        return unquote(self.directory.name)

    @property
    def config_path(self) -> Path:
        return self.directory / "config.json"

    def fill(self, files: Mapping[str, str]) -> None:
        """Make the directory with these files, without those of an earlier gateway."""
        machine.fill(self.directory, files)

    def read_config(self) -> GatewayConfig | None:
        document = _parse(machine.read(self.config_path))
        return None if document is None else GatewayConfig.from_dict(document)

    def read_certificate(self) -> str | None:
        return machine.read(self.directory / "gateway.pem")

    def read_ports(self) -> tuple[int, int, int] | None:
        """(control port, data port, process id); None until the gateway listens."""
        ready = _parse(machine.read(self.directory / "ready.json"))
        if ready is None:
            return None
        return int(ready["control_port"]), int(ready["data_port"]), int(ready["pid"])

    def log_tail(self, max_bytes: int) -> str:
        """The end of its log; empty if there is none."""
        return machine.read_end(self.directory / "gateway.log", max_bytes)


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A process that runs or starts one gateway; `owner` is its user id."""

    pid: int
    files: GatewayFiles
    owner: int

    @property
    def node(self) -> str:
        return self.files.node

    def send(self, number: int) -> None:
        """Send a signal."""
        machine.send(self.files.directory, self.pid, self.owner, number)


def names_of(processes: Iterable[GatewayProcess]) -> str:
    """Nodes and process ids, for messages."""
    return ", ".join(f"{process.node} (pid {process.pid})" for process in processes)


@dataclass(frozen=True, slots=True)
class FleetDirectory:
    """The directory of one fleet; it may not exist."""

    path: Path

    @property
    def key(self) -> str:
        return self.path.name

    def gateway(self, node: str) -> GatewayFiles:
        return GatewayFiles(self.path / quote(node, safe=":"))

    def gateways(self) -> tuple[GatewayFiles, ...]:
        """All gateways that have a directory, sorted by name."""
        names = machine.directories(self.path)
        return tuple(GatewayFiles(self.path / name) for name in names)

    def processes(self) -> tuple[GatewayProcess, ...]:
        """The processes of its gateways, sorted by process id."""
        return tuple(
            GatewayProcess(pid, GatewayFiles(Path(directory)), owner)
            for pid, directory, owner in machine.scan(self.path.parent, self.key)
        )

    @contextlib.contextmanager
    def locked(self, *, create: bool, timeout_s: float, clock: Clock) -> Iterator[None]:
        """Hold the fleet's lock; `create` makes a missing directory.

        Raises DirectoryBusy after the timeout, FileNotFoundError for a missing directory.
        """

        def try_lock() -> int | None:
            if create:
                self.path.mkdir(mode=0o700, exist_ok=True)
            elif not self.path.exists():
                raise FileNotFoundError(f"fleet {self.key} is gone")
            return machine.try_lock(self.path)

        busy = f"another process is working on fleet {self.key}"
        with _locked(try_lock, busy, timeout_s, clock):
            yield

    def clear(self) -> None:
        """Delete the content, but not the directory."""
        machine.clear(self.path)

    def remove(self) -> None:
        machine.remove(self.path)

    def read_meta(self) -> FleetMeta | None:
        """The record; None if there is none, or if another release wrote it."""
        document = self._read(_META)
        with contextlib.suppress(TypeError):
            return None if document is None else FleetMeta(**document)
        return None

    def read_fleet(self) -> dict[str, Any] | None:
        return self._read(_FLEET)

    def write_meta(self, meta: FleetMeta) -> None:
        self._write(_META, asdict(meta))

    def write_fleet(self, document: Mapping[str, Any]) -> None:
        self._write(_FLEET, document)

    def _read(self, name: str) -> dict[str, Any] | None:
        """A document of the fleet; None if it is missing or incomplete."""
        return _parse(machine.read(self.path / name))

    def _write(self, name: str, document: Mapping[str, Any]) -> None:
        machine.write(self.path / name, json.dumps(document, indent=1) + "\n")


@dataclass(frozen=True, slots=True)
class RunRoot:
    """The directory of all fleets of one user."""

    path: Path

    def prepare(self) -> None:
        """Make the directory, or check that it is private to this user.

        Raises ConfigurationInvalid for a symbolic link or another user's directory.
        """
        try:
            machine.make_root(self.path)
        except OSError as error:
            raise ConfigurationInvalid.about(
                "the run directory {path} cannot be used: {why}; choose another {run_root}",
                path=self.path,
                why=error.strerror,
            ) from error

    @contextlib.contextmanager
    def locked(self, *, timeout_s: float, clock: Clock) -> Iterator[None]:
        """Hold the lock of the directory, for a decision about all fleets in it.

        All processes of a provisioner that also need the lock of a fleet take both in one order.
        Raises DirectoryBusy after the timeout.
        """

        def try_lock() -> int | None:
            # The end of its last fleet may have removed it.
            machine.make_root(self.path)
            return machine.try_lock(self.path)

        busy = f"another process starts a fleet in {self.path}"
        with _locked(try_lock, busy, timeout_s, clock):
            yield

    def fleet(self, fleet_key: str) -> FleetDirectory:
        if not fleet_key or set(fleet_key) - _HEX:
            raise ConfigurationInvalid(f"fleet key {fleet_key!r} is not lower-case hex")
        return FleetDirectory(self.path / fleet_key)

    def fleets(self) -> tuple[FleetDirectory, ...]:
        """All fleets that have a directory, sorted by key."""
        names = machine.directories(self.path)
        return tuple(self.fleet(name) for name in names if not set(name) - _HEX)


def default_run_root() -> Path:
    """`$XDG_RUNTIME_DIR/skyplane-orch`, or a directory of this user in /tmp."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if Path(runtime).is_absolute() and Path(runtime).is_dir():
        return Path(runtime) / "skyplane-orch"
    return Path("/tmp") / f"skyplane-orch-{os.geteuid()}"


@contextlib.contextmanager
def _locked(
    try_lock: Callable[[], int | None],
    busy: str,
    timeout_s: float,
    clock: Clock,
) -> Iterator[None]:
    """Hold a lock. Raises DirectoryBusy, with the text `busy`, after the timeout."""
    deadline = clock.monotonic() + timeout_s
    while (lock := try_lock()) is None:
        if clock.monotonic() >= deadline:
            raise DirectoryBusy(busy)
        clock.sleep(_POLL_S)
    try:
        yield
    finally:
        os.close(lock)


def _parse(text: str | None) -> dict[str, Any] | None:
    """A JSON object; None for a missing or incomplete file."""
    try:
        document = json.loads(text or "")
    except ValueError:
        return None
    return document if isinstance(document, dict) else None
