"""Sees that the two ends of a move are two places, whatever they are called.

A bucket has as many names as its server, a folder as many as there are links and mounts.
Names therefore prove nothing; what is written to one end and does not appear in the other
does.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from skyplane_gateway.journal.document import (
    Journal,
    encode_journal,
    folder_of_destination,
    journal_key,
)
from skyplane_gateway.journal.orphans import LeftTransfer
from skyplane_gateway.objects import StoreSpec
from skyplane_gateway.selection import map_key, require_apart
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    NotFound,
    PermissionDenied,
    StoreError,
    StoreUnavailable,
)
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.storage.open import spec_of

#: The epoch of the journal that is written to be looked for.
_EPOCH: Final = 1

#: Writings of it, should its folder be removed by the end of another transfer meanwhile.
_ATTEMPTS: Final = 5

#: Folders whose identity is remembered: objects of one folder end at about the same time.
_FOLDERS: Final = 4096

Row = Mapping[str, Any]


def source_folder(job: TransferJob) -> str:
    """The folder that the job reads: empty, or ending in a slash."""
    return folder_of_destination(job.source.key, recursive=job.recursive)


def require_outside(job: TransferJob) -> None:
    """Refuse ends of which one lies in the other, by their names.

    Raises:
        ConfigurationInvalid: one does.
    """
    _require_outside(job, spec_of(job.source), spec_of(job.destination))
    if job.recursive and job.source.kind == job.destination.kind == "file":
        _require_other_folders(job)


def _require_outside(job: TransferJob, source: StoreSpec, destination: StoreSpec) -> None:
    ends = source, job.source.key, destination, job.destination.key
    require_apart(*ends, recursive=job.recursive)
    try:
        require_apart(*ends[2:], *ends[:2], recursive=job.recursive)
    except ConfigurationInvalid as error:
        raise ConfigurationInvalid(
            f"a move out of {job.source.url!r} into a folder above it cannot be told from a "
            "change of the source; copy instead, or move to a place beside it"
        ) from error


def _require_other_folders(job: TransferJob) -> None:
    """The same by device and inode, which a bind mount does not change as it does the path."""
    source, destination = (
        Path(os.path.realpath(f"/{location.key}")) for location in (job.source, job.destination)
    )
    for inner, outer in ((destination, source), (source, destination)):
        for folder in (inner, *inner.parents):
            with suppress(OSError):  # Not there yet, or out of reach: its own look will tell.
                if folder.samefile(outer):
                    raise _one_place(job, f"{folder} and {outer} are one folder")


def require_two_places(job: TransferJob, source: ObjectStore, copies: ObjectStore) -> None:
    """Refuse ends that are one place, or lie in one another, under different names.

    A journal of a transfer that never was is written at the destination and looked for in
    the source. Should we be killed meanwhile, the next run of the same job removes it, or a
    sweep like any other.

    Raises:
        ConfigurationInvalid: they are.
        PermissionDenied: the destination may not be written to from here.
        StoreError: one of the ends cannot be asked.
    """
    folder = folder_of_destination(job.destination.key, recursive=job.recursive)
    if job.destination.kind == "file" and not Path("/" + folder).is_dir():
        return  # What is not there yet is nobody's source.
    token = _token_of(job)
    written = journal_key(folder, token, _EPOCH)
    gone = StoreUnavailable(
        f"what is written to {job.destination.url!r} is gone at once; try again"
    )
    failure: StoreError = gone
    try:
        for _ in range(_ATTEMPTS):
            try:
                etag = _write(job, copies, written, token)
            except NotFound as error:
                failure = error  # The end of another transfer has removed the folder meanwhile.
                continue
            _require_unseen(job, source, token, written)
            # Who looked at the same time may have removed ours before we did.
            if _has(copies, written, etag):
                return
            failure = gone
    finally:
        _remove(copies, folder, token)
    raise failure


def _write(job: TransferJob, copies: ObjectStore, key: str, token: str) -> str:
    """The etag of what was written; no other has it."""
    journal = Journal(token, _EPOCH, rule="", chunk_bytes=1, writer=uuid.uuid4().hex)
    try:
        return copies.put(key, encode_journal(journal)).etag
    except PermissionDenied as error:
        raise PermissionDenied(
            f"a move writes to {job.destination.url!r} from here, to see that it is not its own "
            f"source, which is not allowed: {error.message}"
        ) from error


def _remove(copies: ObjectStore, folder: str, token: str) -> None:
    # Unread: it names nothing, and what another look has written is as good.
    LeftTransfer(folder, token).journals(copies).delete(_EPOCH)


def _token_of(job: TransferJob) -> str:
    """Stands for the job where a journal has the key of its transfer."""
    ends = (job.source.url, job.source.endpoint_url, job.destination.url, str(job.recursive))
    return hashlib.sha256("\0".join(ends).encode()).hexdigest()[:32]


def _require_unseen(job: TransferJob, source: ObjectStore, token: str, written: str) -> None:
    same_name = journal_key(source_folder(job), token, _EPOCH)
    if _keeps_names(job) and _has(source, same_name):
        raise _one_place(job, "what is written to the one appears in the other")
    if job.source.kind == job.destination.kind:
        # Who may read no more than the source's folder sees nothing of what is beside it.
        with suppress(PermissionDenied):
            if _has(source, written):
                _require_outside(job, spec_of(job.source), spec_of(job.source))


def _keeps_names(job: TransferJob) -> bool:
    """Whether objects have the same name below both folders: one object may get another."""
    if job.recursive:
        return True
    source, folder = job.source.key, source_folder(job)
    target = map_key(source, source, job.destination.key, recursive=False)
    return target.rpartition("/")[2] == source.removeprefix(folder)


def _has(store: ObjectStore, key: str, etag: str | None = None) -> bool:
    # By a listing: a `head` of what is not there takes rights that a source need not have.
    rows = (row for row in store.list(key) if row.key == key)
    return any(etag in (None, row.etag) for row in rows)


def require_two_files(job: TransferJob, copied: Callable[[], Iterable[Row]]) -> None:
    """Refuse a move that would delete a copy, be it as its own source or as another's.

    That is what links and mounts below the ends can bring about. Folders are held by device
    and inode, so memory grows by one number with each folder that is moved from.

    Args:
        copied: the rows of what was copied, from their start whenever it is called.

    Raises:
        ConfigurationInvalid: it would.
    """
    if not job.source.kind == job.destination.kind == "file":
        return
    folder_of = lru_cache(_FOLDERS)(_identity_of)
    emptied: set[tuple[int, int] | None] = set()
    for row in copied():
        source, copy = _path(row["source"]), _path(row["destination"])
        with suppress(OSError):  # Gone, or out of reach: its own look will tell.
            # Of a link to the copy the link alone would be deleted.
            if os.path.samestat(source.lstat(), copy.stat()):
                raise _one_place(job, f"{source} and its copy {copy} are one file")
        emptied.add(folder_of(source.parent))
    if not job.recursive:
        return  # One object may get another name in its own folder.
    for row in copied():
        folder = _path(row["destination"]).parent
        if (identity := folder_of(folder)) is not None and identity in emptied:
            raise _one_place(job, f"{folder} is also a folder that is moved from")


def _path(key: str) -> Path:
    return Path("/" + key)


def _identity_of(folder: Path) -> tuple[int, int] | None:
    """Device and inode; None where it is gone, or out of reach."""
    try:
        status = folder.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _one_place(job: TransferJob, proof: str) -> ConfigurationInvalid:
    ends = (
        job.source.url,
        job.source.endpoint_url,
        job.destination.url,
        job.destination.endpoint_url,
    )
    source, there, destination, here = ends
    return ConfigurationInvalid(
        f"{source}{there and f' at {there}'} and {destination}{here and f' at {here}'} are one "
        f"place by two names: {proof}, so a move would delete the only copy; nothing was "
        "deleted, choose another destination"
    )
