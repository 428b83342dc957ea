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
import errno
import fcntl
import hashlib
import json
import os
import secrets
import shutil
import ssl
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.config import GatewayConfig
from skyplane_orchestration.errors import ConfigurationInvalid, FleetLost, SkyplaneError
from skyplane_orchestration.provision.local import machine
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
            host=machine.host_identity(),
            processes_per_instance=processes_per_instance,
        )


@dataclass(frozen=True, slots=True)
class GatewayFiles:
    directory: Path

    @property
    def node(self) -> str:
        return unquote(self.directory.name)

    @property
    def config_path(self) -> Path:
        return self.directory / "config.json"

    def fill(self, files: Mapping[str, str]) -> None:
        """Make the private directory with these files, without those of an earlier gateway."""
        _remove(self.directory)
        self.directory.mkdir(mode=0o700)
        for name, text in files.items():
            _write(self.directory / name, text)

    def read_config(self) -> GatewayConfig | None:
        document = _document(self.config_path)
        return None if document is None else GatewayConfig.from_dict(document)

    def read_ports(self) -> tuple[int, int, int] | None:
        """(control port, data port, process id); None until the gateway listens."""
        ready = _document(self.directory / "ready.json")
        if ready is None:
            return None
        return int(ready["control_port"]), int(ready["data_port"]), int(ready["pid"])

    def fingerprint(self) -> str:
        """SHA-256 of its certificate over its DER form, in hex; empty if there is none."""
        try:
            pem = (self.directory / "gateway.pem").read_text(encoding="ascii")
        except FileNotFoundError:
            return ""
        certificate, end, _ = pem.partition(ssl.PEM_FOOTER)
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate + end)).hexdigest()

    def log_tail(self, max_bytes: int) -> str:
        """The end of its log; empty if it cannot be read."""
        try:
            with (self.directory / "gateway.log").open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - max_bytes))
                return file.read(max_bytes).decode(errors="replace")
        except OSError:
            return ""


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
        return tuple(map(GatewayFiles, _directories(self.path)))

    def processes(self) -> tuple[machine.GatewayProcess, ...]:
        """The processes of its gateways, sorted by process id."""
        return machine.scan(self.path)

    def nodes(self) -> tuple[str, ...]:
        """The gateways that have processes, sorted."""
        return tuple(sorted({process.node for process in self.processes()}))

    def locked(
        self, *, create: bool, timeout_s: float, clock: Clock
    ) -> contextlib.AbstractContextManager[None]:
        """Hold the fleet's lock; `create` makes a missing directory.

        Raises DirectoryBusy after the timeout, FleetLost for a missing directory.
        """

        def make() -> None:
            if create:
                self.path.mkdir(mode=0o700, exist_ok=True)
            elif not self.path.exists():
                raise FleetLost(f"fleet {self.key} was torn down")

        busy = f"another process is working on fleet {self.key}"
        return _locked(self.path, make, busy, timeout_s, clock)

    def clear(self) -> None:
        """Delete all but the directory, which is locked, and its record."""
        for files in self.gateways():
            _remove(files.directory)
        (self.path / _FLEET).unlink(missing_ok=True)

    def remove(self) -> None:
        _remove(self.path)

    def read_meta(self) -> FleetMeta | None:
        """The record; None if there is none, or if another release wrote it."""
        document = _document(self.path / _META)
        with contextlib.suppress(TypeError):
            return None if document is None else FleetMeta(**document)
        return None

    def read_fleet(self) -> dict[str, Any] | None:
        return _document(self.path / _FLEET)

    def write_meta(self, meta: FleetMeta) -> None:
        _write(self.path / _META, json.dumps(asdict(meta), indent=1) + "\n")

    def write_fleet(self, document: Mapping[str, Any]) -> None:
        _write(self.path / _FLEET, json.dumps(document, indent=1) + "\n")


@dataclass(frozen=True, slots=True)
class RunRoot:
    """The directory of all fleets of one user."""

    path: Path

    def prepare(self) -> None:
        """Make the directory, or check that it is private to this user.

        Raises ConfigurationInvalid for a symbolic link or another user's directory.
        """
        try:
            self._make()
        except OSError as error:
            raise ConfigurationInvalid.about(
                "the run directory {path} cannot be used: {why}; choose another {run_root}",
                path=self.path,
                why=error.strerror,
            ) from error

    def _make(self) -> None:
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = self.path.lstat()
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            why = f"it is a symbolic link or belongs to user {status.st_uid}"
            raise OSError(errno.EPERM, why)
        if stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            self.path.chmod(0o700)

    def locked(self, *, timeout_s: float, clock: Clock) -> contextlib.AbstractContextManager[None]:
        """Hold the lock of the directory, for a decision about all fleets in it.

        All processes of a provisioner that also need the lock of a fleet take both in one order.
        Raises DirectoryBusy after the timeout.
        """
        # The end of its last fleet may have removed it.
        busy = f"another process starts a fleet in {self.path}"
        return _locked(self.path, self._make, busy, timeout_s, clock)

    def fleet(self, fleet_key: str) -> FleetDirectory:
        if not fleet_key or set(fleet_key) - _HEX:
            raise ConfigurationInvalid(f"fleet key {fleet_key!r} is not lower-case hex")
        return FleetDirectory(self.path / fleet_key)

    def fleets(self) -> tuple[FleetDirectory, ...]:
        """All fleets that have a directory, sorted by key."""
        return tuple(
            FleetDirectory(path) for path in _directories(self.path) if not set(path.name) - _HEX
        )


def default_run_root() -> Path:
    """`$XDG_RUNTIME_DIR/skyplane-orch`, or a directory of this user in /tmp."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if Path(runtime).is_absolute() and Path(runtime).is_dir():
        return Path(runtime) / "skyplane-orch"
    return Path("/tmp") / f"skyplane-orch-{os.geteuid()}"


@contextlib.contextmanager
def _locked(
    path: Path, make: Callable[[], None], busy: str, timeout_s: float, clock: Clock
) -> Iterator[None]:
    """Hold the lock of a directory, which `make` makes or misses before each attempt.

    Raises DirectoryBusy, with the text `busy`, after the timeout.
    """
    deadline = clock.monotonic() + timeout_s
    while True:
        make()
        lock = _try_lock(path)
        if lock is not None:
            break
        if clock.monotonic() >= deadline:
            raise DirectoryBusy(busy)
        clock.sleep(_POLL_S)
    try:
        yield
    finally:
        os.close(lock)


def _try_lock(path: Path) -> int | None:
    """Lock a directory until the result is closed; None if it is taken or gone."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # If a teardown has removed the directory, this lock is on the deleted one.
        if path.stat().st_ino == os.fstat(descriptor).st_ino:
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _directories(path: Path) -> list[Path]:
    """The directories in a directory, which may be missing, sorted."""
    try:
        return sorted(entry for entry in path.iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []


def _write(path: Path, text: str) -> None:
    """Write a file, with mode 0600, atomically."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.rename(path)


def _document(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if it is missing or incomplete."""
    try:
        document = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _remove(path: Path) -> None:
    """Delete a directory, which may be missing."""
    # An ending gateway deletes its own files concurrently.
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        shutil.rmtree(path)
