"""This machine: its identity, and the processes of gateways. The functions raise OSError."""

from __future__ import annotations

import contextlib
import os
import signal
import site
import socket
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from skyplane_orchestration.errors import ForeignHost

_PROC: Final = Path("/proc")
#: Limit for one scan on a machine that forks all the time.
_MAX_LISTINGS: Final = 5

#: The limit of processor time that a container sees of itself (cgroup v2), if it has one.
_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")

#: Variables that every process needs, or that coverage needs.
_PASSED_TO_ALL: Final = frozenset({"PATH", "LANG", "TZ", "VIRTUAL_ENV"})
PASSED_PREFIXES: Final = ("LC_", "COVERAGE_")

PROXIES: Final = frozenset(
    name
    for lower in ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
    for name in (lower, lower.upper())
)

#: Variables for access to stores: trusted certificates and proxies, no credentials.
_PASSED_TO_ENDS: Final = frozenset(
    {
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "AWS_CA_BUNDLE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        *PROXIES,
    }
)


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A process that runs or starts the gateway of a directory; `owner` is its user id."""

    pid: int
    directory: Path
    owner: int

    @property
    def node(self) -> str:
        return unquote(self.directory.name)

    def send(self, number: int) -> None:
        """Send a signal, unless the process id has been reused."""
        if _read(self.pid) == self:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.pid, signal.Signals(number))


def scan(fleet: Path) -> tuple[GatewayProcess, ...]:
    """The processes of the gateways in a fleet's directory, sorted by process id.

    A process belongs to the fleet if its command line has `--fleet <key>` and a `--config`
    in the fleet's directory, and if its user owns the gateway's directory, since any user can
    write such a command line. Zombies have no command line and do not count.
    """
    found: list[GatewayProcess] = []
    seen: set[int] = set()
    # A process may fork and end before its command line is read. The next listing has its
    # child.
    for _ in range(_MAX_LISTINGS):
        listed = {int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()}
        if listed <= seen:
            break
        for process in filter(None, map(_read, listed - seen)):
            directory = process.directory
            if directory.parent == fleet and process.owner == _owner_of(directory):
                found.append(process)
        seen |= listed
    return tuple(sorted(found, key=lambda process: process.pid))


def start(directory: Path, argv: Sequence[str], *, is_end: bool) -> subprocess.Popen[bytes]:
    """Start the gateway whose files are in `directory`; its launcher.

    Airflow kills a task's process group and waits for its open pipes. So the gateway gets its
    own session, and inherits no file descriptor. It gets its credentials over the control API
    alone, and so a scrubbed environment. `is_end`: it talks to object stores.
    """
    allowed = passed_names(is_end=is_end)
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in allowed or name.startswith(PASSED_PREFIXES)
    }
    search = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    if search:
        # The gateway has another working directory, so entries must be absolute.
        environment["PYTHONPATH"] = os.pathsep.join(str(Path(entry).absolute()) for entry in search)
    # SDKs look for profiles and tokens there.
    environment["HOME"] = str(directory)
    # Python would look for packages of `pip --user` in the new home.
    environment["PYTHONUSERBASE"] = site.getuserbase()
    with (directory / "gateway.log").open("ab") as log:
        return subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            close_fds=True,
            start_new_session=True,
            cwd="/",
            env=environment,
        )


def host_identity() -> str:
    """`host name/boot id`: processes of another boot are gone."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{socket.gethostname()}/{boot_id}"


def is_here(host: str) -> bool:
    """Whether a host identity is that of this machine, in any boot."""
    return host.rpartition("/")[0] == host_identity().rpartition("/")[0]


def require_this_host(host: str, fleet_key: str) -> None:
    """Raise ForeignHost for a fleet of another machine or another boot."""
    here = host_identity()
    if host != here:
        there, here = ("{0} (boot {2})".format(*one.rpartition("/")) for one in (host, here))
        raise ForeignHost(
            f"fleet {fleet_key} runs as processes on {there}, and this is {here}; with a local"
            " fleet, provision, transfer and teardown must run on one host: use the one-task form"
            " `SkyplaneTransferOperator(fleet=None)` or `skyplane-orch cp`, which"
            " provisions, transfers and tears down in one task"
        )


def usable_processors(quota: Path = _QUOTA) -> int:
    """Processors that this process may use: those of its affinity, within the quota's time."""
    allowed = len(os.sched_getaffinity(0))
    try:
        limit, period = quota.read_text(encoding="ascii").split()
    except OSError:
        return allowed
    return allowed if limit == "max" else max(1, min(allowed, int(limit) // int(period)))


def passed_names(*, is_end: bool) -> frozenset[str]:
    """Variables that a gateway inherits, besides those that begin with `PASSED_PREFIXES`."""
    return _PASSED_TO_ALL | _PASSED_TO_ENDS if is_end else _PASSED_TO_ALL


def _owner_of(directory: Path) -> int:
    """The owner of a gateway's directory, or of the next parent: an ending gateway deletes it."""
    for folder in (directory, directory.parent, directory.parent.parent):
        with contextlib.suppress(FileNotFoundError):
            return folder.stat().st_uid
    return os.geteuid()


def _read(pid: int) -> GatewayProcess | None:
    """The gateway that a process runs; None for any other process."""
    entry = _PROC / str(pid)
    try:
        raw, owner = (entry / "cmdline").read_bytes(), entry.stat().st_uid
    except OSError:
        return None  # The process has ended, or belongs to another user.
    after = dict(pairwise(os.fsdecode(word) for word in raw.split(b"\0")))
    directory = Path(after.get("--config", "")).parent
    if not directory.name or after.get("--fleet") != directory.parent.name:
        return None
    return GatewayProcess(pid, directory, owner)
