"""The state of a journal: records what happens to each key, and makes the document of it.

Events of different keys come in any order. Events of one key come in the order of its life:
listed, perhaps upload events, then committed, skipped or failed. Ordinary keys are listed in
ascending order. Memory and document are bounded, whatever the number of keys: `through` passes
a key that has not ended by naming it in `begun`. Where there is no room for more names,
`through` stops, or goes back to where it needs none. docs/internals/memory.md states the
bounds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Final, Generic, TypeVar

from skyplane_gateway.journal.document import (
    DoneRow,
    FailedRow,
    Journal,
    LostRow,
    UploadRow,
    encoded_bytes,
)

#: Bounds of the journal's rows, in bytes of JSON. Together with the uploads (two or three
#: keys each, 64 at a time) they stay below `MAX_JOURNAL_BYTES`.
DONE_BYTES: Final = 2 << 20
LAST_DONE_BYTES: Final = 1 << 20
BEHIND_BYTES: Final = 3 << 20
BEGUN_BYTES: Final = 1 << 20
FAILED_BYTES: Final = 1 << 20

#: Requests for an upload that had no answer.
LOST_BYTES: Final = 1 << 19

#: Rows up to `through` of objects that times alone would leave in doubt.
FRESH_BYTES: Final = 1 << 19

#: Names that an earlier epoch left may take more room than names that this epoch adds.
BEHIND_AT_MOST_BYTES: Final = 5 << 20

#: Ordinary keys beyond `through` that are kept in their order: twice as many as can be in
#: flight (64 batches of 256 objects).
LISTED_KEYS: Final = 1 << 15

#: The comma after a row.
_COMMA: Final = 1

Row = TypeVar("Row", DoneRow, FailedRow, LostRow, str)


class BoundedRows(Generic[Row]):
    """Rows by key, as many as fit into `limit_bytes` of JSON."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._rows: dict[str, tuple[Row, int]] = {}
        self.used_bytes = 0

    def add(self, key: str, row: Row, *, limit_bytes: int | None = None) -> bool:
        """Add a row in place of an older one of that key.

        False where there is no room; then the older row is gone as well.
        """
        self.discard(key)
        size = encoded_bytes(row) + _COMMA
        limit_bytes = self._limit_bytes if limit_bytes is None else limit_bytes
        if self.used_bytes + size > limit_bytes:
            return False
        self._rows[key] = (row, size)
        self.used_bytes += size
        return True

    def discard(self, key: str) -> Row | None:
        """Remove and return the row of that key, if there is one."""
        row, size = self._rows.pop(key, (None, 0))
        self.used_bytes -= size
        return row

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[Row]:
        return (row for row, _ in self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)


