"""What transfers have left at a destination, and what of it nobody will go on with.

A transfer that failed leaves its journals and the uploads that they name, so that it can
be gone on with. Past their time both are removed. Beside them there are orphans: open
uploads, and unfinished files of a file store, that no journal names.

Synchronous. Ages are judged by the store's own times against a time that the caller gives.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from skyplane_gateway.journal.document import epoch_of, folders_above, place_of
from skyplane_gateway.journal.store import JournalFolder, Remains
from skyplane_gateway.objects import UploadInfo
from skyplane_gateway.selection.rules import JOURNAL_FOLDER
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.local.uploads import Stray, find_strays

log = logging.getLogger(__name__)

__all__ = [
    "LeftTransfer",
    "Named",
    "Namer",
    "Stray",
    "clear_journals",
    "find_transfers",
    "is_of_journal",
    "old_strays",
    "old_uploads",
]


@dataclass(frozen=True, slots=True)
class Named:
    """What journals name, all by one reading of each.

    Attributes:
        uploads: key and id of each, once; None for the id of one that was only intended.
        unreadable: key of a journal -> what is wrong with it: nobody knows what it names.
    """

    uploads: tuple[tuple[str, str | None], ...]
    unreadable: Mapping[str, str]


@dataclass(slots=True)
class LeftTransfer:
    """A transfer that has journals at the destination.

    Attributes:
        folder: what it writes to; empty, or ending in a slash.
        epoch: its newest.
        written_unix_s: when the newest of its journals was written, by the store's clock.
        etags: of its journals by key, as they were listed.
    """

    folder: str
    transfer_key: str
    epoch: int = 0
    written_unix_s: float = 0.0
    etags: dict[str, str] = field(default_factory=dict)

    def journals(self, store: ObjectStore) -> JournalFolder:
        return JournalFolder(store, self.folder, self.transfer_key)

    def named(self, store: ObjectStore) -> Named:
        """What its journals name.

        Raises:
            StoreError: as the store says.
        """
        uploads: dict[tuple[str, str | None], None] = {}
        unreadable: dict[str, str] = {}
        for journal in self.journals(store).uploads():
            uploads.update(dict.fromkeys((row.key, row.upload_id) for row in journal.rows))
            uploads.update(dict.fromkeys((row.key, None) for row in journal.lost))
            if journal.wrong:
                unreadable[journal.key] = journal.wrong
        return Named(tuple(uploads), unreadable)

    def is_as_listed(self, store: ObjectStore) -> bool:
        """Whether nobody has written its journals since they were listed."""
        now = {row.key: row.etag for row in self.journals(store).rows()}
        return now == self.etags

    def remove(self, store: ObjectStore) -> Remains:
        """Abort the uploads that its journals name, then delete the journals.

        Journals of epochs that are newer than what was listed, and their uploads, stay.

        Raises:
            StoreError: as the store says.
        """
        return self.journals(store).remove(self.epoch)


def clear_journals(store: ObjectStore, folder: str, transfer_key: str, epoch: int) -> None:
    """Remove what is left of a transfer that nobody will go on with; see `JournalFolder.clear`.

    Raises:
        StaleEpoch: somebody does, in a newer epoch; nothing was touched.
        StoreError: as the store says.
    """
    JournalFolder(store, folder, transfer_key).clear(epoch)


def find_transfers(
    store: ObjectStore, folder: str, *, recursive: bool = True
) -> list[LeftTransfer]:
    """The transfers that have journals in a folder, ordered by folder and key.

    Journals lie in the folder that each transfer writes to, and no store lists what has a
    certain name at any depth: the recursive look lists every object below the folder (one
    request per 1000) and keeps those of journals alone.

    Raises:
        StoreError: as the store says.
    """
    found: dict[tuple[str, str], LeftTransfer] = {}
    for row in store.list(folder if recursive else folder + JOURNAL_FOLDER):
        place = place_of(row.key)
        if place is None:
            continue
        left = found.setdefault(place, LeftTransfer(*place))
        left.epoch = max(left.epoch, epoch_of(row.key) or 0)
        left.written_unix_s = max(left.written_unix_s, row.last_modified)
        left.etags[row.key] = row.etag
    return [found[place] for place in sorted(found)]


def old_uploads(store: ObjectStore, folder: str, before_unix_s: float) -> list[UploadInfo]:
    """Open uploads below a folder that were begun before a time.

    Raises:
        StoreError: as the store says.
    """
    rows = (row for row in store.list_uploads(folder) if row.initiated < before_unix_s)
    return sorted(rows, key=lambda row: (row.key, row.upload_id))


def old_strays(store: ObjectStore, folder: str, before_unix_s: float) -> list[Stray]:
    """Unfinished files of a file store that belong to no upload; none in other stores.

    Raises:
        StoreError: as the file system says.
    """
    if store.spec.kind != "file":
        return []
    rows = find_strays(store.spec.bucket, folder)
    return sorted(row for row in rows if row.written_unix_s < before_unix_s)


def is_of_journal(stray: Stray) -> bool:
    """Whether an unfinished file was to become a journal: then it is nobody else's."""
    return f"/{JOURNAL_FOLDER}" in str(stray.path)


class Namer:
    """Tells whether a journal names an upload.

    The journal of a transfer that writes to a folder lies in that folder, so only those of
    the folders above an upload's key can name it. Each folder is looked into once.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._seen: dict[str, _Seen] = {}

    def names(self, upload: UploadInfo) -> bool:
        """Whether a journal names the upload, or an upload of that key that it intended.

        Raises:
            StoreError: as the store says.
        """
        wanted = {(upload.key, upload.upload_id), (upload.key, None)}
        return any(wanted & self._look(folder).uploads for folder in folders_above(upload.key))

    def unreadable(self, upload: UploadInfo) -> str | None:
        """The key of a journal that might name it and cannot be read; None where all can.

        Raises:
            StoreError: as the store says.
        """
        found = (self._look(folder).unreadable for folder in folders_above(upload.key))
        return next((key for keys in found for key in keys), None)

    def _look(self, folder: str) -> _Seen:
        known = self._seen.get(folder)
        if known is None:
            left = find_transfers(self._store, folder, recursive=False)
            named = [each.named(self._store) for each in left]
            known = self._seen[folder] = _Seen(
                frozenset(upload for each in named for upload in each.uploads),
                tuple(key for each in named for key in each.unreadable),
            )
        return known


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the journals of one folder name, and the keys of those that cannot be read."""

    uploads: frozenset[tuple[str, str | None]]
    unreadable: tuple[str, ...]
