"""The power of a fake machine: runs its boot script, and ends all its processes with it.

Run as `python -I -S power.py MACHINE_DIRECTORY BOOT_SECONDS`. A SIGTERM shuts the machine down. The
end of its standard input cuts the power: the test wants that, has ended, or was killed. All
processes of the machine are its descendants, because orphans become its children
(PR_SET_CHILD_SUBREAPER).
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

_PR_SET_CHILD_SUBREAPER: Final = 36

#: Waits for the kernel and the system, which a fake machine does not have.
_BOOT: Final = '[ "$0" = 0.0 ] || sleep "$0"; exec /bin/sh "$1"'

#: Processes get as long after a SIGTERM, as at the end of a real machine.
_STOP_TIMEOUT_S: Final = 10.0

#: The longest time until processes are seen that have started meanwhile.
_LOOK_AGAIN_S: Final = 0.05


def main(directory: Path, boot_s: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    wake_reader, wake_writer = os.pipe()
    for end in (wake_reader, wake_writer):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake_writer)
    signal.signal(signal.SIGTERM, lambda number, frame: None)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    (directory / "pid").write_text(str(os.getpid()))
    with (directory / "console").open("ab") as console:
        subprocess.Popen(
            ["/bin/sh", "-c", _BOOT, boot_s, str(directory / "user-data")],
            stdin=subprocess.DEVNULL,
            stdout=console,
            stderr=console,
            cwd="/",
            env={"PATH": str(directory / "bin"), "TMPDIR": str(directory / "tmp")},
            start_new_session=True,
        )
    if is_shutdown_wanted(wake_reader):
        end_all(wake_reader, signal.SIGTERM, _STOP_TIMEOUT_S)
    end_all(wake_reader, signal.SIGKILL, math.inf)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()  # None is left as a zombie.


def is_shutdown_wanted(wake_reader: int) -> bool:
    """Wait for a SIGTERM; False when the power is cut."""
    while True:
        readable, _, _ = select.select([sys.stdin, wake_reader], [], [])
        if sys.stdin in readable:
            return False
        if signal.SIGTERM in signals(wake_reader):
            return True


def end_all(wake_reader: int, number: signal.Signals, timeout_s: float) -> None:
    """Send a signal to all processes, and to those they still start, until there are none."""
    deadline = time.monotonic() + timeout_s
    sent: set[int] = set()
    while (running := descendants()) and time.monotonic() < deadline:
        for pid in set(running) - sent:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        sent |= set(running)
        select.select([wake_reader], [], [], _LOOK_AGAIN_S)
        signals(wake_reader)


def signals(wake_reader: int) -> bytes:
    """The numbers of the signals that came; children that have ended are gone afterwards."""
    numbers = b""
    with contextlib.suppress(BlockingIOError):
        numbers = os.read(wake_reader, 4096)
    reap()
    return numbers


def reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass


def descendants() -> list[int]:
    """All processes of the machine but this one; zombies do not count."""
    found: list[int] = []
    waiting = [os.getpid()]
    while waiting:
        pid = waiting.pop()
        try:
            tasks = list(Path(f"/proc/{pid}/task").iterdir())
            lines = [(task / "children").read_text() for task in tasks]
        except OSError:
            continue  # It has ended; its children are ours now, or those of a listed process.
        children = [int(child) for line in lines for child in line.split()]
        waiting += children
        found += [child for child in children if not is_zombie(child)]
    return found


def is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
