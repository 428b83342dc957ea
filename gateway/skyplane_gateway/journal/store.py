"""The journals of a transfer at its destination, as a sink keeps them for the lead.

One writer at a time: a journal is written on the condition that it is still the one that
its writer wrote last, and not at all once a newer epoch has one. A lead that takes over
seals what it finds, so that a write of the old lead which is still on its way is refused
by the store itself.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from skyplane_gateway.errors import (
    ConfigurationInvalid,
    JournalUnreadable,
    NotFound,
    ObjectTooLarge,
    PreconditionFailed,
    SkyplaneError,
    StaleEpoch,
    StoreError,
)
from skyplane_gateway.journal.document import (
    MAX_JOURNAL_BYTES,
    Journal,
    LostRow,
    UploadRow,
    decode_journal,
    encode_journal,
    epoch_of,
    folders_above,
    journal_key,
    journals_prefix,
    place_of,
)
from skyplane_gateway.objects import IF_ABSENT, ObjectInfo, Precondition
from skyplane_gateway.selection.rules import JOURNAL_FOLDER
from skyplane_gateway.stores.base import ObjectStore, read_object

log = logging.getLogger(__name__)

#: So far from the last writing of a journal lies the request for an upload that it intends:
#: a lead that lives writes twice in that time, and no request takes as long.
INTENT_S: Final = 3600.0

#: How much two times of one store may differ by their digits.
_CLOCK_STEP_S: Final = 2.0

#: Looks at a journal that changes while it is looked at, before that is an error.
_LOOKS: Final = 5


@dataclass(frozen=True, slots=True)
class StoredJournal:
    """A journal as the store holds it."""

    journal: Journal
    etag: str


@dataclass(frozen=True, slots=True)
class JournalUploads:
    """The uploads that one journal names.

    Attributes:
        key: the journal's.
        rows: those that it tells the keys of, and ids where it knows them.
        lost: requests without an answer, which may have begun others.
        wrong: what is wrong with it where it cannot be read: nobody knows then what it names.
    """

    key: str
    rows: tuple[UploadRow, ...] = ()
    lost: tuple[LostRow, ...] = ()
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class Remains:
    """Why something of a transfer stays that was to be removed.

    Attributes:
        still_open: keys of uploads that could not be aborted, each with why; all journals
            stay then.
        unreadable: what is wrong with journals of its own: each stays, be it alone.
    """

    still_open: tuple[tuple[str, str], ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """All of it in a line; empty where nothing stays."""
        reasons = list(self.unreadable)
        if self.still_open:
            key, why = self.still_open[0]
            more = f" (and {len(self.still_open) - 1} more)" if len(self.still_open) > 1 else ""
            reasons.insert(0, f"an upload of {key!r}{more} stays open, so the journals stay: {why}")
        return "; ".join(reasons)


@dataclass(frozen=True, slots=True)
class FoundJournals:
    """The journals of a transfer.

    Attributes:
        readable: those that this release can read, oldest epoch first.
        unreadable: epoch -> what is wrong, of the others.
    """

    readable: tuple[StoredJournal, ...]
    unreadable: Mapping[int, str]


class JournalFolder:
    """All journals of one transfer. Synchronous; see `Destination` for who calls it.

    Args:
        store: the destination.
        folder: the folder that the transfer writes to, empty or ending in a slash.
    """

    def __init__(self, store: ObjectStore, folder: str, transfer_key: str) -> None:
        self._store = store
        self._folder = folder
        self._transfer_key = transfer_key
        self._prefix = journals_prefix(folder, transfer_key)

    def rows(self, through_epoch: float = math.inf) -> list[ObjectInfo]:
        """The journals as the store lists them, oldest epoch first.

        Args:
            through_epoch: leave out those of newer epochs.
        """
        place = self._folder, self._transfer_key
        found = (row for row in self._store.list(self._prefix) if place_of(row.key) == place)
        epochs = ((epoch_of(row.key) or 0, row) for row in found)
        through = (pair for pair in epochs if pair[0] <= through_epoch)
        return [row for _, row in sorted(through, key=lambda pair: pair[0])]

    def write(self, journal: Journal, if_match: str | None) -> str:
        """Store a journal in place of the one that its writer wrote last.

        Idempotent: a repetition after an answer that was lost is taken for what it is.

        Args:
            if_match: the etag of that writer's last one; None when it knows of none.

        Returns:
            The new etag.

        Raises:
            StaleEpoch: a newer epoch has a journal, or another lead of this one, or ours was
                removed at the end of a newer one.
            StoreError: as the store says.
        """
        self.require_newest(journal.epoch)
        key = journal_key(self._folder, self._transfer_key, journal.epoch)
        body = encode_journal(journal)
        refusal: StoreError | None = None
        for _ in range(_LOOKS):
            fence = IF_ABSENT if if_match is None else Precondition(if_match=if_match)
            try:
                return self._store.put(key, body, precondition=fence).etag
            except (PreconditionFailed, NotFound) as error:
                refusal = error
            try:
                there = self._fetch(key)
            except JournalUnreadable as error:
                raise StaleEpoch(f"epoch {journal.epoch} cannot go on: {error.message}") from error
            if there is None and if_match is not None:
                raise StaleEpoch(f"epoch {journal.epoch} is over: its journal was removed")
            if there is None:
                continue  # The folder was removed while we wrote.
            _ensure_own(there.journal, journal)
            if there.journal.sequence == journal.sequence:
                return there.etag
            if_match = there.etag
        if isinstance(refusal, NotFound):
            raise refusal  # Nothing can be made there.
        raise PreconditionFailed(f"{key!r} changes all the time", is_permanent=False)

    def read(self, *, seal_before: int | None = None, rule: str | None = None) -> FoundJournals:
        """What earlier epochs have left.

        Args:
            seal_before: seal the readable ones of older epochs than this one: nobody writes
                them any more once this has returned.
            rule: of all but the newest journal of that rule only the uploads matter: what
                else they say is left out, so that many epochs take no more than one.

        Raises:
            StaleEpoch: with `seal_before`, a newer epoch has a journal.
            StoreError: as the store says.
        """
        found: list[StoredJournal] = []
        unreadable: dict[int, str] = {}
        for epoch in self._epochs():
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

    def uploads(self, through_epoch: float = math.inf) -> Iterator[JournalUploads]:
        """What each journal names, oldest epoch first; one journal is held at a time.

        Args:
            through_epoch: leave out what newer epochs have written.

        Raises:
            StoreError: as the store says.
        """
        for row in self.rows(through_epoch):
            named = self._uploads_of(row.key)
            if named is not None:
                yield named

    def _uploads_of(self, key: str) -> JournalUploads | None:
        try:
            there = self._fetch(key)
        except JournalUnreadable as error:
            return JournalUploads(key, wrong=error.message)
        if there is None:
            return None
        return JournalUploads(key, there.journal.uploads, there.journal.lost)

    def require_newest(self, epoch: int) -> None:
        """Raises StaleEpoch once a newer epoch has a journal: what is open is that one's."""
        newest = max(self._epochs(), default=epoch)
        if newest > epoch:
            raise StaleEpoch(f"epoch {epoch} is over: epoch {newest} has a journal")

    def clear(self, epoch: int) -> None:
        """Nobody goes on: abort the uploads that the journals name, and remove these.

        Raises:
            StaleEpoch: somebody does, in a newer epoch; nothing was touched.
            JournalUnreadable: something may be left that nobody knows of.
            StoreError: some upload stays open, and so the journals stay as well.
        """
        self.require_newest(epoch)
        remains = self.remove(epoch)
        if remains.still_open:
            raise StoreError(remains.reason)
        if remains.unreadable:
            raise JournalUnreadable(remains.reason)

    def remove(self, through_epoch: int) -> Remains:
        """Abort every upload that a journal names, and those of keys it only intended; then
        remove the journals.

        Args:
            through_epoch: leave what newer epochs have written alone.

        Raises:
            StoreError: as the store says.
        """
        own = {row.key for row in self.rows(through_epoch)}
        known: list[str] = []
        unreadable: list[str] = []
        still_open: list[tuple[str, str]] = []
        for named in self.uploads(through_epoch):
            if named.wrong:
                unreadable.append(named.wrong)
                continue
            known.append(named.key)
            begun: tuple[UploadRow | LostRow, ...] = (*named.rows, *named.lost)
            for row in begun:
                try:
                    self._abort(row, own)
                except SkyplaneError as error:
                    log.warning("an upload of %r stays open: %s", row.key, error)
                    still_open.append((row.key, error.message))
        if not still_open:
            self._delete(known)
        return Remains(tuple(still_open), tuple(unreadable))

    def delete(self, through_epoch: int) -> None:
        """Remove the journals of this and older epochs, whatever they name. Idempotent."""
        self._delete(row.key for row in self.rows(through_epoch))

    def _delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._store.delete(key)
        if self._store.spec.kind == "file":
            # Folders are objects of their own there; those that hold others stay.
            for depth in range(3):
                parts = self._prefix.rstrip("/").split("/")
                self._store.delete("/".join(parts[: len(parts) - depth]) + "/")

    def _abort(self, row: UploadRow | LostRow, own: Collection[str]) -> None:
        if isinstance(row, LostRow):
            when = Window.around(row.since_unix_s, row.until_unix_s)
            abort_intended(self._store, row.key, when, own=own)
        elif row.upload_id is not None:
            self._store.abort_upload(row.key, row.upload_id)
        elif row.noted_unix_s is not None:
            abort_intended(self._store, row.key, Window.around(row.noted_unix_s), own=own)

    def _epochs(self) -> list[int]:
        return [epoch_of(row.key) or 0 for row in self.rows()]

    def _fetch(self, key: str) -> StoredJournal | None:
        """The journal of that key; None where there is none. Its intents have a time: when
        it was written, or what an earlier journal said.

        Raises:
            JournalUnreadable: it is none that this release reads.
        """
        misread: str | None = None
        for _ in range(_LOOKS):
            try:
                info, body = read_object(self._store, key, max_bytes=MAX_JOURNAL_BYTES)
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
                misread = info.etag  # Once may be the reading's fault.
        raise PreconditionFailed(f"{key!r} changes all the time", is_permanent=False)

    def _seal(self, key: str) -> StoredJournal | None:
        for _ in range(_LOOKS):
            there = self._fetch(key)
            if there is None or there.journal.is_sealed:
                return there
            journal, fence = there.journal.sealed(), Precondition(if_match=there.etag)
            try:
                info = self._store.put(key, encode_journal(journal), precondition=fence)
                return StoredJournal(journal, info.etag)
            except (PreconditionFailed, NotFound):
                continue  # Its lead wrote once more, or ended.
        raise PreconditionFailed(f"{key!r} changes all the time", is_permanent=False)


