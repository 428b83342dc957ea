"""The journals of a transfer at its destination, as a sink keeps them for the lead.

One writer at a time: a journal is written on the condition that it is still the one that
its writer wrote last, and not at all once a newer epoch has one. A lead that takes over
seals what it finds, so that a write of the old lead which is still on its way is refused
by the store itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.errors import (
    ConfigurationInvalid,
    NotFound,
    PreconditionFailed,
    SkyplaneError,
    StaleEpoch,
)
from skyplane_gateway.lead.journal import (
    MAX_JOURNAL_BYTES,
    Journal,
    decode_journal,
    encode_journal,
    epoch_of,
    journal_key,
    journals_prefix,
)
from skyplane_gateway.stores.base import IF_ABSENT, ObjectStore, Precondition, read_object

log = logging.getLogger(__name__)

#: Looks at a journal that changes while it is looked at, before that is an error.
_LOOKS: Final = 5


@dataclass(frozen=True, slots=True)
class StoredJournal:
    """A journal as the store holds it."""

    journal: Journal
    etag: str


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

    def write(self, journal: Journal, if_match: str | None) -> str:
        """Store a journal in place of the one that its writer wrote last.

        Idempotent: a repetition after an answer that was lost is taken for what it is.

        Args:
            if_match: the etag of that writer's last one; None when it knows of none.

        Returns:
            The new etag.

        Raises:
            StaleEpoch: a newer epoch has a journal, or another lead of this one.
            StoreError: as the store says.
        """
        newest = max(self._epochs(), default=journal.epoch)
        if newest > journal.epoch:
            raise StaleEpoch(f"epoch {journal.epoch} is over: epoch {newest} has a journal")
        key = journal_key(self._folder, self._transfer_key, journal.epoch)
        body = encode_journal(journal)
        for _ in range(_LOOKS):
            fence = IF_ABSENT if if_match is None else Precondition(if_match=if_match)
            try:
                return self._store.put(key, body, precondition=fence).etag
            except (PreconditionFailed, NotFound):
                there = self._read(key)
            if there is None:
                if_match = None  # Removed meanwhile, or the folder was while we wrote.
                continue
            _ensure_own(there.journal, journal)
            if there.journal.sequence == journal.sequence:
                return there.etag
            if_match = there.etag
        raise PreconditionFailed(f"{key!r} changes all the time", is_permanent=False)

    def read(self, *, seal_before: int | None = None) -> list[StoredJournal]:
        """All journals that this release can read, oldest epoch first.

        Args:
            seal_before: seal those of older epochs than this one: nobody writes them any
                more once this has returned.

        Raises:
            StaleEpoch: with `seal_before`, a newer epoch has a journal.
            StoreError: as the store says.
        """
        found = []
        for epoch in sorted(self._epochs()):
            if seal_before is not None and epoch > seal_before:
                raise StaleEpoch(f"epoch {seal_before} is over: epoch {epoch} has a journal")
            key = journal_key(self._folder, self._transfer_key, epoch)
            is_old = seal_before is not None and epoch < seal_before
            there = self._seal(key) if is_old else self._read(key)
            if there is not None:
                found.append(there)
        return found

    def delete(self, through_epoch: int) -> None:
        """Remove the journals of this and older epochs. Idempotent."""
        for epoch in sorted(self._epochs()):
            if epoch <= through_epoch:
                self._store.delete(journal_key(self._folder, self._transfer_key, epoch))
        if self._store.spec.kind == "file":
            # Folders are objects of their own there; those that hold others stay.
            for depth in range(3):
                parts = self._prefix.rstrip("/").split("/")
                self._store.delete("/".join(parts[: len(parts) - depth]) + "/")

    def abort_uploads(self) -> list[SkyplaneError]:
        """Abort every upload that a journal names, and those of keys it only intended.

        Returns:
            Why some could not be aborted; each of the others has been.
        """
        errors: list[SkyplaneError] = []
        for stored in self.read():
            for row in stored.journal.uploads:
                try:
                    self._abort(row.key, row.upload_id)
                except SkyplaneError as error:
                    log.warning("an upload of %r stays open: %s", row.key, error)
                    errors.append(error)
        return errors

    def _abort(self, key: str, upload_id: str | None) -> None:
        if upload_id is not None:
            self._store.abort_upload(key, upload_id)
            return
        for upload in tuple(self._store.list_uploads(key)):
            if upload.key == key:
                self._store.abort_upload(key, upload.upload_id)

    def _epochs(self) -> Iterator[int]:
        for row in self._store.list(self._prefix):
            epoch = epoch_of(row.key)
            if epoch is not None:
                yield epoch

    def _read(self, key: str) -> StoredJournal | None:
        """The journal of that key; None where there is none that can be read."""
        for _ in range(_LOOKS):
            try:
                info, body = read_object(self._store, key, max_bytes=MAX_JOURNAL_BYTES)
                return StoredJournal(decode_journal(body), info.etag)
            except NotFound:
                return None
            except PreconditionFailed:
                continue  # It changed between the two calls.
            except ConfigurationInvalid as error:
                log.warning("the journal %r is passed over: %s", key, error)
                return None
        raise PreconditionFailed(f"{key!r} changes all the time", is_permanent=False)

    def _seal(self, key: str) -> StoredJournal | None:
        for _ in range(_LOOKS):
            there = self._read(key)
            if there is None or there.journal.is_sealed:
                return there
            journal, fence = there.journal.sealed(), Precondition(if_match=there.etag)
            try:
                info = self._store.put(key, encode_journal(journal), precondition=fence)
                return StoredJournal(journal, info.etag)
            except (PreconditionFailed, NotFound):
                continue  # Its lead wrote once more, or ended.
        raise PreconditionFailed(f"{key!r} changes all the time", is_permanent=False)


def _ensure_own(there: Journal, ours: Journal) -> None:
    """See that what is there was written by the same lead, earlier.

    Raises:
        StaleEpoch: it was not, so this lead has been succeeded.
    """
    if there.is_sealed:
        raise StaleEpoch(f"epoch {ours.epoch} is over: its journal is sealed by a newer lead")
    if there.writer != ours.writer or there.sequence > ours.sequence:
        raise StaleEpoch(f"another lead writes the journal of epoch {ours.epoch}")
