"""Removes what old transfers have left at their destinations."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Final

from skyplane_gateway.common.objects import UploadInfo
from skyplane_gateway.journal.document import folder_of_destination
from skyplane_gateway.journal.orphans import (
    JournalIndex,
    LeftTransfer,
    OrphanFile,
    find_transfers,
    is_unfinished_journal,
    old_orphan_files,
    old_uploads,
)
from skyplane_gateway.stores import ahead_s_of
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.errors import SkyplaneError
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.model.resume_handle import RESUME_TTL_S
from skyplane_orchestration.model.sweep_report import (
    NamedUpload,
    Outcome,
    SweptPlace,
    SweptTransfer,
    SweptUpload,
)
from skyplane_orchestration.provision.clocks import name_difference
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.open import open_location
from skyplane_orchestration.units import SECONDS_PER_HOUR

log = logging.getLogger(__name__)

#: Age from which journals are removed: the life of a resume handle, which begins at the failure,
#: and an hour, since a lead may have written its journal half an hour before that.
JOURNAL_KEPT_S: Final = RESUME_TTL_S + SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class SweepRule:
    """What a sweep of destinations removes; the fields are the arguments of `Client.sweep`."""

    now_unix_s: float
    dry_run: bool = False
    orphaned_uploads: bool = False
    recursive: bool = True

    @property
    def before_unix_s(self) -> float:
        """Journals that were last written before this are removed."""
        return self.now_unix_s - JOURNAL_KEPT_S

    @property
    def done(self) -> Outcome:
        return "would be removed" if self.dry_run else "removed"


@contextmanager
def opened_for_sweep(
    places: Sequence[Location], credentials: CredentialSources
) -> Iterator[Callable[[SweepRule], tuple[SweptPlace, ...]]]:
    """Opens the destinations of a sweep, and yields what sweeps them.

    Opening makes no request; raises ConfigurationInvalid. An error at one destination does not
    stop the others.
    """
    with ExitStack() as stack:
        stores = [(one, stack.enter_context(open_location(one, credentials))) for one in places]
        yield lambda rule: tuple(_PlaceSweep(place, store, rule).run() for place, store in stores)


class _PlaceSweep:
    def __init__(self, place: Location, store: ObjectStore, rule: SweepRule) -> None:
        self._place = place
        self._store = store
        self._rule = rule
        self._folder = folder_of_destination(place.key, recursive=True)

    def run(self) -> SweptPlace:
        transfers: list[SweptTransfer] = []
        uploads: list[SweptUpload] = []
        error = ""
        try:
            found = find_transfers(self._store, self._folder, recursive=self._rule.recursive)
            # Ages are times of the store, so its clock tells the time; known since the listing.
            ahead_s = ahead_s_of(self._store)
            if name_difference(self._place.url, ahead_s):
                self._rule = replace(self._rule, now_unix_s=self._rule.now_unix_s + ahead_s)
            transfers.extend(self._transfer(each) for each in found)
            index = JournalIndex(self._store)
            left = old_uploads(self._store, self._folder, self._rule.before_unix_s)
            uploads.extend(filter(None, (self._orphan(index, one) for one in left)))
            files = old_orphan_files(self._store, self._folder, self._rule.before_unix_s)
            uploads.extend(map(self._orphan_file, files))
        except SkyplaneError as failure:
            log.warning("%s is not swept to the end: %s", self._place.url, failure)
            error = failure.message
        return SweptPlace(self._place.url, tuple(transfers), tuple(uploads), error)

    def _transfer(self, transfer: LeftTransfer) -> SweptTransfer:
        outcome: Outcome
        uploads: tuple[NamedUpload, ...] = ()
        try:
            named = transfer.named(self._store)
            uploads = tuple(NamedUpload(self._place.url_of(key), id_) for key, id_ in named.uploads)
            outcome, reason = self._judge(transfer, tuple(named.unreadable.values()))
        except SkyplaneError as error:
            outcome, reason = "failed", error.message
        return SweptTransfer(
            folder=self._place.url_of(transfer.folder),
            transfer_key=transfer.transfer_key,
            epoch=transfer.epoch,
            age_s=self._rule.now_unix_s - transfer.written_unix_s,
            outcome=outcome,
            reason=reason,
            uploads=uploads,
        )

    def _judge(self, transfer: LeftTransfer, unreadable: tuple[str, ...]) -> tuple[Outcome, str]:
        """The outcome for a transfer's journals, and why if they stay. Raises StoreError."""
        if transfer.written_unix_s >= self._rule.before_unix_s:
            return "kept", "; ".join(("within its time", *unreadable))
        if not transfer.is_as_listed(self._store):
            return "kept", "a transfer writes it"
        if self._rule.dry_run:
            lost, stays = "; ".join(unreadable), "would stay"
        else:
            remains = transfer.remove(self._store)
            if remains.still_open:
                return "failed", remains.reason
            lost = remains.reason
            stays = "stays: sweep with the release that wrote it, or delete it by hand"
        if lost:
            return ("failed", f"{lost}; the uploads that it names are not known, so it {stays}")
        return self._rule.done, ""

    # -- uploads and files that no journal names

    def _orphan(self, index: JournalIndex, upload: UploadInfo) -> SweptUpload | None:
        """None if a journal names it."""
        outcome: Outcome
        try:
            if index.names(upload):
                return None
            unread = index.unreadable(upload)
            if unread is None:
                outcome, reason = self._orphan_outcome()
            else:
                outcome = "kept"
                reason = f"{self._place.url_of(unread)} may name it, and cannot be read"
            if outcome == "removed":
                self._store.abort_upload(upload.key, upload.upload_id)
        except SkyplaneError as error:
            outcome, reason = "failed", error.message
        url, age_s = self._place.url_of(upload.key), self._rule.now_unix_s - upload.initiated
        return SweptUpload(url, upload.upload_id, age_s, outcome, reason)

    def _orphan_file(self, file: OrphanFile) -> SweptUpload:
        outcome, reason = (
            (self._rule.done, "") if is_unfinished_journal(file) else self._orphan_outcome()
        )
        if outcome == "removed":
            try:
                file.remove()
            except SkyplaneError as error:
                outcome, reason = "failed", error.message
        age_s = self._rule.now_unix_s - file.written_unix_s
        return SweptUpload(f"file://{file.path}", "", age_s, outcome, reason)

    def _orphan_outcome(self) -> tuple[Outcome, str]:
        """The outcome for an old upload or file of no transfer, and why."""
        if not self._rule.orphaned_uploads:
            return "kept", "no journal names it, and it may be another tool's"
        return self._rule.done, ""