@dataclass(frozen=True, slots=True)
class Window:
    """A time within which an upload was begun, by the store's clock; both ends belong to it."""

    from_unix_s: float
    until_unix_s: float

    @classmethod
    def since(cls, unix_s: float) -> Window:
        """From then on, by a clock that may tell whole seconds alone."""
        return cls(unix_s - _CLOCK_STEP_S, math.inf)

    @classmethod
    def around(cls, unix_s: float, until_unix_s: float | None = None) -> Window:
        """About the time at which a journal with the intent was last written by its lead; or
        about that in which requests had no answer, by the lead's clock."""
        until_unix_s = unix_s if until_unix_s is None else until_unix_s
        return cls(unix_s - INTENT_S, until_unix_s + INTENT_S)

    def __contains__(self, unix_s: float) -> bool:
        return self.from_unix_s <= unix_s <= self.until_unix_s


def abort_intended(
    store: ObjectStore,
    key: str,
    when: Window,
    *,
    own: Collection[str],
    spared: str | None = None,
) -> None:
    """Abort the uploads of exactly that key which were begun within that time.

    What becomes of a request whose answer was lost no store tells. Another tool's upload
    of the same key and the same time cannot be told from ours; one that a journal names, of
    whatever transfer, stays.

    Args:
        own: keys of the journals of who asks. What one of them may name that cannot be read
            need not stay: who asks names as `spared` what it goes on with, or goes on with none.
        spared: the id of one more that stays.

    Raises:
        JournalUnreadable: it may name one of them; all stay.
        StoreError: as the store says.
    """
    found = [
        upload
        for upload in store.list_uploads(key)
        if upload.key == key and upload.upload_id != spared and upload.initiated in when
    ]
    if not found:
        return
    named = _ids_of(store, key, own)
    for upload in found:
        if upload.upload_id not in named:
            log.info("the upload %s of %r, which nobody knows, is aborted", upload.upload_id, key)
            store.abort_upload(key, upload.upload_id)


