"""Processes of this machine by their command line or their environment."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


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
