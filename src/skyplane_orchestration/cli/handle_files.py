"""Files of resume handles: a handle is too long to print, so the command prints a short id."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from skyplane_orchestration.model.resume_handle import RESUME_TTL_S

_ID: Final = re.compile(r"[0-9a-f]{8}")


def handle_directory() -> Path:
    """`$XDG_STATE_HOME/skyplane-orch/resume`, by default in `~/.local/state`."""
    configured = os.environ.get("XDG_STATE_HOME", "")
    # The XDG base directory specification: a relative value is ignored.
    base = Path(configured) if Path(configured).is_absolute() else Path.home() / ".local" / "state"
    return base / "skyplane-orch" / "resume"


def save_handle(handle: str, now_unix_s: float) -> str:
    """Write a handle to a file (mode 0600) and delete expired ones; its id. Raises OSError."""
    directory = handle_directory()
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in directory.iterdir():
        # Another command may delete the file first; a file that stays does no harm.
        with suppress(OSError):
            if _ID.fullmatch(path.name) and now_unix_s - path.stat().st_mtime > RESUME_TTL_S:
                path.unlink()
    name = hashlib.sha256(handle.encode()).hexdigest()[:8]
    file = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        stream.write(handle + "\n")
    return name


def find_handle(name: str) -> Path | None:
    """The file of an id; None if the text is not an id or has no file."""
    path = handle_directory() / name
    # `Path.is_file` raises if the directory cannot be read.
    return path if _ID.fullmatch(name) and os.path.isfile(path) else None  # noqa: PTH113


def saved_handles(now_unix_s: float) -> Iterator[tuple[str, str]]:
    """Ids and handles of the last 24 h, the newest first."""
    found = []
    with suppress(OSError):
        for path in handle_directory().iterdir():
            saved_unix_s = path.stat().st_mtime
            if _ID.fullmatch(path.name) and now_unix_s - saved_unix_s <= RESUME_TTL_S:
                found.append((saved_unix_s, path))
    for _, path in sorted(found, reverse=True):
        # Another command may have resumed it meanwhile.
        with suppress(OSError):
            yield path.name, path.read_text(encoding="utf-8", errors="replace").strip()


def delete_handle(name: str) -> None:
    """Delete the file of an id if there is one; it expires anyway."""
    if path := find_handle(name):
        with suppress(OSError):
            path.unlink()
