"""The ledger: takes up what happens to each key, and makes the journal of it.

Events of different keys come in any order; of one key in the order of its life: listed,
perhaps intent, created, committing, then committed, skipped or failed. Ordinary keys are
listed in ascending order. Memory and journal are bounded, whatever the number of keys: a
key that stays behind, while thousands after it end, is passed over by name; and where there
is no room for names any more, `through` stays where it is, or goes back to where none is
needed. docs/explanation/memory.md states the bounds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator
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

#: Names that an earlier epoch left may take up more than this one adds on its own.
BEHIND_AT_MOST_BYTES: Final = 5 << 20

#: Ordinary keys beyond `through` that are remembered in their order: twice as many as can be
#: under way (64 batches of 256 objects).
LISTED_KEYS: Final = 1 << 15

#: The comma after a row.
_COMMA: Final = 1

Row = TypeVar("Row", DoneRow, FailedRow, LostRow, str)


class BoundedRows(Generic[Row]):
    """Rows by key, as many as go into `limit_bytes` of JSON."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._rows: dict[str, tuple[Row, int]] = {}
        self.used_bytes = 0

    def add(self, key: str, row: Row, *, limit_bytes: int | None = None) -> bool:
        """Take up a row, in place of an older one of that key; False where there is no room,
        and then neither is there.

        Args:
            limit_bytes: another limit, for this once.
        """
        self.discard(key)
        size = encoded_bytes(row if isinstance(row, str) else row.to_dict()) + _COMMA
        limit_bytes = self._limit_bytes if limit_bytes is None else limit_bytes
        if self.used_bytes + size > limit_bytes:
            return False
        self._rows[key] = (row, size)
        self.used_bytes += size
        return True

    def discard(self, key: str) -> Row | None:
        """Take out the row of that key, if there is one."""
        row, size = self._rows.pop(key, (None, 0))
        self.used_bytes -= size
        return row

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[Row]:
        return (row for row, _ in self._rows.values())

    def __len__(self) -> int:
        return len(self._rows)


