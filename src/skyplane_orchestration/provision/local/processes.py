"""Gateway processes of this machine, found by their command line.

The kernel's list of processes stands for a cloud's tags: it is complete even if the process
that started the gateways died before it wrote a record.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from skyplane_gateway.clock import Clock
from skyplane_orchestration.provision.local.run_directory import node_of

_PROC: Final = Path("/proc")
_POLL_S: Final = 0.02
#: Limit for one scan on a machine that forks all the time.
_MAX_LISTINGS: Final = 5


@dataclass(frozen=True, slots=True)
class GatewayProcess:
    """A process that runs or starts one gateway; `owner` is its user id."""

    pid: int
    fleet_key: str
    directory: Path
    owner: int

    @property
    def node(self) -> str:
        return node_of(self.directory)


def names_of(processes: Iterable[GatewayProcess]) -> str:
    """Nodes and process ids, for messages."""
    return ", ".join(f"{process.node} (pid {process.pid})" for process in processes)


def scan(run_root: Path, fleet_key: str) -> tuple[GatewayProcess, ...]:
    """The gateway processes of one fleet below `run_root`, sorted by process id.

    A process belongs to the fleet if its command line has `--fleet <key>` and a `--config`
    in the fleet's directory, and if its user owns that directory, since any user can write
    such a command line. Zombies have no command line and do not count.
    """
    owner = _owner_of(run_root, fleet_key)
    found: list[GatewayProcess] = []
    seen: set[int] = set()
    # A process may fork and end before its command line is read. The next listing has its
    # child.
    for _ in range(_MAX_LISTINGS):
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
    """End the processes that `find` returns, with SIGTERM, then SIGKILL; those that still run.

    Each poll calls `find`, so that forked processes are ended too.
    """
    signalled: set[int] = set()
    deadline = clock.monotonic() + term_grace_s
    while (running := tuple(find())) and clock.monotonic() < deadline:
        for process in running:
            if process.pid not in signalled:
                _send(process, signal.SIGTERM)
                signalled.add(process.pid)
        clock.sleep(_POLL_S)
    deadline = clock.monotonic() + kill_grace_s
    while running and clock.monotonic() < deadline:
        for process in running:
            _send(process, signal.SIGKILL)
        clock.sleep(_POLL_S)
        running = tuple(find())
    return running


def _owner_of(run_root: Path, fleet_key: str) -> int:
    """The owner of the fleet's directory, or of the run directory if the fleet has none."""
    for place in (run_root / fleet_key, run_root):
        with contextlib.suppress(FileNotFoundError):
            return place.stat().st_uid
    return os.geteuid()


def _read(pid: int) -> GatewayProcess | None:
    entry = _PROC / str(pid)
    try:
        raw, owner = (entry / "cmdline").read_bytes(), entry.stat().st_uid
    except OSError:
        return None  # The process has ended, or belongs to another user.
    words = [os.fsdecode(word) for word in raw.split(b"\0")]
    fleet_key, config = _value(words, "--fleet"), _value(words, "--config")
    if not fleet_key or not config:
        return None
    return GatewayProcess(pid, fleet_key, Path(config).parent, owner)


def _value(words: list[str], option: str) -> str:
    position = words.index(option) + 1 if option in words else len(words)
    return words[position] if position < len(words) else ""


def _send(process: GatewayProcess, number: signal.Signals) -> None:
    # The process id may have been reused.
    if _read(process.pid) == process:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)
