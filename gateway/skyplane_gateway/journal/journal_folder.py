"""The journals of a transfer at its destination, as a sink stores them for the lead.

A journal has one writer at a time. Each write is conditional on the writer's last ETag, and beside
it the writer looks for the journal of a newer epoch (`require_newest`). The lead of a newer epoch
seals the older journals; so the store itself refuses a late write of an older lead.

Synchronous; raises StoreError as the store says.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from typing import Final

from skyplane_gateway.common.errors import (
    ConfigurationInvalid,
    JournalUnreadable,
    NotFound,
    ObjectTooLarge,
    PreconditionFailed,
    StaleEpoch,
    StoreError,
)
from skyplane_gateway.common.objects import IF_ABSENT, ObjectInfo, Precondition
from skyplane_gateway.journal.document import (
    MAX_JOURNAL_BYTES,
    Journal,
    LostRow,
    UploadRow,
    decode_journal,
    encode_journal,
    epoch_of,
    journal_key,
    journals_prefix,
    place_of,
)
from skyplane_gateway.selection.selection_rule import JOURNAL_FOLDER
from skyplane_gateway.stores.base import ObjectStore, read_object

log = logging.getLogger(__name__)

#: Attempts at a journal that changes meanwhile, before that is an error.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class StoredJournal:
    """A journal as the store holds it."""

    journal: Journal
    etag: str


@dataclass(frozen=True, slots=True)
class JournalUploads:
    """The uploads that one journal names.

    Attributes:
        key: of the journal.
        rows: the uploads that it names.
        lost: requests without an answer, which may have begun others.
        wrong: why it cannot be read; then nobody knows which uploads it names.
    """

    key: str
    rows: tuple[UploadRow, ...] = ()
    lost: tuple[LostRow, ...] = ()
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class NamedUploads:
    """The uploads that some journals name; each journal was read once.

    Attributes:
        uploads: (key, id) of each; the id is None for an upload that was only intended, or that
            a request without an answer may have begun.
        unreadable: key of a journal -> why it cannot be read; nobody knows what it names.
    """

    uploads: tuple[tuple[str, str | None], ...]
    unreadable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class FoundJournals:
    """The journals of a transfer.

    Attributes:
        readable: the journals that this release can read, oldest epoch first.
        unreadable: epoch -> what is wrong, for the others.
    """

    readable: tuple[StoredJournal, ...]
    unreadable: Mapping[int, str]


class JournalFolder:
    """All journals of one transfer in that folder: empty, or ending in a slash."""

    def __init__(self, store: ObjectStore, folder: str, transfer_key: str) -> None:
        self.store = store
        self._folder = folder
        self._transfer_key = transfer_key
        self._prefix = journals_prefix(folder, transfer_key)
        #: The epochs that had a journal when they were last listed here.
        self._listed: list[int] | None = None
        #: The last epoch whose journal was written here, if it says that all is done and names no
        #: upload: its lead writes no more.
        self._concluded: int | None = None

    def rows(self, through_epoch: float = math.inf) -> list[ObjectInfo]:
        """The journals as the store lists them, oldest epoch first, up to `through_epoch`."""
        transfer = self._folder, self._transfer_key
        found = (row for row in self.store.list(self._prefix) if place_of(row.key) == transfer)
        epochs = ((epoch_of(row.key) or 0, row) for row in found)
        through = (pair for pair in epochs if pair[0] <= through_epoch)
        return [row for _, row in sorted(through, key=lambda pair: pair[0])]

    def write(self, journal: Journal, if_match: str | None) -> str:
        """Store a journal in place of the writer's last one. Idempotent.

        Args:
            if_match: etag of the writer's last journal; None when it knows none.

        Returns:
            The new etag.

        Raises:
            StaleEpoch: another lead of this epoch has a journal, ours is sealed, or it was removed
                at the end of a newer epoch.
        """
        etag = self._write(journal, if_match)
        names_none = not (journal.uploads or journal.lost)
        self._concluded = journal.epoch if journal.is_complete and names_none else None
        return etag

    def _write(self, journal: Journal, if_match: str | None) -> str:
        key = journal_key(self._folder, self._transfer_key, journal.epoch)
        body = encode_journal(journal)
        refusal: StoreError | None = None
        for _ in range(_ATTEMPTS):
            fence = IF_ABSENT if if_match is None else Precondition(if_match=if_match)
            try:
                return self.store.put(key, body, precondition=fence).etag
            except (PreconditionFailed, NotFound) as error:
                refusal = error
            try:
                there = self._fetch(key)
            except JournalUnreadable as error:
                raise StaleEpoch(
                    f"epoch {journal.epoch} cannot continue: {error.message}"
                ) from error
            if there is None and if_match is not None:
                raise StaleEpoch(f"epoch {journal.epoch} is over: its journal was removed")
            if there is None:
                continue  # The folder was removed meanwhile.
            # The same lead must have written it, and earlier.
            if there.journal.is_sealed:
                raise StaleEpoch(
                    f"epoch {journal.epoch} is over: its journal is sealed by a newer lead"
                )
            if there.journal.writer != journal.writer or there.journal.sequence > journal.sequence:
                raise StaleEpoch(f"another lead writes the journal of epoch {journal.epoch}")
            if there.journal.sequence == journal.sequence:
                return there.etag
            if_match = there.etag
        if isinstance(refusal, NotFound):
            raise refusal  # No object can be created there.
        raise _changes_too_often(key)

    def read(self, *, seal_before: int | None = None, rule: str | None = None) -> FoundJournals:
        """The journals of all epochs.

        Args:
            seal_before: seal readable journals of older epochs than this one. Once this has
                returned, no lead writes them.
            rule: keep all rows of the newest journal of that rule. The others keep only their
                uploads and lost requests, so that many epochs take no more memory than one.

        Raises:
            StaleEpoch: with `seal_before`, a newer epoch has a journal.
        """
        found: list[StoredJournal] = []
        unreadable: dict[int, str] = {}
        for epoch in [epoch_of(row.key) or 0 for row in self.rows()]:
            if seal_before is not None and epoch > seal_before:
                raise StaleEpoch(f"epoch {seal_before} is over: epoch {epoch} has a journal")
            key = journal_key(self._folder, self._transfer_key, epoch)
            is_old = seal_before is not None and epoch < seal_before
            try:
                there = self._seal(key) if is_old else self._fetch(key)
            except JournalUnreadable as error:
                log.warning("%s", error)
                unreadable[epoch] = error.message
                continue
            if there is not None:
                found.append(there)
                found = found if rule is None else _shortened(found, rule)
        return FoundJournals(tuple(found), unreadable)

    def uploads(self, rows: Iterable[ObjectInfo]) -> Iterator[JournalUploads]:
        """The uploads of each journal in `rows`; one journal is in memory at a time."""
        for row in rows:
            try:
                there = self._fetch(row.key)
            except JournalUnreadable as error:
                yield JournalUploads(row.key, wrong=error.message)
            else:
                if there is not None:
                    yield JournalUploads(row.key, there.journal.uploads, there.journal.lost)

    def require_newest(self, epoch: int) -> list[ObjectInfo]:
        """As `rows`. Raises StaleEpoch once a newer epoch has a journal: it owns the uploads."""
        rows = self.rows()
        self._listed = [epoch_of(row.key) or 0 for row in rows]
        newest = max(self._listed, default=epoch)
        if newest > epoch:
            raise StaleEpoch(f"epoch {epoch} is over: epoch {newest} has a journal")
        return rows

    def delete_concluded(self, epoch: int) -> bool:
        """Remove the journal of an epoch if nothing else was there, and it names no upload; whether
        it did. Then even a newer lead, which has read it, does not need it any more."""
        if self._concluded != epoch or self._listed != [epoch]:
            return False
        self._concluded = None
        self.delete_keys([journal_key(self._folder, self._transfer_key, epoch)])
        return True

    def delete(self, through_epoch: int) -> None:
        """Remove the journals of this and older epochs, whatever they name. Idempotent."""
        self.delete_keys(row.key for row in self.rows(through_epoch))

    def delete_keys(self, keys: Iterable[str]) -> None:
        """Remove these journals, and the folders of the file store that become empty."""
        for key in keys:
            self.store.delete(key)
        if self.store.spec.kind == "file":
            # There a folder is an object of its own; a folder with content stays.
            for depth in range(3):
                parts = self._prefix.rstrip("/").split("/")
                self.store.delete("/".join(parts[: len(parts) - depth]) + "/")

    def _fetch(self, key: str) -> StoredJournal | None:
        """The journal of that key, its intents dated; None where there is none."""
        misread: str | None = None
        for _ in range(_ATTEMPTS):
            try:
                info, body = read_object(self.store, key, max_bytes=MAX_JOURNAL_BYTES)
            except NotFound:
                return None
            except PreconditionFailed:
                continue  # It changed between the two calls.
            except ObjectTooLarge as error:
                raise JournalUnreadable(f"the journal cannot be read: {error.message}") from error
            try:
                return StoredJournal(_dated(decode_journal(body), info.last_modified), info.etag)
            except ConfigurationInvalid as error:
                if misread == info.etag:
                    text = f"the journal {key!r} cannot be read: {error.message}"
                    raise JournalUnreadable(text) from error
                misread = info.etag  # The first time, the fault may lie in the read.
        raise _changes_too_often(key)

    def _seal(self, key: str) -> StoredJournal | None:
        for _ in range(_ATTEMPTS):
            there = self._fetch(key)
            if there is None or there.journal.is_sealed:
                return there
            journal, fence = there.journal.sealed(), Precondition(if_match=there.etag)
            try:
                info = self.store.put(key, encode_journal(journal), precondition=fence)
                return StoredJournal(journal, info.etag)
            except (PreconditionFailed, NotFound):
                continue  # Its lead wrote once more, or ended.
        raise _changes_too_often(key)


def named_uploads(folders: Iterable[JournalFolder]) -> NamedUploads:
    """The uploads that the journals of some transfers name."""
    uploads: dict[tuple[str, str | None], None] = {}
    unreadable: dict[str, str] = {}
    for journal in chain.from_iterable(folder.uploads(folder.rows()) for folder in folders):
        uploads.update(dict.fromkeys((row.key, row.upload_id) for row in journal.rows))
        uploads.update(dict.fromkeys((row.key, None) for row in journal.lost))
        if journal.wrong:
            unreadable[journal.key] = journal.wrong
    return NamedUploads(tuple(uploads), unreadable)


def folders_in(store: ObjectStore, folder: str) -> list[JournalFolder]:
    """The journals of each transfer that writes to that folder, not below it."""
    places = {place_of(row.key) for row in store.list(folder + JOURNAL_FOLDER)}
    keys = sorted(place[1] for place in places if place is not None)
    return [JournalFolder(store, folder, key) for key in keys]


def _dated(journal: Journal, written_unix_s: float) -> Journal:
    """Date each upload without an id by the write of the journal that first named it."""
    if all(row.upload_id is not None or row.noted_unix_s is not None for row in journal.uploads):
        return journal
    rows = (
        replace(row, noted_unix_s=written_unix_s)
        if row.upload_id is None and row.noted_unix_s is None
        else row
        for row in journal.uploads
    )
    return replace(journal, uploads=tuple(rows))


def _shortened(found: list[StoredJournal], rule: str) -> list[StoredJournal]:
    """Drop the rows of ended keys from all but the newest journal of that rule."""
    of_rule = [row for row in found if row.journal.rule == rule]
    return [
        row
        if of_rule and row is of_rule[-1]
        else replace(row, journal=replace(row.journal, done=(), begun=(), failed=()))
        for row in found
    ]


def _changes_too_often(key: str) -> PreconditionFailed:
    return PreconditionFailed(f"{key!r} changes all the time", is_permanent=False)
