"""Aborts the uploads that a transfer's journals name, and removes the journals."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from dataclasses import dataclass
from itertools import chain
from typing import Final

from skyplane_gateway.common.errors import JournalUnreadable, SkyplaneError, StoreError
from skyplane_gateway.common.objects import ObjectInfo
from skyplane_gateway.journal.document import LostRow, UploadRow, folders_above
from skyplane_gateway.journal.journal_folder import JournalFolder, folders_in, named_uploads
from skyplane_gateway.stores.base import ObjectStore

log = logging.getLogger(__name__)

#: Longest time between the write of a journal and the request for an upload that it intends:
#: a live lead writes twice in that time, and no request takes as long.
INTENT_S: Final = 3600.0

#: How much two times of one store may differ by rounding.
_ROUNDING_S: Final = 2.0


@dataclass(frozen=True, slots=True)
class CleanupResult:
    """What could not be removed.

    Attributes:
        still_open: (key, reason) of uploads that could not be aborted; then all journals stay.
        unreadable: what is wrong with journals that cannot be read; each of them stays.
    """

    still_open: tuple[tuple[str, str], ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """All of it in one line; empty where everything was removed."""
        reasons = list(self.unreadable)
        if self.still_open:
            key, why = self.still_open[0]
            more = f" (and {len(self.still_open) - 1} more)" if len(self.still_open) > 1 else ""
            reasons.insert(0, f"an upload of {key!r}{more} stays open, so the journals stay: {why}")
        return "; ".join(reasons)


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """When an upload was begun, by the store's clock; both ends included."""

    from_unix_s: float
    until_unix_s: float

    @classmethod
    def since(cls, unix_s: float) -> TimeWindow:
        """From that time on; the store may round to whole seconds."""
        return cls(unix_s - _ROUNDING_S, math.inf)

    @classmethod
    def around(cls, unix_s: float, until_unix_s: float | None = None) -> TimeWindow:
        """Around the last write of a journal with the intent, or around the time of requests
        without an answer, which the lead's clock measured."""
        until_unix_s = unix_s if until_unix_s is None else until_unix_s
        return cls(unix_s - INTENT_S, until_unix_s + INTENT_S)

    def __contains__(self, unix_s: float) -> bool:
        return self.from_unix_s <= unix_s <= self.until_unix_s


def clear_journals(journals: JournalFolder, epoch: int) -> None:
    """Remove everything that the journals name, and the journals. No lead may run.

    Raises:
        StaleEpoch: a newer epoch has a journal; nothing was touched.
        JournalUnreadable: a journal stays, and uploads that only it names.
        StoreError: an upload stays open, and all journals stay.
    """
    if journals.delete_concluded(epoch):
        return
    result = _remove(journals, journals.require_newest(epoch))
    if result.still_open:
        raise StoreError(result.reason)
    if result.unreadable:
        raise JournalUnreadable(result.reason)


def remove_journals(journals: JournalFolder, through_epoch: int) -> CleanupResult:
    """Abort every upload that a journal up to that epoch names or intends; then remove these."""
    return _remove(journals, journals.rows(through_epoch))


def _remove(journals: JournalFolder, rows: Collection[ObjectInfo]) -> CleanupResult:
    own = {row.key for row in rows}
    read: list[str] = []
    unreadable: list[str] = []
    still_open: list[tuple[str, str]] = []
    for journal in journals.uploads(rows):
        if journal.wrong:
            unreadable.append(journal.wrong)
            continue
        read.append(journal.key)
        named: tuple[UploadRow | LostRow, ...] = (*journal.rows, *journal.lost)
        for one in named:
            try:
                _abort(journals.store, one, own)
            except SkyplaneError as error:
                log.warning("an upload of %r stays open: %s", one.key, error)
                still_open.append((one.key, error.message))
    if not still_open:
        journals.delete_keys(read)
    return CleanupResult(tuple(still_open), tuple(unreadable))


def _abort(store: ObjectStore, row: UploadRow | LostRow, own: Collection[str]) -> None:
    if isinstance(row, LostRow):
        window = TimeWindow.around(row.since_unix_s, row.until_unix_s)
        abort_intended(store, row.key, window, own=own)
    elif row.upload_id is not None:
        store.abort_upload(row.key, row.upload_id)
    elif row.noted_unix_s is not None:
        abort_intended(store, row.key, TimeWindow.around(row.noted_unix_s), own=own)


def abort_intended(
    store: ObjectStore,
    key: str,
    window: TimeWindow,
    *,
    own: Collection[str],
    spared: str | None = None,
) -> None:
    """Abort uploads of exactly that key that were begun in that time and no journal names.

    Stores do not tell which request began an upload. So this may abort an upload that another
    tool began for the same key at the same time.

    Args:
        own: keys of the caller's journals. An unreadable one of them does not stop this: the
            caller names in `spared` the only upload that it continues.
        spared: id of one more upload to keep.

    Raises:
        JournalUnreadable: another transfer's journal may name one of them; none was aborted.
    """
    found = [
        upload
        for upload in store.list_uploads(key)
        if upload.key == key and upload.upload_id != spared and upload.initiated in window
    ]
    if not found:
        return
    # Journals that name uploads of that key lie in folders above it.
    folders = (folders_in(store, folder) for folder in folders_above(key))
    known = named_uploads(chain.from_iterable(folders))
    for journal, wrong in known.unreadable.items():
        if journal not in own:
            raise JournalUnreadable(wrong)
    named = frozenset(id_ for owner, id_ in known.uploads if owner == key and id_ is not None)
    for upload in found:
        if upload.upload_id not in named:
            log.info("aborting upload %s of %r: no journal names it", upload.upload_id, key)
            store.abort_upload(key, upload.upload_id)
