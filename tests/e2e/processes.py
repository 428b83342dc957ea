"""Processes of this machine by their command line or their environment, and this one's end."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Literal, NoReturn


def leave_by_sigterm() -> None:
    """From now on SIGTERM ends the blocks of this program, and so the processes they hold."""

    def leave(number: int, _: object) -> NoReturn:
        # A second one must not cut off the first one's end.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, leave)


def processes_with(text: str, what: Literal["cmdline", "environ"] = "cmdline") -> list[int]:
    """Process ids of all that were started with a text in that; `\\0` ends a word or variable."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                if text.encode() in (entry / what).read_bytes():
                    found.append(int(entry.name))
            except OSError:  # It ended just now, or belongs to another user.
                continue
    return found
