"""Looks at the destination before anything is built for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from skyplane_orchestration.errors import InvalidLocation

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.job import TransferJob


def check_destination(client: Client, job: TransferJob) -> None:
    """See that the destination can be written.

    Raises:
        InvalidLocation: a directory of this machine that cannot.
        StoreError: a bucket that is missing, closed to us, or does not answer.
    """
    client.check_destination(job)
    if job.destination.kind == "file":
        # The gateways of this command run as this user on this machine.
        key = "/" + job.destination.key
        is_folder = job.recursive or key.endswith("/")
        _require_writable(Path(key) if is_folder else Path(key).parent)


def _require_writable(target: Path) -> None:
    """What is missing will be made; what is there must be a directory that can be written."""
    place = target
    while not os.path.lexists(place):
        place = place.parent
    if not place.is_dir():
        raise InvalidLocation(f"{target} cannot be written: {place} is not a directory")
    if not os.access(place, os.W_OK | os.X_OK):
        raise InvalidLocation(f"{target} cannot be written: you may not write into {place}")
