"""Gateway processes of this machine, found by their command line.

The kernel's list of processes is to the local provisioner what tags are to a cloud's: it
is complete and true even when the one who started them died before writing anything down.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from skyplane_gateway.clock import Clock

_PROC: Final = Path("/proc")
_POLL_S: Final = 0.02
#: Most listings of one scan: on a machine that forks without pause it must end, too.
_LISTINGS: Final = 5


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A process that runs, or starts, one gateway.

    Args:
        directory: the gateway's private directory.
        owner: user id that it runs under.
    """

    pid: int
    fleet_key: str
    directory: Path
    owner: int


def scan(run_root: Path, fleet_key: str) -> tuple[GatewayProcess, ...]:
    """The gateway processes of one fleet below `run_root`, sorted by process id.

    A process belongs to it when its command line has `--fleet <key>` as well as a
    `--config` in the fleet's directory, and when it runs under the user who owns that
    directory: anybody may write these words, and nobody can end another user's process.
    Zombies have no command line and do not count.
    """
    owner = _owner_of(run_root, fleet_key)
    found: list[GatewayProcess] = []
    seen: set[int] = set()
    # A process that forks and ends between the listing and the reading of its command
    # line would be missed along with its child: the next listing has the child.
    for _ in range(_LISTINGS):
        listed = {int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()}
        if listed <= seen:
            break
        found += [process for pid in listed - seen if (process := _read(pid)) is not None]
        seen |= listed
    return tuple(
        process
        for process in sorted(found, key=lambda process: process.pid)
        if process.fleet_key == fleet_key
        and process.directory.parent == run_root / fleet_key
        and process.owner == owner
    )


def stop(
    find: Callable[[], Iterable[GatewayProcess]],
    *,
    term_grace_s: float,
    kill_grace_s: float,
    clock: Clock,
) -> tuple[GatewayProcess, ...]:
    """End whatever `find` finds: SIGTERM, then SIGKILL; what is still there afterwards.

    `find` is asked again and again, so that a process that forks meanwhile is not missed.
    """
    asked: set[int] = set()
    deadline = clock.monotonic() + term_grace_s
    while (living := tuple(find())) and clock.monotonic() < deadline:
        for process in living:
            if process.pid not in asked:
                _send(process, signal.SIGTERM)
                asked.add(process.pid)
        clock.sleep(_POLL_S)
    deadline = clock.monotonic() + kill_grace_s
    while living and clock.monotonic() < deadline:
        for process in living:
            _send(process, signal.SIGKILL)
        clock.sleep(_POLL_S)
        living = tuple(find())
    return living


def host_identity() -> str:
    """`host name/boot id`: another value means that processes of then are out of reach."""
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{socket.gethostname()}/{boot_id}"


def _owner_of(run_root: Path, fleet_key: str) -> int:
    """Who owns the fleet's directory; where there is none, who would."""
    for place in (run_root / fleet_key, run_root):
        with contextlib.suppress(FileNotFoundError):
            return place.stat().st_uid
    return os.geteuid()


def _read(pid: int) -> GatewayProcess | None:
    entry = _PROC / str(pid)
    try:
        raw, owner = (entry / "cmdline").read_bytes(), entry.stat().st_uid
    except OSError:
        return None  # It ended between the listing and the reading, or it is not ours to see.
    words = [os.fsdecode(word) for word in raw.split(b"\0")]
    fleet_key, config = _value(words, "--fleet"), _value(words, "--config")
    if not fleet_key or not config:
        return None
    return GatewayProcess(pid, fleet_key, Path(config).parent, owner)


def _value(words: list[str], option: str) -> str:
    position = words.index(option) + 1 if option in words else len(words)
    return words[position] if position < len(words) else ""


def _send(process: GatewayProcess, number: signal.Signals) -> None:
    # Its number may belong to another process by now: look once more before the signal.
    if _read(process.pid) == process:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)
