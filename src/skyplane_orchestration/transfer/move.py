"""The second half of a move: delete sources whose copies are at the destination."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.selection.publish_order import is_published_last
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.errors import NotFound, PermissionDenied, PreconditionFailed, StoreError
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.open import open_ends
from skyplane_orchestration.storage.parallel import map_parallel
from skyplane_orchestration.transfer.aliasing import (
    Row,
    require_distinct_ends,
    require_distinct_files,
    require_no_overlap,
)
from skyplane_orchestration.transfer.row_spool import RowSpool

_PARALLEL: Final = 8
_LISTED_REASONS: Final = 8

#: A key below the source that no copy selects and nothing writes.
_PROBE: Final = ".skyplane/jobs/may-delete"


#: What became of an object that was to be deleted, and why it still exists; `gone`: it did not.
Outcome = tuple[Literal["removed", "gone", "kept", "failed"], str]

T = TypeVar("T")


@dataclass(slots=True)
class Removal:
    """What became of objects that were to be deleted.

    `kept` counts objects that are not as they were copied or listed, `failed` those that could
    not be checked or deleted; `reasons` says why the first few still exist.
    """

    removed: int = 0
    kept: int = 0
    failed: int = 0
    reasons: list[str] = field(default_factory=list)

    def count(self, url: str, outcome: Outcome) -> None:
        """Count one object; `url` is for the reason."""
        verdict, reason = outcome
        self.removed += verdict == "removed"
        self.kept += verdict == "kept"
        self.failed += verdict == "failed"
        if verdict in ("kept", "failed") and len(self.reasons) < _LISTED_REASONS:
            self.reasons.append(f"{url} is still there: {reason}")


def announcers_first(
    job: TransferJob, rows: Callable[[], Iterable[T]], key_of: Callable[[T], str]
) -> Iterator[Iterator[T]]:
    """The rows of objects that announce others (`_SUCCESS`, ...), then those of the others.

    A reader then never finds an announced object missing.
    """
    for is_first in (True, False):
        yield (
            row
            for row in rows()
            if is_published_last(key_of(row), job.publish_last, job.destination.key) == is_first
        )


def check_move(job: TransferJob, credentials: CredentialSources, rng: random.Random) -> None:
    """Check that a move can delete its sources, before a fleet is built for it.

    Deletes a key that does not exist, since no store reports permissions; in a bucket with
    versions this leaves a delete marker under that key.

    Raises:
        ConfigurationInvalid: the ends are one place or overlap, under whatever names.
        PermissionDenied: this process may not delete from the source or write to the
            destination.
        StoreError: one of them does not answer.
    """
    require_no_overlap(job)
    with open_ends(job, credentials) as (source, copies):
        _require_deletable(job, source)
        require_distinct_ends(job, source, copies, rng)


def _require_deletable(job: TransferJob, source: ObjectStore) -> None:
    folder = _folder(job.source.key, job.recursive)
    if job.source.kind == "file":
        # Unlinking a missing file shows nothing about permission.
        place = "/" + folder
        if os.path.isdir(place) and not os.access(place, os.W_OK | os.X_OK):  # noqa: PTH112
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
    rng: random.Random,
) -> None:
    """Delete the source of every object that was copied, and no other.

    Deletes objects that announce others (`_SUCCESS`, ...) first. Right before each delete it
    checks that the copy exists and that the source is the copied version. The delete is
    conditional on that version where the store supports it.

    Args:
        rows: the lead's report, read to its end before the first delete, since the lead's lease
            may end while deletes run.
        removal: takes the counts, which remain after an error.

    Raises:
        ConfigurationInvalid: the ends, or an object and its copy, are the same under two
            names; nothing was deleted.
        SkyplaneError: the report cannot be read, or an end cannot be listed.
    """
    with open_ends(job, credentials) as (store, copies), closing(RowSpool()) as copied:
        for end, location in ((store, job.source), (copies, job.destination)):
            # A store names the right region in the body of an error. The answer to `head` has
            # no body, so this check comes first.
            end.check(_folder(location.key, job.recursive))
        require_distinct_ends(job, store, copies, rng)
        copied.add(row for row in rows if row["state"] == "copied")
        require_distinct_files(job, copied.rows)
        for chosen in announcers_first(job, copied.rows, lambda row: str(row["destination"])):
            for row, outcome in map_parallel(
                chosen, lambda row: _remove(store, copies, row), _PARALLEL
            ):
                removal.count(job.source.url_of(row["source"]), outcome)


def _remove(store: ObjectStore, copies: ObjectStore, row: Row) -> Outcome:
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
        return "kept", "it or its copy was changed during the check"
    except StoreError as error:
        return "failed", error.message
    return "removed", ""


def _is_copy_there(copies: ObjectStore, row: Row) -> bool:
    """Whether the copy exists: by the version that was written, else by content."""
    if row.get("crc32c") is None:
        return True  # `_is_copied_version` compares its content with the source.
    try:
        copy = copies.head(row["destination"])
    except NotFound:
        return False
    if copy.etag == row.get("destination_etag"):
        return True
    if copy.size_bytes != row["bytes"]:
        return False
    from skyplane_orchestration.storage.compare import crc32c_of

    # The mark of a folder has no bytes, and a file store cannot read it.
    return not row["bytes"] or bool(crc32c_of(copies, copy)[0] == row["crc32c"])


def _is_copied_version(
    store: ObjectStore, copies: ObjectStore, current: ObjectInfo, row: Row
) -> bool:
    """Whether the source is the copied version: by its etag, else by content."""
    if row.get("source_etag"):
        return bool(current.etag == row["source_etag"])
    if current.size_bytes != row["bytes"]:
        return False
    from skyplane_orchestration.storage.compare import crc32c_of

    wanted = row.get("crc32c")
    if wanted is None:
        # An earlier epoch copied it and left only the name: compare with the copy.
        try:
            copy = copies.head(row["destination"])
        except NotFound:
            return False
        wanted = crc32c_of(copies, copy)[0]
    return bool(crc32c_of(store, current)[0] == wanted)