class Ledger:
    """State of one transfer's keys in one epoch.

    Args:
        start: identity of the journal, and what an earlier epoch of the same rule left:
            the new journal says all that the old one said from its first writing on.
    """

    def __init__(self, start: Journal) -> None:
        #: What does not change; its rows live on below.
        self._identity = replace(start, done=(), begun=(), uploads=(), lost=(), failed=())
        self._through = start.through
        #: Ordinary keys beyond `through`, as listed; those that have not ended in `_open`.
        self._listed: deque[str] = deque()
        self._open: set[str] = set()
        self._behind: BoundedRows[str] = BoundedRows(BEHIND_BYTES)
        #: Keys beyond `through` that an earlier epoch had begun: what is there of them may
        #: be ours. They stay named until they end.
        self._intended: BoundedRows[str] = BoundedRows(BEGUN_BYTES)
        self._done: BoundedRows[DoneRow] = BoundedRows(DONE_BYTES)
        self._done_order: list[str] = []
        self._fresh: BoundedRows[DoneRow] = BoundedRows(FRESH_BYTES)
        self._last_done: BoundedRows[DoneRow] = BoundedRows(LAST_DONE_BYTES)
        self._last: set[str] = set()
        self._failed: BoundedRows[FailedRow] = BoundedRows(FAILED_BYTES)
        self._failed_count = 0
        self._is_complete = start.is_complete
        #: Key -> the upload that is to become its object, and others of such keys: of an
        #: older version, say, that could not be aborted when the newer one began.
        self._uploads: dict[str, UploadRow] = {}
        self._strays: dict[tuple[str, str], UploadRow] = {}
        self._lost: BoundedRows[LostRow] = BoundedRows(LOST_BYTES)
        #: The last key up to `through` that this epoch has looked at.
        self._seen: str | None = None
        #: Out of bounds: `through` stays where it is, and nothing more is taken as done.
        self._is_full = False
        #: Rises with every event.
        self.revision = 0
        #: What the rows of the last journal took up.
        self.journal_bytes = 0
        self._take_over(start)

    def _take_over(self, start: Journal) -> None:
        for done in start.done:
            self._add_done(done)
        # What failed will be tried again; until then it is what has not ended.
        for key in (*start.begun, *(row.key for row in start.failed)):
            if not self._is_behind(key):
                self._intended.add(key, key)
            elif not self._fall_behind(key):
                self._go_back()
        for row in start.uploads:
            self._begin(row)
        for lost in start.lost:
            self._lost.add(lost.key, lost)

    # -- events

    def listed(self, key: str, *, is_last: bool = False) -> None:
        """Work on a key begins. Ordinary ones come in ascending order."""
        self.revision += 1
        self._is_complete = False
        if is_last:
            self._last.add(key)
            return
        if self._is_behind(key):
            # Ended in an earlier epoch, and begun again: must not pass for ended.
            if self._fall_behind(key):
                self._seen = key
                return
            self._go_back()
        if not self._is_full:
            self._listed.append(key)
            self._open.add(key)
            if len(self._listed) > LISTED_KEYS and not self._pass_over():
                self._fill_up()

    def intent(self, row: UploadRow) -> None:
        """An upload is about to be created."""
        self.revision += 1
        self._begin(replace(row, upload_id=None, crc32c=None))

    def created(self, key: str, upload_id: str) -> None:
        self.revision += 1
        self._uploads[key] = replace(self._uploads[key], upload_id=upload_id)

    def lost(self, row: LostRow) -> None:
        """Requests for an upload had no answer. What they began may be there, or come to be,
        whatever becomes of the key. Of those that an earlier epoch had, its journal tells."""
        self.revision += 1
        self._lost.add(row.key, row)

    def settled(self, key: str) -> None:
        """Nothing that such requests began is there."""
        self.revision += 1
        self._lost.discard(key)

    def committing(self, key: str, crc32c: int) -> None:
        """The parts are there; the store is about to be asked to make them the object."""
        self.revision += 1
        self._uploads[key] = replace(self._uploads[key], crc32c=crc32c)

    def aborted(self, key: str, upload_id: str | None) -> None:
        """That upload is gone, or with no id what was intended; the key itself has not ended
        by that."""
        self.revision += 1
        if upload_id is not None:
            self._strays.pop((key, upload_id), None)
        row = self._uploads.get(key)
        if row is not None and row.upload_id == upload_id:
            del self._uploads[key]

    def committed(self, row: DoneRow) -> None:
        """The object is at the destination, verified."""
        self._uploads.pop(row.key, None)
        self._add_done(replace(row, is_last=row.key in self._last))
        self._end(row.key)

    def skipped(self, key: str) -> None:
        """The key ended, and nothing was to be written or is known of what was."""
        self._end(key)

    def failed(self, key: str, code: str) -> None:
        """The key ended without its object. An upload that is still open stays named."""
        self._failed_count += 1
        self._discard_done(key)
        # One that cannot be named stays open, and so `through` does not pass it.
        if self._failed.add(key, FailedRow(key, code)):
            self._end(key)
        else:
            self._last.discard(key)
            self.revision += 1

    def ended(self, *, is_complete: bool) -> None:
        """All that was listed has ended; `is_complete`: none without its object."""
        self.revision += 1
        self._is_complete = is_complete

    def moved(self) -> None:
        """Much was sent, although no key has come further; the journal tells of that too."""
        self.revision += 1

    # -- the journal

    def journal(self, sequence: int) -> Journal:
        """What is known now."""
        begun: BoundedRows[str] = BoundedRows(BEGUN_BYTES)
        for key in chain(self._intended, self._last, self._open):
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
            is_complete=self._is_complete,
        )

    @property
    def is_complete(self) -> bool:
        """See `Journal`."""
        return self._is_complete

    @property
    def uploads(self) -> tuple[UploadRow, ...]:
        """Uploads that are open, or may be, by key; the last of a key is the one that goes on."""
        rows = (*self._strays.values(), *self._uploads.values())
        return tuple(sorted(rows, key=lambda row: row.key))

    # -- how far it is

    def _is_behind(self, key: str) -> bool:
        return self._through is not None and key <= self._through

    def _fall_behind(self, key: str) -> bool:
        """Name a key up to `through` that has not ended; False where there is no room."""
        return self._behind.add(key, key, limit_bytes=BEHIND_AT_MOST_BYTES)

    def _go_back(self) -> None:
        """Let `through` speak only for what this epoch has looked at, and so need no names
        of what comes after. It comes forward again while that ends."""
        self._through = self._seen
        for key in tuple(self._behind):
            if not self._is_behind(key):
                self._behind.discard(key)
                self._intended.add(key, key)

    def _begin(self, row: UploadRow) -> None:
        """From now on this is the key's upload; one that is still open stays named."""
        old = self._uploads.get(row.key)
        if old is not None and old.upload_id is not None:
            self._strays[old.key, old.upload_id] = old
        self._uploads[row.key] = row

    def _add_done(self, row: DoneRow) -> None:
        self._fresh.discard(row.key)
        if row.is_last:
            self._last_done.add(row.key, row)
        elif self._is_behind(row.key):
            self._keep_fresh(row)
        elif not self._is_full:
            while not self._done.add(row.key, row):
                if not self._pass_over():
                    self._fill_up()
                    return
                if self._is_behind(row.key):
                    self._keep_fresh(row)
                    return
            heapq.heappush(self._done_order, row.key)

    def _keep_fresh(self, row: DoneRow | None) -> None:
        """`through` has passed an object: what times will tell of need not be named."""
        if row is not None and row.is_fresh:
            self._fresh.add(row.key, row)

    def _discard_done(self, key: str) -> None:
        for rows in (self._done, self._fresh, self._last_done):
            rows.discard(key)

    def _end(self, key: str) -> None:
        self.revision += 1
        self._last.discard(key)
        self._behind.discard(key)
        self._intended.discard(key)
        self._open.discard(key)
        while self._listed and self._listed[0] not in self._open:
            self._advance()

    def _advance(self) -> None:
        self._through = self._listed.popleft()
        while self._done_order and self._done_order[0] <= self._through:
            self._keep_fresh(self._done.discard(heapq.heappop(self._done_order)))

    def _pass_over(self) -> bool:
        """Let `through` pass the first key that has not ended, by naming it."""
        if not self._listed:
            return False
        key = self._listed[0]
        if key in self._open:
            if not self._behind.add(key, key):
                return False
            self._open.discard(key)
        self._advance()
        while self._listed and self._listed[0] not in self._open:
            self._advance()
        return True

    def _fill_up(self) -> None:
        self._is_full = True
        self._listed.clear()
        self._open.clear()
