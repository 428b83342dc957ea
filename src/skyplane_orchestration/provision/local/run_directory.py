"""Files of local fleets: one directory per fleet, with one directory per gateway.

    <run root>/<fleet key>/fleet-meta.json         deployment, host and hard end
                           topology.json           the topology that was sent last
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
import fcntl
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote

from skyplane_gateway.clock import Clock
from skyplane_gateway.config import GatewayConfig
from skyplane_orchestration.errors import ConfigurationInvalid, SkyplaneError

_HEX: Final = frozenset("0123456789abcdef")
_POLL_S: Final = 0.05


class DirectoryBusy(SkyplaneError):
    """Another process holds the lock of this fleet; internal to the local provisioner."""


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


class GatewayFiles:
    """The files of one gateway."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def node(self) -> str:
        return node_of(self.directory)

    @property
    def config_path(self) -> Path:
        return self.directory / "config.json"

    @property
    def certificate_path(self) -> Path:
        return self.directory / "gateway.pem"

    @property
    def authority_path(self) -> Path:
        return self.directory / "authority.pem"

    @property
    def log_path(self) -> Path:
        return self.directory / "gateway.log"

    def make_empty(self) -> None:
        """Make the directory, without the files of an earlier gateway."""
        remove_tree(self.directory)
        self.directory.mkdir(mode=0o700)

    def read_config(self) -> GatewayConfig | None:
        document = read_document(self.config_path)
        return None if document is None else GatewayConfig.from_dict(document)

    def read_ports(self) -> tuple[int, int, int] | None:
        """(control port, data port, process id); None until the gateway listens."""
        ready = read_document(self.directory / "ready.json")
        if ready is None:
            return None
        return int(ready["control_port"]), int(ready["data_port"]), int(ready["pid"])

    def log_tail(self, max_bytes: int) -> str:
        """The end of its log; empty if there is none."""
        try:
            with self.log_path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - max_bytes))
                return file.read(max_bytes).decode(errors="replace")
        except OSError:
            return ""


def node_of(directory: Path) -> str:
    """The node of a gateway's directory."""
    return unquote(directory.name)


class FleetDirectory:
    """The directory of one fleet; it may not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def key(self) -> str:
        return self.path.name

    def gateway(self, node: str) -> GatewayFiles:
        return GatewayFiles(self.path / quote(node, safe=":"))

    def gateways(self) -> tuple[GatewayFiles, ...]:
        """All gateways that have a directory, sorted by name."""
        try:
            return tuple(
                GatewayFiles(entry) for entry in sorted(self.path.iterdir()) if entry.is_dir()
            )
        except FileNotFoundError:
            return ()

    @contextlib.contextmanager
    def locked(self, *, create: bool, timeout_s: float, clock: Clock) -> Iterator[None]:
        """Hold the fleet's lock; `create` makes a missing directory.

        Raises DirectoryBusy after the timeout, FileNotFoundError for a missing directory.
        """
        deadline = clock.monotonic() + timeout_s
        while True:
            if create:
                self.path.mkdir(mode=0o700, exist_ok=True)
            elif not self.path.exists():
                raise FileNotFoundError(f"fleet {self.key} is gone")
            descriptor = self._try_lock()
            if descriptor is not None:
                break
            if clock.monotonic() >= deadline:
                raise DirectoryBusy(f"another process is working on fleet {self.key}")
            clock.sleep(_POLL_S)
        try:
            yield
        finally:
            os.close(descriptor)

    def _try_lock(self) -> int | None:
        try:
            descriptor = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # If a teardown has removed the directory, this lock is on the deleted one.
            current = self.path.stat().st_ino == os.fstat(descriptor).st_ino
        except (BlockingIOError, FileNotFoundError):
            current = False
        if not current:
            os.close(descriptor)
        return descriptor if current else None

    def read_meta(self) -> FleetMeta | None:
        """The record; None if there is none, or if another release wrote it."""
        try:
            return FleetMeta(**(read_document(self.path / "fleet-meta.json") or {}))
        except TypeError:
            return None

    def write_meta(self, meta: FleetMeta) -> None:
        write_document(self.path / "fleet-meta.json", asdict(meta))

    def read_topology(self) -> dict[str, Any] | None:
        return read_document(self.path / "topology.json")

    def write_topology(self, topology: Mapping[str, Any]) -> None:
        write_document(self.path / "topology.json", topology)

    def read_fleet(self) -> dict[str, Any] | None:
        return read_document(self.path / "fleet.json")

    def write_fleet(self, document: Mapping[str, Any]) -> None:
        write_document(self.path / "fleet.json", document)

    def clear(self) -> None:
        """Delete the content, but not the directory."""
        for entry in self.path.iterdir():
            if entry.is_dir():
                remove_tree(entry)
            else:
                entry.unlink()

    def remove(self) -> None:
        remove_tree(self.path)


class RunRoot:
    """The directory of all local fleets of this user."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self) -> None:
        """Make the directory, or check that it is private to this user.

        Raises ConfigurationInvalid for a symbolic link or another user's directory.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.path.lstat()
        except OSError as error:
            raise ConfigurationInvalid(
                f"the run directory {self.path} cannot be created: {error.strerror};"
                " choose another run_root"
            ) from error
        if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
            raise ConfigurationInvalid(
                f"the run directory {self.path} is a symbolic link or belongs to user"
                f" {status.st_uid}; remove it or choose another run_root"
            )
        if stat.S_IMODE(status.st_mode) & (stat.S_IRWXG | stat.S_IRWXO):
            self.path.chmod(0o700)

    def fleet(self, fleet_key: str) -> FleetDirectory:
        if not fleet_key or set(fleet_key) - _HEX:
            raise ConfigurationInvalid(f"fleet key {fleet_key!r} is not lower-case hex")
        return FleetDirectory(self.path / fleet_key)

    def fleets(self) -> tuple[FleetDirectory, ...]:
        """All fleets that have a directory, sorted by key."""
        try:
            names = sorted(entry.name for entry in self.path.iterdir() if entry.is_dir())
        except FileNotFoundError:
            return ()
        return tuple(FleetDirectory(self.path / name) for name in names if not set(name) - _HEX)


def default_run_root() -> Path:
    """`$XDG_RUNTIME_DIR/skyplane-orch`, or a directory of this user in /tmp."""
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if Path(runtime).is_absolute() and Path(runtime).is_dir():
        return Path(runtime) / "skyplane-orch"
    return Path("/tmp") / f"skyplane-orch-{os.geteuid()}"


def write_private(path: Path, text: str) -> None:
    """Write a file, with mode 0600, atomically."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.rename(path)


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    write_private(path, json.dumps(document, indent=1) + "\n")


def read_document(path: Path) -> dict[str, Any] | None:
    """A JSON object; None for a missing or incomplete file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def remove_tree(path: Path) -> None:
    """Delete a directory, although an ending gateway deletes its own files concurrently."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        shutil.rmtree(path)
