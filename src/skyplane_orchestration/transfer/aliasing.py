"""Checks that two ends are distinct places, whatever their names, before objects are deleted.

A server may have several names, a folder several links and mounts, so different names prove
nothing. The proof is an object that is written to one end and does not appear at the other.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from skyplane_gateway.common.objects import StoreSpec
from skyplane_gateway.journal.document import (
    Journal,
    encode_journal,
    folder_of_destination,
    journal_key,
)
from skyplane_gateway.journal.orphans import LeftTransfer
from skyplane_gateway.selection.key_mapping import map_key
from skyplane_gateway.selection.overlap import refuse_overlap
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    NotFound,
    PermissionDenied,
    StoreError,
    StoreUnavailable,
)
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.storage.open import journal_folder, spec_of

#: The epoch of the journal that serves as probe.
_EPOCH: Final = 1

#: Attempts to write the probe: the end of another transfer may remove its folder.
_ATTEMPTS: Final = 5

#: Folders whose identity is cached: objects of one folder end at about the same time.
_CACHED_FOLDERS: Final = 4096

Row = Mapping[str, Any]


def source_folder(job: TransferJob) -> str:
    """The folder that the job reads: empty, or ending in a slash."""
    return folder_of_destination(job.source.key, recursive=job.recursive)


def require_no_overlap(job: TransferJob) -> None:
    """Raise ConfigurationInvalid if one end lies in the other, judged by their names."""
    _require_no_overlap(job, spec_of(job.source), spec_of(job.destination))
    if job.recursive and job.source.kind == job.destination.kind == "file":
        _require_other_folders(job)


def _require_no_overlap(job: TransferJob, source: StoreSpec, destination: StoreSpec) -> None:
    ends = source, job.source.key, destination, job.destination.key
    refuse_overlap(*ends, recursive=job.recursive)
    try:
        refuse_overlap(*ends[2:], *ends[:2], recursive=job.recursive)
    except ConfigurationInvalid as error:
        what = "a move" if job.move else "a sync with deletes"
        raise ConfigurationInvalid(
            f"{what} out of {job.source.url!r} into a folder above it could delete what it copies; "
            "copy instead, or choose a destination beside it"
        ) from error


def _require_other_folders(job: TransferJob) -> None:
    """`require_no_overlap` by device and inode: a bind mount changes the path alone."""
    source, destination = (
        Path(os.path.realpath(f"/{location.key}")) for location in (job.source, job.destination)
    )
    for inner, outer in ((destination, source), (source, destination)):
        for folder in (inner, *inner.parents):
            with suppress(OSError):  # Missing or not accessible: the transfer itself reports that.
                if folder.samefile(outer):
                    raise _one_place(job, f"{folder} and {outer} are one folder")


def require_distinct_ends(
    job: TransferJob, source: ObjectStore, copies: ObjectStore, rng: random.Random
) -> None:
    """Refuse ends that are one place, or overlap, under different names.

    Writes a probe, a journal of no transfer, at the destination and looks for it at the source.
    If this process dies before it deletes the probe, the job's next run or a sweep does.

    Raises:
        ConfigurationInvalid: they are one place, or overlap.
        PermissionDenied: this process may not write to the destination.
        StoreError: an end does not answer.
    """
    folder = journal_folder(job)
    # `Path.is_dir` raises where it may not look.
    if job.destination.kind == "file" and not os.path.isdir(f"/{folder}"):  # noqa: PTH112
        return  # A folder that does not exist yet is no source.
    # In place of a transfer key.
    ends = (job.source.url, job.source.endpoint_url, job.destination.url, str(job.recursive))
    token = hashlib.sha256("\0".join(ends).encode()).hexdigest()[:32]
    written = journal_key(folder, token, _EPOCH)
    gone = StoreUnavailable(
        f"an object that was just written to {job.destination.url!r} is gone; try again"
    )
    failure: StoreError = gone
    try:
        for _ in range(_ATTEMPTS):
            try:
                etag = _write(job, copies, written, token, rng)
            except NotFound as error:
                failure = error  # The end of another transfer has removed the folder.
                continue
            _require_not_at_source(job, source, token, written)
            # A concurrent check may have removed the probe too early.
            if _has(copies, written, etag):
                return
            failure = gone
    finally:
        _remove(copies, folder, token)
    raise failure


def _write(job: TransferJob, copies: ObjectStore, key: str, token: str, rng: random.Random) -> str:
    """The etag of the probe, which is unique."""
    journal = Journal(token, _EPOCH, rule="", chunk_bytes=1, writer=rng.randbytes(16).hex())
    try:
        return copies.put(key, encode_journal(journal)).etag
    except PermissionDenied as error:
        raise PermissionDenied(
            f"before a move, this process writes a test object to {job.destination.url!r}, to be "
            f"sure that it is not the source; that write is not allowed: {error.message}"
        ) from error


def _remove(copies: ObjectStore, folder: str, token: str) -> None:
    # Not read before: it names no uploads, even if a concurrent check has written it.
    LeftTransfer(folder, token).journals(copies).delete(_EPOCH)


def _require_not_at_source(job: TransferJob, source: ObjectStore, token: str, written: str) -> None:
    same_name = journal_key(source_folder(job), token, _EPOCH)
    if _keeps_names(job) and _has(source, same_name):
        raise _one_place(job, "an object written to one appears in the other")
    if job.source.kind == job.destination.kind:
        # Permissions may cover the source folder alone.
        with suppress(PermissionDenied):
            if _has(source, written):
                _require_no_overlap(job, spec_of(job.source), spec_of(job.source))


def _keeps_names(job: TransferJob) -> bool:
    """Whether objects keep their names below the folder; a single object may be renamed."""
    if job.recursive:
        return True
    source, folder = job.source.key, source_folder(job)
    target = map_key(source, source, job.destination.key, recursive=False)
    return target.rpartition("/")[2] == source.removeprefix(folder)


def _has(store: ObjectStore, key: str, etag: str | None = None) -> bool:
    # A listing: a `head` of a missing key needs permissions that a source need not grant.
    rows = (row for row in store.list(key) if row.key == key)
    return any(etag in (None, row.etag) for row in rows)


def require_distinct_files(job: TransferJob, copied: Callable[[], Iterable[Row]]) -> None:
    """Raise ConfigurationInvalid for a move that would delete a copy, because of links or mounts.

    Memory grows by one pair of numbers with each source folder. Every call of `copied` yields all
    rows of copied objects.
    """
    if not job.source.kind == job.destination.kind == "file":
        return
    folder_of = lru_cache(_CACHED_FOLDERS)(_identity_of)
    emptied: set[tuple[int, int] | None] = set()
    for row in copied():
        source, copy = _path(row["source"]), _path(row["destination"])
        with suppress(OSError):  # Gone or not accessible: the delete itself reports that.
            # `lstat`: deleting a link to the copy deletes only the link.
            if os.path.samestat(source.lstat(), copy.stat()):
                raise _one_place(job, f"{source} and its copy {copy} are one file")
        emptied.add(folder_of(source.parent))
    if not job.recursive:
        return  # A single object may be renamed within its folder.
    for row in copied():
        folder = _path(row["destination"]).parent
        if (identity := folder_of(folder)) is not None and identity in emptied:
            raise _one_place(job, f"{folder} is a folder of the source too")


def _path(key: str) -> Path:
    return Path("/" + key)


def _identity_of(folder: Path) -> tuple[int, int] | None:
    """Device and inode; None if it is gone or not accessible."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _one_place(job: TransferJob, proof: str) -> ConfigurationInvalid:
    source, destination = (
        one.url + (one.endpoint_url and f" at {one.endpoint_url}")
        for one in (job.source, job.destination)
    )
    return ConfigurationInvalid(
        f"{source} and {destination} are one place by two names: {proof}, so a delete would remove"
        " the only copy; nothing was deleted, choose another destination"
    )
