"""Resume handles under short ids, in files of this user: a handle is too long for a terminal."""

from __future__ import annotations

import hashlib
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Final

from skyplane_orchestration.model.resume_handle import RESUME_TTL_S

_ID: Final = re.compile(r"[0-9a-f]{8}")


def handle_folder() -> Path:
    """`$XDG_STATE_HOME/skyplane-orch/resume`, or the same below `~/.local/state`."""
    configured = os.environ.get("XDG_STATE_HOME", "")
    # The XDG base directory specification says that a relative value is to be ignored.
    base = Path(configured) if Path(configured).is_absolute() else Path.home() / ".local" / "state"
    return base / "skyplane-orch" / "resume"


def keep_handle(word: str, now_unix_s: float) -> str:
    """Write a handle to its file (0600) and remove those that have run out.

    Returns:
        Its id, which `resume` takes.

    Raises:
        OSError: the folder or the file cannot be written.
    """
    folder = handle_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path in folder.iterdir():
        # Another command may remove it at the same time; whatever stays is no harm.
        with suppress(OSError):
            if _ID.fullmatch(path.name) and now_unix_s - path.stat().st_mtime > RESUME_TTL_S:
                path.unlink()
    name = hashlib.sha256(word.encode()).hexdigest()[:8]
    file = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        stream.write(word + "\n")
    return name


def file_of_handle(name: str) -> Path | None:
    """The file of an id; None where the text is none or nothing is kept under it."""
    path = handle_folder() / name
    # `Path.is_file` raises where the folder cannot be read.
    return path if _ID.fullmatch(name) and os.path.isfile(path) else None  # noqa: PTH113


def forget_handle(name: str) -> None:
    """Remove the file of an id that has served, if it is one; it runs out anyway."""
    if kept := file_of_handle(name):
        with suppress(OSError):
            kept.unlink()