def _ids_of(store: ObjectStore, key: str, own: Collection[str]) -> frozenset[str]:
    """The uploads of that key that journals name; those can only lie in folders above it.

    Raises:
        JournalUnreadable: of one that is not `own` nobody knows what it names.
    """
    found: set[str] = set()
    for folder in folders_above(key):
        keys = (place_of(row.key) for row in store.list(folder + JOURNAL_FOLDER))
        for transfer_key in sorted({place[1] for place in keys if place is not None}):
            for named in JournalFolder(store, folder, transfer_key).uploads():
                if named.wrong and named.key not in own:
                    raise JournalUnreadable(named.wrong)
                rows = (row for row in named.rows if row.key == key)
                found.update(row.upload_id for row in rows if row.upload_id is not None)
    return frozenset(found)


def _dated(journal: Journal, written_unix_s: float) -> Journal:
    """With the time at which its lead was seen to intend what it has no id of."""
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
    """All but the newest of that rule without the rows that say what has ended."""
    of_rule = [row for row in found if row.journal.rule == rule]
    return [
        row
        if of_rule and row is of_rule[-1]
        else replace(row, journal=replace(row.journal, done=(), begun=(), failed=()))
        for row in found
    ]


def _ensure_own(there: Journal, ours: Journal) -> None:
    """See that what is there was written by the same lead, earlier.

    Raises:
        StaleEpoch: it was not, so this lead has been succeeded.
    """
    if there.is_sealed:
        raise StaleEpoch(f"epoch {ours.epoch} is over: its journal is sealed by a newer lead")
    if there.writer != ours.writer or there.sequence > ours.sequence:
        raise StaleEpoch(f"another lead writes the journal of epoch {ours.epoch}")
