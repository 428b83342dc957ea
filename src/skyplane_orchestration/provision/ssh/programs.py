"""Runs programs of a machine, such as podman, as long as they take.

It runs within the agent, so it imports the standard library and `Machine` only.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from skyplane_orchestration.provision.local.machine import Machine

#: An answer must come before the session's timeout.
_WAIT_S: Final = 15.0
_KILLED: Final = 124
#: There if systemd has booted this machine.
_SYSTEMD: Final = Path("/run/systemd/system")
#: A file for each user whose processes systemd keeps after the last logout.
_LINGERING: Final = Path("/var/lib/systemd/linger")


@dataclass(frozen=True, slots=True)
class _Running:
    process: subprocess.Popen[bytes]
    output: IO[bytes]
    errors: IO[bytes]
    deadline_s: float


class Programs(Machine):
    """Programs get the agent's environment. They run on when its session ends."""

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self._running: dict[int, _Running] = {}

    def program_path(self, name: str) -> str:
        """Where it is; empty if it is not installed."""
        return shutil.which(name) or ""

    def account(self) -> dict[str, Any]:
        """Ids and name of this user, and whether its processes may stay after its last logout."""
        user = os.geteuid()
        try:
            name = pwd.getpwuid(user).pw_name
        except KeyError:
            name = str(user)
        stays = not _SYSTEMD.is_dir() or (_LINGERING / name).exists()
        return {"user": user, "group": os.getegid(), "name": name, "stays": stays}

    def begin_program(self, command: list[str], timeout_s: float) -> int:
        """Start it, and return its number for `end_of_program`."""
        # Files, not pipes: nobody may read them when it writes. `end_of_program` closes them.
        output, errors = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            cwd="/",
            start_new_session=True,
        )
        deadline_s = time.monotonic() + timeout_s
        self._running[process.pid] = _Running(process, output, errors, deadline_s)
        return process.pid

    def end_of_program(self, number: int) -> list[Any] | None:
        """[status, output, errors]; None while it runs. Then ask again."""
        running = self._running[number]
        remaining_s = running.deadline_s - time.monotonic()
        try:
            status = running.process.wait(max(0.0, min(_WAIT_S, remaining_s)))
        except subprocess.TimeoutExpired:
            if remaining_s > 0:
                return None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(number, signal.SIGKILL)
            running.process.wait()
            status = _KILLED
        del self._running[number]
        said = []
        for file in (running.output, running.errors):
            with file:
                file.seek(0)
                said.append(file.read().decode(errors="replace"))
        if status == _KILLED:
            said[1] += "\nit did not end in time"
        return [status, *said]
