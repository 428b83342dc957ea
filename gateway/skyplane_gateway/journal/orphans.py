"""Finds what transfers left at a destination, and what no journal names.

A failed transfer leaves its journals and the uploads that they name, so that a resume can
continue it. The sweep removes both when they are old. It also finds orphans: open uploads, and
unfinished files of a file store, that no journal names.

Synchronous; raises StoreError as the store says. Ages are times of the store, compared with a
time that the caller gives.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from skyplane_gateway.common.objects import UploadInfo
from skyplane_gateway.journal.cleanup import CleanupResult, remove_journals
from skyplane_gateway.journal.document import epoch_of, folders_above, place_of
from skyplane_gateway.journal.journal_folder import (
    JournalFolder,
    NamedUploads,
    folders_in,
    named_uploads,
)
from skyplane_gateway.selection.selection_rule import JOURNAL_FOLDER
from skyplane_gateway.stores.base import ObjectStore
from skyplane_gateway.stores.local.uploads import OrphanFile as OrphanFile, find_orphan_files


@dataclass(slots=True)
class LeftTransfer:
    """A transfer that has journals at the destination.

    Attributes:
        folder: where it writes to; empty, or ending in a slash.
        epoch: its newest.
        written_unix_s: when its newest journal was written, by the store's clock.
        etags: key -> etag of its journals, as listed.
    """

    folder: str
    transfer_key: str
    epoch: int = 0
    written_unix_s: float = 0.0
    etags: dict[str, str] = field(default_factory=dict)

    def journals(self, store: ObjectStore) -> JournalFolder:
        return JournalFolder(store, self.folder, self.transfer_key)

    def named(self, store: ObjectStore) -> NamedUploads:
        """The uploads that its journals name."""
        return named_uploads([self.journals(store)])

    def is_as_listed(self, store: ObjectStore) -> bool:
        """Whether nobody has written its journals since they were listed."""
        now = {row.key: row.etag for row in self.journals(store).rows()}
        return now == self.etags

    def remove(self, store: ObjectStore) -> CleanupResult:
        """Abort the uploads that its journals name, then delete the journals.

        Journals that are newer than the listed ones stay, with their uploads.
        """
        return remove_journals(self.journals(store), self.epoch)


def find_transfers(
    store: ObjectStore, folder: str, *, recursive: bool = True
) -> list[LeftTransfer]:
    """The transfers that have journals in a folder, ordered by folder and key.

    Journals lie in the folder that each transfer writes to. Stores cannot list a name at any
    depth, so a recursive search lists every object below the folder (one request per 1000).
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
    """Open uploads below a folder that were begun before a time."""
    rows = (row for row in store.list_uploads(folder) if row.initiated < before_unix_s)
    return sorted(rows, key=lambda row: (row.key, row.upload_id))


def old_orphan_files(store: ObjectStore, folder: str, before_unix_s: float) -> list[OrphanFile]:
    """Unfinished files of a file store that belong to no upload; other stores have none."""
    if store.spec.kind != "file":
        return []
    rows = find_orphan_files(store.spec.bucket, folder)
    return sorted(row for row in rows if row.written_unix_s < before_unix_s)


def is_unfinished_journal(file: OrphanFile) -> bool:
    """Whether an unfinished file was written as a journal: then it is ours."""
    return f"/{JOURNAL_FOLDER}" in str(file.path)


class JournalIndex:
    """Tells whether a journal names an upload.

    Only journals in the folders above an upload's key can name it. Each folder is read once.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._folders: dict[str, NamedUploads] = {}

    def names(self, upload: UploadInfo) -> bool:
        """Whether a journal names the upload, or intends an upload of that key."""
        wanted = {(upload.key, upload.upload_id), (upload.key, None)}
        return any(
            not wanted.isdisjoint(self._named_in(folder).uploads)
            for folder in folders_above(upload.key)
        )

    def unreadable(self, upload: UploadInfo) -> str | None:
        """The key of a journal that may name it and cannot be read; None where all can."""
        found = (self._named_in(folder).unreadable for folder in folders_above(upload.key))
        return next((key for keys in found for key in keys), None)

    def _named_in(self, folder: str) -> NamedUploads:
        if folder not in self._folders:
            self._folders[folder] = named_uploads(folders_in(self._store, folder))
        return self._folders[folder]
