"""Files of a destination that stand where copies need folders, and folders in the place of files.

A file system has one or the other. Deletes come after the copies, so what a job would delete is
set aside before them (`skyplane_gateway.stores.Asides`).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.selection.key_mapping import folder_of
from skyplane_gateway.stores import Asides
from skyplane_orchestration.errors import StoreError
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.result import TransferResult

log = logging.getLogger(__name__)

#: Name of a file or folder in the way -> names and versions of its files.
InTheWay = Mapping[str, Mapping[str, str]]


class Blockers:
    """Finds what is in the way of names that the destination does not have.

    Args:
        folder: the key of the destination's folder.
    """

    def __init__(self, folder: str) -> None:
        self._key = folder
        self._root = f"/{folder}"
        self._found: dict[str, dict[str, str]] = {}
        self._folders: dict[str, bool] = {"": True}

    def see(self, name: str) -> None:
        """A copy will have that name, which ends in a slash for a folder."""
        if any(part in ("", ".", "..") for part in name.removesuffix("/").split("/")):
            return  # It cannot be a file.
        may_be_there = self._is_folder(name.rpartition("/")[0])
        if may_be_there and not name.endswith("/") and os.path.isdir(self._root + name):  # noqa: PTH112
            self._found[name] = {}

    def _is_folder(self, name: str) -> bool:
        """Whether there is a folder, so that something may be in it; notes a file in its place."""
        if name in self._folders:
            return self._folders[name]
        is_folder, ends = True, [at for at, text in enumerate(name) if text == "/"]
        for end in (*ends, len(name)):
            above = name[:end]
            if above not in self._folders:
                path = self._root + above
                self._folders[above] = is_folder and os.path.isdir(path)  # noqa: PTH112
                if is_folder and not self._folders[above] and os.path.lexists(path):
                    self._found[above] = {}
            is_folder = self._folders[above]
        return is_folder

    def among(self, extra: Iterable[ObjectInfo]) -> InTheWay:
        """What is in the way, each with its files among those that the job would delete."""
        for info in extra if self._found else ():
            name = info.key.removeprefix(self._key)
            parts = name.split("/")
            for end in range(1, len(parts) + 1):
                files = self._found.get("/".join(parts[:end]))
                if files is not None:
                    files[name] = info.etag
        return self._found


def asides_of(job: TransferJob, transfer_key: str) -> Asides | None:
    """What a transfer sets aside; None for a job that never does."""
    if not job.delete or job.destination.kind != "file":
        return None
    return Asides(folder_of(job.destination.key), transfer_key)


def set_aside(job: TransferJob, transfer_key: str, in_the_way: InTheWay) -> None:
    """Set aside what is in the way of a job's copies. What stays fails these copies."""
    asides = asides_of(job, transfer_key)
    for name, files in in_the_way.items() if asides is not None else ():
        url = job.destination.url_of(folder_of(job.destination.key) + name)
        try:
            is_aside = asides is not None and asides.take(name, files)
        except StoreError as error:
            log.warning("%s stays in the way of a copy: %s", url, error.message)
            continue
        if not is_aside:
            log.warning("%s stays in the way of a copy: the job does not delete all of it", url)


def put_back(job: TransferJob, transfer_key: str) -> tuple[str, ...]:
    """Put back what the transfer has set aside; a warning for what stays."""
    asides = asides_of(job, transfer_key)
    return () if asides is None else _put_back(asides)


def put_back_others(job: TransferJob, transfer_key: str) -> tuple[str, ...]:
    """Put back what other runs have set aside, before a run begins; warnings for what stays.

    They were killed: two runs at once into one folder have no use for each other.
    """
    return tuple(warning for one in _others(job, transfer_key) for warning in _put_back(one))


def with_put_back(job: TransferJob, result: TransferResult) -> TransferResult:
    """The result of an ended transfer, after `put_back`, which also tells what others have left."""
    key = result.transfer_key
    others = (text for one in _others(job, key) for text in _stay_warnings(one, one.names()))
    return replace(result, warnings=(*result.warnings, *put_back(job, key), *others))


def _others(job: TransferJob, transfer_key: str) -> tuple[Asides, ...]:
    if asides_of(job, transfer_key) is None:
        return ()
    return tuple(Asides.of_others(folder_of(job.destination.key), transfer_key))


def _put_back(asides: Asides) -> tuple[str, ...]:
    try:
        return _stay_warnings(asides, asides.put_back())
    except StoreError as error:
        return (f"{error.message}; move it back by hand",)


def _stay_warnings(asides: Asides, names: Sequence[str]) -> tuple[str, ...]:
    if not names:
        return ()
    more = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (
        f"{names[0]!r}{more} of an unfinished run stays in {asides.place}, because a copy now has "
        "its name: delete it, or move it to another name",
    )
