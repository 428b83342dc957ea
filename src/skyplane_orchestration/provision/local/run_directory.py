"""Where local fleets keep their files: one directory per fleet, one in it per gateway.

    <run root>/<fleet key>/fleet-meta.json         whose fleet, on which host, until when
                           topology.json           what the gateways were told last
                           fleet.json              the fleet's document, once it is up
                           <node, quoted>/         private to one gateway (mode 0700)
                               config.json         its configuration (0600)
                               gateway.pem         its certificate and key (0600)
                               authority.pem       the fleet's authority
                               gateway.log         its output
                               ready.json          its ports and process id, once it listens

The fleet's directory is also its lock: whoever changes a fleet holds a flock on it, which
the kernel releases when the holder dies.
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
    """Another process is working on this fleet; internal to the local provisioner."""

    code = "directory-busy"


@dataclass(frozen=True, slots=True)
class FleetMeta:
    """What stands in for the tags of a cloud.

    Args:
        host: see `processes.host_identity`.
    """

    deployment: str
    generation: int
    created_unix_s: float
    hard_end_unix_s: float
    host: str


class GatewayFiles:
    """The files of one gateway."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    @property
    def node(self) -> str:
        return unquote(self.directory.name)

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
        """An empty directory, whatever was there before."""
        remove_tree(self.directory)
        self.directory.mkdir(mode=0o700)

    def read_config(self) -> GatewayConfig | None:
        document = read_document(self.config_path)
        return None if document is None else GatewayConfig.from_dict(document)

    def read_ports(self) -> tuple[int, int, int] | None:
        """(control port, data port, process id), or None while it does not listen."""
        ready = read_document(self.directory / "ready.json")
        if ready is None:
            return None
        return int(ready["control_port"]), int(ready["data_port"]), int(ready["pid"])

    def log_tail(self, max_bytes: int) -> str:
        """The end of its log; empty where there is none."""
        try:
            with self.log_path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - max_bytes))
                return file.read(max_bytes).decode(errors="replace")
        except OSError:
            return ""


class FleetDirectory:
    """The directory of one fleet; it need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def key(self) -> str:
        return self.path.name

    def gateway(self, node: str) -> GatewayFiles:
        return GatewayFiles(self.path / quote(node, safe=":"))

    def gateways(self) -> tuple[GatewayFiles, ...]:
        """What has a directory here, sorted by name."""
        try:
            return tuple(
                GatewayFiles(entry) for entry in sorted(self.path.iterdir()) if entry.is_dir()
            )
        except FileNotFoundError:
            return ()

    @contextlib.contextmanager
    def locked(self, *, create: bool, patience_s: float, clock: Clock) -> Iterator[None]:
        """Hold the fleet's lock.

        Args:
            create: make the directory when it is missing.
            patience_s: how long to wait for another holder.

        Raises DirectoryBusy when another process holds it for longer, FileNotFoundError
        when there is no directory and none is to be made.
        """
        deadline = clock.monotonic() + patience_s
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
            # A teardown that held the lock has removed the directory: what we have locked
            # is no longer the one that others will find here.
            current = self.path.stat().st_ino == os.fstat(descriptor).st_ino
        except (BlockingIOError, FileNotFoundError):
            current = False
        if not current:
            os.close(descriptor)
        return descriptor if current else None

    def read_meta(self) -> FleetMeta | None:
        """None where there is no record, or one that another release has written."""
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
        """Remove the content, not the directory."""
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
        """Make it, or make sure that nobody else can have put anything into it.

        Raises ConfigurationInvalid when it is a symbolic link or another user's.
        """
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.path.lstat()
        except OSError as error:
            raise ConfigurationInvalid(
                f"the run directory {self.path} cannot be made: {error.strerror};"
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
    """Write a file that only this user can read, whole or not at all."""
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    draft.rename(path)


def write_document(path: Path, document: Mapping[str, Any]) -> None:
    write_private(path, json.dumps(document, indent=1) + "\n")


def read_document(path: Path) -> dict[str, Any] | None:
    """A JSON object, or None where there is none or not a whole one yet."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def remove_tree(path: Path) -> None:
    """Remove a directory; a gateway that ends at the same time removes its own files too."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        shutil.rmtree(path)
