"""A check of the destination before a command starts gateways."""

from __future__ import annotations

import os
from pathlib import Path

from skyplane_orchestration.errors import InvalidLocation
from skyplane_orchestration.model.job import TransferJob


def require_writable(job: TransferJob) -> None:
    """Check that this user can write to a destination of files. Raises InvalidLocation."""
    if job.destination.kind == "file":
        # The command's gateways run on this machine as this user.
        key = "/" + job.destination.key
        is_folder = job.recursive or key.endswith("/")
        _require_writable(Path(key) if is_folder else Path(key).parent)


def _require_writable(target: Path) -> None:
    """Check the directory, or the nearest existing one above it."""
    directory = target
    while not os.path.lexists(directory):
        directory = directory.parent
    if not directory.is_dir():
        raise InvalidLocation(f"{target} cannot be written: {directory} is not a directory")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise InvalidLocation(f"{target} cannot be written: no write permission for {directory}")
