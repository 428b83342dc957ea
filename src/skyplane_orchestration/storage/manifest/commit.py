"""Adds the rows of a run to the manifest of a place.

The segment is written first, then the pointer is replaced under a precondition, as in the logs of
Delta Lake and Iceberg. A commit that is killed leaves at most files that no pointer names; a later
one removes them after a day. Of two commits at once, the second one reads the pointer again.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from skyplane_gateway.common.errors import ManifestUnreadable, NotFound
from skyplane_gateway.common.objects import IF_ABSENT, ObjectInfo, Precondition
from skyplane_gateway.manifest.document import (
    INDEX_SUFFIX,
    POINTER,
    ROWS_SUFFIX,
    Elsewhere,
    Pointer,
    Segment,
    Snapshot,
    encode_pointer,
    manifest_prefix,
    place_of,
    read_pointer,
)
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.errors import PreconditionFailed, StoreError
from skyplane_orchestration.storage.manifest.rows import (
    files_of,
    newest,
    numbered,
    read_segment,
    without_deleted,
)
from skyplane_orchestration.storage.parallel import map_parallel
from skyplane_orchestration.units import SECONDS_PER_HOUR

if TYPE_CHECKING:
    from skyplane_orchestration.storage.manifest.signature import ManifestKey

log = logging.getLogger(__name__)

#: Runs whose state the pointer still names.
KEPT_SNAPSHOTS: Final = 30
#: A segment stays apart while it has more than so many times the rows that come after it.
_TIER: Final = 4
_ATTEMPTS: Final = 10
#: Files that no pointer names may be those of a commit that goes on.
_LEFTOVER_S: Final = 24 * SECONDS_PER_HOUR
#: Kind of store -> a version that no object has.
_NO_VERSION: Final = {"s3": '"0"', "gcs": "1", "azure": '"0x0"'}


@dataclass(frozen=True, slots=True)
class _Base:
    """What a commit builds on: the pointer with what is left of its segments, and its ETag."""

    pointer: Pointer
    etag: str
    files: tuple[ObjectInfo, ...]


class ManifestCommit:
    """Commits the rows of one run below a folder of a store.

    Args:
        snapshot: what the commit says of the run; its number and segments are filled in.
        key: signs the snapshot. Rows of runs that it has not signed are left out.
    """

    def __init__(
        self,
        store: ObjectStore,
        folder: str,
        snapshot: Snapshot,
        key: ManifestKey | None = None,
        at: Elsewhere | None = None,
    ) -> None:
        self._store = store
        self._folder = folder
        self._at = at
        self._prefix = manifest_prefix(folder) if at is None else at.prefix
        self._place = place_of(store, folder) if at is None else at.place
        self._snapshot = snapshot
        self._key = key

    def run(self, rows: pa.Table) -> Pointer:
        """Add the rows, which lack the number of the commit; the new pointer.

        Raises:
            ManifestUnreadable: the manifest is of a newer release.
            StoreError: as the store says; it has no conditional writes.
        """
        for _ in range(_ATTEMPTS):
            base = self._base()
            before, kept, table = self._merged(base.pointer, rows)
            segment, bodies = files_of(table, secrets.token_hex(8))
            self._put_files(segment.name, bodies)
            pointer = self._next(before, (*kept, segment))
            if self._replace(pointer, base.etag):
                self._remove_leftovers(base, pointer)
                return pointer
            self._remove([segment.name + suffix for suffix in bodies])
        raise PreconditionFailed(
            f"the manifest at {self._store.spec.url(self._prefix)} changes all the time",
            is_permanent=False,
        )

    def forget(self) -> None:
        """Remove the pointer, so that the place has no manifest."""
        self._remove([POINTER])

    def _base(self) -> _Base:
        """The manifest as it is. Segments that are gone or cut are left out, with their rows."""
        empty = Pointer(self._place, (), ())
        try:
            found = read_pointer(self._store, self._folder, self._at)
        except ManifestUnreadable as error:
            if not error.etag:
                raise
            log.warning("the manifest begins anew: %s", error.message)
            return _Base(empty, error.etag, tuple(self._store.list(self._prefix)))
        files = tuple(self._store.list(self._prefix))
        if found is None:
            return _Base(empty, "", files)
        pointer, etag = found
        sizes = {info.key.removeprefix(self._prefix): info.size_bytes for info in files}
        lost = {one.name for one in pointer.segments if not _is_whole(one, sizes)}
        if lost:
            log.warning("segments of the manifest are gone or cut: %s", ", ".join(sorted(lost)))
        last = pointer.snapshots[-1:]
        if self._key and any(self._key.state_of(pointer, one) != "signed" for one in last):
            log.warning("the manifest begins anew: this key has not signed its last run")
            lost = {one.name for one in pointer.segments}
        return _Base(_without(pointer, lost), etag, files)

    def _merged(
        self, pointer: Pointer, rows: pa.Table
    ) -> tuple[Pointer, tuple[Segment, ...], pa.Table]:
        """The segments that stay apart, and the rows with those of segments of a like size.

        The pointer is without a segment that cannot be read.
        """
        kept, tables = list(pointer.newest), [numbered(rows, pointer.next_commit)]
        count = rows.num_rows
        while kept and kept[-1].rows <= _TIER * count:
            segment = kept.pop()
            count += segment.rows
            try:
                tables.insert(0, read_segment(self._store, self._prefix, segment))
            except ManifestUnreadable as error:
                log.warning("rows of the manifest are lost: %s", error)
                pointer = _without(pointer, {segment.name})
                kept.clear()
        table = newest(tables)
        return pointer, tuple(kept), table if kept else without_deleted(table)

    def _next(self, pointer: Pointer, segments: tuple[Segment, ...]) -> Pointer:
        names = tuple(one.name for one in segments)
        own = replace(self._snapshot, commit=pointer.next_commit, segments=names)
        earlier = pointer.snapshots[1 - KEPT_SNAPSHOTS :]
        named = {name for one in (*earlier, own) for name in one.segments}
        every = {one.name: one for one in (*pointer.segments, *segments)}
        kept = tuple(one for name, one in every.items() if name in named)
        made = replace(pointer, segments=kept, snapshots=(*earlier, own))
        if self._key is None:
            return made
        signed = replace(own, signature=self._key.sign(made, own))
        return replace(made, snapshots=(*earlier, signed))

    def _put_files(self, name: str, bodies: Mapping[str, bytes]) -> None:
        """Without a precondition, which a retry after a lost answer would not meet."""

        def put(suffix: str) -> None:
            self._store.put(f"{self._prefix}{name}{suffix}", bodies[suffix])

        deque(map_parallel(bodies, put, len(bodies)), maxlen=0)

    def _replace(self, pointer: Pointer, etag: str) -> bool:
        """Whether the pointer is ours now; another commit may have come before.

        Raises StoreError, and removes the manifest, where the store ignores preconditions.
        """
        key, body = self._prefix + POINTER, encode_pointer(pointer)
        fence = Precondition(if_match=etag) if etag else IF_ABSENT
        try:
            self._store.put(key, body, precondition=fence)
        except (PreconditionFailed, NotFound):
            # An answer may have been lost.
            found = read_pointer(self._store, self._folder, self._at)
            names = () if found is None else found[0].snapshots
            return any(one.id == self._snapshot.id for one in names)
        if etag:
            return True
        # The first commit: a store may ignore preconditions.
        fence = Precondition(if_match=_NO_VERSION.get(self._store.spec.kind, "0-0-0"))
        try:
            self._store.put(key, body, precondition=fence)
        except (PreconditionFailed, NotFound):
            return True
        files = tuple(self._store.list(self._prefix))
        self._remove([info.key.removeprefix(self._prefix) for info in files])
        raise StoreError(
            f"{self._store.spec.place} ignores preconditions of writes, so it keeps no manifest",
            is_permanent=True,
        )

    def _remove_leftovers(self, base: _Base, pointer: Pointer) -> None:
        """Remove the files that no snapshot names any more, and those of commits that ended."""
        named = {one.name for one in pointer.segments}
        old = {one.name for one in base.pointer.segments} - named
        now_s = max((info.written_unix_s for info in base.files), default=0.0)
        for info in base.files:
            name = info.key.removeprefix(self._prefix)
            stem = name.rpartition(".")[0]
            is_leftover = info.written_unix_s < now_s - _LEFTOVER_S and stem not in named
            if name != POINTER and (stem in old or is_leftover):
                self._remove([name])

    def _remove(self, names: list[str]) -> None:
        for name in names:
            try:
                self._store.delete(self._prefix + name)
            except StoreError as error:
                log.warning("a file of the manifest stays: %s", error.message)


def _is_whole(segment: Segment, sizes: dict[str, int]) -> bool:
    found = (sizes.get(segment.name + suffix) for suffix in (ROWS_SUFFIX, INDEX_SUFFIX))
    return tuple(found) == (segment.parquet_bytes, segment.index_bytes)


def _without(pointer: Pointer, lost: set[str]) -> Pointer:
    """The pointer without some segments, and without what came before them: a lost one may have
    said that their objects were deleted. Snapshots that named one are not known any more."""
    if not lost:
        return pointer
    snapshots = tuple(one for one in pointer.snapshots[:-1] if not lost & set(one.segments))
    last = pointer.snapshots[-1]
    begin = max((at for at, name in enumerate(last.segments, 1) if name in lost), default=0)
    left = replace(last, segments=last.segments[begin:], signature="") if begin else last
    snapshots += (left,)
    named = {name for one in snapshots for name in one.segments}
    return replace(
        pointer,
        segments=tuple(one for one in pointer.segments if one.name in named),
        snapshots=snapshots,
    )
