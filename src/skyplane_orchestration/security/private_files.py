"""Files that one user keeps: made once, and readable by nobody else."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from skyplane_orchestration.errors import ConfigurationInvalid


def config_path(name: str) -> Path:
    """`$XDG_CONFIG_HOME/skyplane-orch/NAME`, by default in `~/.config`."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    # The XDG base directory specification: a relative value is ignored.
    base = Path(configured) if Path(configured).is_absolute() else Path.home() / ".config"
    return base / "skyplane-orch" / name


def kept_text(path: Path, what: str, make: Callable[[], str], otherwise: str) -> str:
    """The text of a file, which is created on first use; processes at once read the same.

    Args:
        what: the file, for messages.
        make: its text, ASCII.
        otherwise: what to do without the file, for messages.

    Raises ConfigurationInvalid if others can read the file, if it belongs to another user, or if
    it cannot be read or created.
    """
    try:
        try:
            return _read(path, what)
        except FileNotFoundError:
            _create(path, make())
            return _read(path, what)
    except OSError as error:
        raise ConfigurationInvalid(
            f"{what} {path} cannot be read or created: {error.strerror}; {otherwise}, or make its"
            " directory writable"
        ) from error


def _read(path: Path, what: str) -> str:
    # Without O_NONBLOCK, opening a named pipe would block.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise ConfigurationInvalid(f"{what} {path} is not a regular file")
    with os.fdopen(descriptor, encoding="utf-8") as file:
        if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ConfigurationInvalid(
                f"{what} {path} has mode {stat.S_IMODE(status.st_mode):04o}, so"
                f" other users can read it; run `chmod 600 {path}`, and create a new one if"
                " another user may have read it"
            )
        if status.st_uid not in (os.geteuid(), 0):
            raise ConfigurationInvalid(
                f"{what} {path} belongs to user {status.st_uid}; use a file of your own"
            )
        try:
            return file.read()
        except UnicodeDecodeError as error:
            raise ConfigurationInvalid(
                f"{what} {path} is not text; delete it, and the next command makes a new one"
            ) from error


def _create(path: Path, text: str) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(descriptor)
        # A hard link is atomic and, unlike a rename, never replaces a file that another process
        # has created in between.
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(draft)
    finally:
        draft.unlink()
