"""The second half of a move: delete at the source what is safe at the destination."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from skyplane_gateway.objects import ObjectInfo
from skyplane_gateway.selection import is_published_last
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.errors import (
    NotFound,
    PermissionDenied,
    PreconditionFailed,
    StoreError,
)
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.security.credentials import CredentialSources
from skyplane_orchestration.storage.open import open_ends
from skyplane_orchestration.storage.parallel import side_by_side
from skyplane_orchestration.transfer.aliasing import (
    Row,
    require_outside,
    require_two_files,
    require_two_places,
)

_PARALLEL: Final = 8

_IN_MEMORY_BYTES: Final = 1 << 20

#: A key below the source that no copy takes for data, and that nobody ever writes.
_PROBE: Final = ".skyplane/jobs/may-delete"


@dataclass(slots=True)
class Removal:
    """What became of the sources of copied objects.

    Attributes:
        removed: sources that are gone now.
        kept: sources that are another version by now than the one that was copied.
        failed: sources that could not be looked at or deleted.
        reasons: of the first few that are still there.
    """

    removed: int = 0
    kept: int = 0
    failed: int = 0
    reasons: list[str] = field(default_factory=list)


def check_move(job: TransferJob, credentials: CredentialSources) -> None:
    """See that a move can end as one, before anything is built for it.

    A store is asked to delete a key that does not exist, since none says what is allowed;
    in a bucket with versions this leaves a delete marker under that key.

    Raises:
        ConfigurationInvalid: one end is the other or lies in it, whatever they are called.
        PermissionDenied: the source may not be deleted from, or the destination not be
            written to from here.
        StoreError: one of them cannot be asked.
    """
    require_outside(job)
    with open_ends(job, credentials) as (source, copies):
        _require_deletable(job, source)
        require_two_places(job, source, copies)


def _require_deletable(job: TransferJob, source: ObjectStore) -> None:
    folder = _folder(job.source.key, job.recursive)
    if job.source.kind == "file":
        # An unlink of what does not exist says nothing about permission.
        place = "/" + folder
        if Path(place).is_dir() and not os.access(place, os.W_OK | os.X_OK):
            raise PermissionDenied(f"{place} may not be deleted from, which a move does")
        return
    try:
        source.delete(folder + _PROBE)
    except PermissionDenied as error:
        raise PermissionDenied(
            f"a move deletes objects under {job.source.url!r}, which is not allowed: "
            f"{error.message}"
        ) from error


def _folder(key: str, recursive: bool) -> str:
    if recursive:
        return key if not key or key.endswith("/") else key + "/"
    return key[: key.rstrip("/").rfind("/") + 1]


def remove_sources(
    job: TransferJob,
    rows: Iterable[Row],
    credentials: CredentialSources,
    removal: Removal,
) -> None:
    """Delete the source of every object that was copied; of no other.

    Objects that announce others (`_SUCCESS`, ...) go first, so that no reader of the
    source is told of what is no longer there. Copy and source are looked at right before,
    in that order: a source stays unless its copy is there and it is the version that was
    copied. Where the store can, the delete is conditional on that.

    Args:
        rows: the lead's report of an ended transfer. It is read to its end before the first
            delete: nobody keeps the lead alive for as long as deletes may take.
        removal: where it is counted, so that nothing is forgotten should it break off.

    Raises:
        ConfigurationInvalid: the ends, or an object and its copy, are one under two names;
            nothing was deleted.
        SkyplaneError: the report cannot be read, or one of the ends not be listed.
    """
    with open_ends(job, credentials) as (store, copies), closing(_Copied()) as copied:
        for end, location in ((store, job.source), (copies, job.destination)):
            # A service that is asked in the name of another region names its own with an
            # error, but not in the answer to a `head`, which has no body.
            end.check(_folder(location.key, job.recursive))
        require_two_places(job, store, copies)
        copied.keep(rows)
        require_two_files(job, copied.rows)
        for is_first in (True, False):
            chosen = (
                row
                for row in copied.rows()
                if is_published_last(row["destination"], job.publish_last) == is_first
            )
            for row, outcome in side_by_side(
                chosen, lambda row: _remove(store, copies, row), _PARALLEL
            ):
                _count(removal, job, row, *outcome)


class _Copied:
    """The rows of what was copied; in a file without a name once they outgrow a mebibyte."""

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES)  # noqa: SIM115

    def keep(self, rows: Iterable[Row]) -> None:
        """Raises StoreError when there is no room for them."""
        for row in rows:
            if row["state"] != "copied":
                continue
            try:
                self._file.write(json.dumps(row, separators=(",", ":")).encode() + b"\n")
            except OSError as error:
                raise StoreError(
                    f"there is no room for the report in {tempfile.gettempdir()}: "
                    f"{error.strerror}; nothing was deleted, free some space"
                ) from error

    def rows(self) -> Iterator[Row]:
        """All of them; one reader at a time."""
        self._file.seek(0)
        for line in self._file:
            yield json.loads(line)

    def close(self) -> None:
        self._file.close()


_Outcome = tuple[Literal["removed", "kept", "failed"], str]


def _remove(store: ObjectStore, copies: ObjectStore, row: Row) -> _Outcome:
    try:
        has_copy = _is_copy_there(copies, row)
        try:
            current = store.head(row["source"])
        except NotFound:
            return "removed", ""
        if not has_copy:
            return "kept", "its copy was changed or removed since"
        if not _is_copied_version(store, copies, current, row):
            return "kept", "it was changed after it had been copied, or its copy was"
        with suppress(NotFound):
            store.delete(row["source"], if_match=current.etag)
    except (NotFound, PreconditionFailed):
        return "kept", "it was changed while it was looked at, or its copy was"
    except StoreError as error:
        return "failed", error.message
    return "removed", ""


def _is_copy_there(copies: ObjectStore, row: Row) -> bool:
    """By version where the lead says which it wrote, by content where that is another."""
    if row.get("crc32c") is None:
        return True  # Its content is compared with the source's.
    try:
        copy = copies.head(row["destination"])
    except NotFound:
        return False
    if copy.etag == row.get("destination_etag"):
        return True
    if copy.size_bytes != row["bytes"]:
        return False
    from skyplane_orchestration.storage.compare import crc32c_of

    # A folder's mark has no bytes, and a file store cannot read it.
    return not row["bytes"] or bool(crc32c_of(copies, copy)[0] == row["crc32c"])


def _is_copied_version(
    store: ObjectStore, copies: ObjectStore, current: ObjectInfo, row: Row
) -> bool:
    """By version where the lead says which it was, by content where not."""
    if row.get("source_etag"):
        return bool(current.etag == row["source_etag"])
    if current.size_bytes != row["bytes"]:
        return False
    from skyplane_orchestration.storage.compare import crc32c_of

    wanted = row.get("crc32c")
    if wanted is None:
        # Copied by an earlier epoch, which left no more than its name: the copy tells.
        try:
            copy = copies.head(row["destination"])
        except NotFound:
            return False
        wanted = crc32c_of(copies, copy)[0]
    return bool(crc32c_of(store, current)[0] == wanted)


def _count(removal: Removal, job: TransferJob, row: Row, what: str, reason: str) -> None:
    if what == "removed":
        removal.removed += 1
        return
    if what == "kept":
        removal.kept += 1
    else:
        removal.failed += 1
    if len(removal.reasons) < _PARALLEL:
        removal.reasons.append(f"{job.source.url_of(row['source'])} is still there: {reason}")