class JournalState:
    """The keys of one transfer in one epoch.

    Args:
        start: identity of the journal, and the rows that an earlier epoch of the same rule
            left. The first document of this epoch repeats them all.
        on_change: called after every event, with the size of the object that was committed,
            else 0.
    """

    def __init__(self, start: Journal, on_change: Callable[[int], None] = lambda _: None) -> None:
        self._on_change = on_change
        #: The fields that do not change; the rows are kept below.
        self._identity = replace(start, done=(), begun=(), uploads=(), lost=(), failed=())
        self._through = start.through
        #: Ordinary keys beyond `through` as listed, and those of them that have not ended.
        self._listed: deque[str] = deque()
        self._open: set[str] = set()
        #: Keys up to `through` that have not ended.
        self._behind: BoundedRows[str] = BoundedRows(BEHIND_BYTES)
        #: Keys beyond `through` that an earlier epoch had begun: their objects may be ours.
        #: They stay named until they end.
        self._begun_earlier: BoundedRows[str] = BoundedRows(BEGUN_BYTES)
        self._done: BoundedRows[DoneRow] = BoundedRows(DONE_BYTES)
        self._done_order: list[str] = []
        self._fresh: BoundedRows[DoneRow] = BoundedRows(FRESH_BYTES)
        self._last_done: BoundedRows[DoneRow] = BoundedRows(LAST_DONE_BYTES)
        self._last: set[str] = set()
        self._failed: BoundedRows[FailedRow] = BoundedRows(FAILED_BYTES)
        self._failed_count = 0
        self.is_complete = start.is_complete
        #: Key -> the upload that becomes its object. An upload of an older version that could
        #: not be aborted moves to `_superseded` when the newer one begins, one of which something
        #: is left when it has become the object.
        self._uploads: dict[str, UploadRow] = {}
        self._superseded: dict[tuple[str, str], UploadRow] = {}
        self._lost: BoundedRows[LostRow] = BoundedRows(LOST_BYTES)
        #: The last key up to `through` that this epoch has listed.
        self._seen: str | None = None
        #: No room is left: `through` stops, and no more objects are recorded as done.
        self._is_full = False
        #: Rises with every event.
        self.revision = 0
        #: Size of the rows of the last document.
        self.journal_bytes = 0
        for done in start.done:
            self._add_done(done)
        # A failed key is tried again; until then it is a key that has not ended.
        for key in (*start.begun, *(row.key for row in start.failed)):
            if not self._is_behind(key):
                self._begun_earlier.add(key, key)
            elif not self._name_behind(key):
                self._lower_through()
        for row in start.uploads:
            self._set_upload(row)
        for lost in start.lost:
            self._lost.add(lost.key, lost)

    # -- events

    def listed(self, key: str, *, is_last: bool = False) -> None:
        """Work on a key begins. Ordinary keys come in ascending order."""
        self.is_complete = False
        if is_last:
            self._last.add(key)
        elif self._is_behind(key) and self._name_behind(key):
            # An earlier epoch ended it. It has begun again, so it no longer counts as ended.
            self._seen = key
        else:
            if self._is_behind(key):
                self._lower_through()
            if not self._is_full:
                self._listed.append(key)
                self._open.add(key)
                if len(self._listed) > LISTED_KEYS and not self._pass_first():
                    self._stop_tracking()
        self._changed()

    def upload_intended(self, row: UploadRow) -> None:
        """The lead is about to create an upload."""
        self._set_upload(replace(row, upload_id=None, crc32c=None))
        self._changed()

    def upload_created(self, key: str, upload_id: str) -> None:
        self._uploads[key] = replace(self._uploads[key], upload_id=upload_id)
        self._changed()

    def upload_committing(self, key: str, crc32c: int) -> None:
        """All parts are stored; the lead is about to complete the upload."""
        self._uploads[key] = replace(self._uploads[key], crc32c=crc32c)
        self._changed()

    def upload_left(self, key: str) -> None:
        """The upload of a key is its object now, but something of it is left at the store."""
        self._keep_named(self._uploads.pop(key, None))
        self._changed()

    def upload_aborted(self, key: str, upload_id: str | None) -> None:
        """That upload is gone; None is the intent of one. The key itself has not ended."""
        if upload_id is not None:
            self._superseded.pop((key, upload_id), None)
        row = self._uploads.get(key)
        if row is not None and row.upload_id == upload_id:
            del self._uploads[key]
        self._changed()

    def create_lost(self, row: LostRow) -> None:
        """Requests for an upload had no answer. The store may have begun one, or may do so
        later, even after the key has ended."""
        self._lost.add(row.key, row)
        self._changed()

    def create_resolved(self, key: str) -> None:
        """No upload of an unanswered request is left at the store."""
        self._lost.discard(key)
        self._changed()

    def committed(self, row: DoneRow) -> None:
        """The object is at the destination, verified."""
        self._uploads.pop(row.key, None)
        if row.is_last != (row.key in self._last):
            row = replace(row, is_last=not row.is_last)
        self._add_done(row)
        self._end(row.key)
        self._changed(row.size_bytes)

    def skipped(self, key: str) -> None:
        """The key ended; nothing was written, or nothing is known about the object."""
        self._end(key)
        self._changed()

    def failed(self, key: str, code: str) -> None:
        """The key ended without its object. An upload that is still open stays named."""
        self._failed_count += 1
        for rows in (self._done, self._fresh, self._last_done):
            rows.discard(key)
        # Without room for its name the key stays open, so that `through` does not pass it.
        if self._failed.add(key, FailedRow(key, code)):
            self._end(key)
        else:
            self._last.discard(key)
        self._changed()

    def ended(self, *, is_complete: bool) -> None:
        """Every listed key has ended; `is_complete`: all with their objects."""
        self.is_complete = is_complete
        self._changed()

    def totals_changed(self) -> None:
        """Bytes were sent though no key has ended; the journal holds the totals as well."""
        self._changed()

    def _changed(self, size_bytes: int = 0) -> None:
        self.revision += 1
        self._on_change(size_bytes)

    # -- the journal

    def journal(self, sequence: int) -> Journal:
        """The document of this moment."""
        begun: BoundedRows[str] = BoundedRows(BEGUN_BYTES)
        for key in chain(self._begun_earlier, self._last, self._open):
            if not begun.add(key, key):
                break
        done = (self._done, self._fresh, self._last_done)
        rows = (begun, self._behind, *done, self._failed, self._lost)
        self.journal_bytes = sum(one.used_bytes for one in rows)
        return replace(
            self._identity,
            sequence=sequence,
            is_sealed=False,
            through=self._through,
            done=tuple(sorted(chain(*done), key=lambda row: row.key)),
            begun=tuple(sorted({*self._behind, *begun})),
            uploads=self.uploads,
            lost=tuple(sorted(self._lost, key=lambda row: row.key)),
            failed=tuple(sorted(self._failed, key=lambda row: row.key)),
            failed_count=self._failed_count,
            is_complete=self.is_complete,
        )

    @property
    def uploads(self) -> tuple[UploadRow, ...]:
        """Uploads that are or may be open, by key. The last one of a key is continued."""
        rows = (*self._superseded.values(), *self._uploads.values())
        return tuple(sorted(rows, key=lambda row: row.key))

    # -- `through` and its rows

    def _is_behind(self, key: str) -> bool:
        return self._through is not None and key <= self._through

    def _name_behind(self, key: str) -> bool:
        """Name a key up to `through` that has not ended; False where there is no room."""
        return self._behind.add(key, key, limit_bytes=BEHIND_AT_MOST_BYTES)

    def _lower_through(self) -> None:
        """Set `through` back to the last key that this epoch has listed: later keys need no
        names then. It advances again as keys end."""
        self._through = self._seen
        for key in tuple(self._behind):
            if not self._is_behind(key):
                self._behind.discard(key)
                self._begun_earlier.add(key, key)

    def _set_upload(self, row: UploadRow) -> None:
        """Make this the upload of its key; the former one stays named while it is open."""
        self._keep_named(self._uploads.get(row.key))
        self._uploads[row.key] = row

    def _keep_named(self, old: UploadRow | None) -> None:
        if old is not None and old.upload_id is not None:
            self._superseded[old.key, old.upload_id] = old

    def _add_done(self, row: DoneRow) -> None:
        self._fresh.discard(row.key)
        if row.is_last:
            self._last_done.add(row.key, row)
        elif self._is_behind(row.key):
            self._keep_fresh(row)
        elif not self._is_full:
            while not self._done.add(row.key, row):
                if not self._pass_first():
                    self._stop_tracking()
                    return
                if self._is_behind(row.key):
                    self._keep_fresh(row)
                    return
            heapq.heappush(self._done_order, row.key)

    def _keep_fresh(self, row: DoneRow | None) -> None:
        """`through` has passed an object: only a fresh one needs its row any longer."""
        if row is not None and row.is_fresh:
            self._fresh.add(row.key, row)

    def _end(self, key: str) -> None:
        self._last.discard(key)
        self._behind.discard(key)
        self._begun_earlier.discard(key)
        self._open.discard(key)
        self._advance()

    def _advance(self) -> None:
        """Move `through` up to the last key before the first open one."""
        while self._listed and self._listed[0] not in self._open:
            self._through = self._listed.popleft()
            while self._done_order and self._done_order[0] <= self._through:
                self._keep_fresh(self._done.discard(heapq.heappop(self._done_order)))

    def _pass_first(self) -> bool:
        """Let `through` pass the first key, by its name where it is open; False where there is
        no room for the name."""
        if not self._listed:
            return False
        key = self._listed[0]
        if key in self._open:
            if not self._behind.add(key, key):
                return False
            self._open.discard(key)
        self._advance()
        return True

    def _stop_tracking(self) -> None:
        self._is_full = True
        self._listed.clear()
        self._open.clear()
