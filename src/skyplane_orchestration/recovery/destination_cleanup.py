"""Finds and removes what a transfer left at its destination, without its gateways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from skyplane_gateway.common.retry import RetryPolicy
from skyplane_gateway.journal.cleanup import clear_journals
from skyplane_gateway.journal.document import epoch_of, journals_prefix, place_of
from skyplane_gateway.journal.journal_folder import JournalFolder
from skyplane_gateway.stores.base import ObjectStore
from skyplane_orchestration.errors import SkyplaneError, StaleEpoch
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.open import journal_folder, open_location


def newest_journal_epoch(destination: ObjectStore, folder: str, transfer_key: str) -> int:
    """The newest epoch that has a journal in a folder of the destination; 0 for none.

    A fleet that was built anew remembers no epochs. An epoch with a journal is over.
    """
    rows = destination.list(journals_prefix(folder, transfer_key))
    own = (row.key for row in rows if place_of(row.key) == (folder, transfer_key))
    return max((epoch_of(key) or 0 for key in own), default=0)


def remove_journals(
    job: TransferJob, transfer_key: str, epoch: int, credentials: CredentialSources
) -> tuple[str, ...]:
    """Abort the uploads that the transfer's journals name, then delete the journals.

    Leaves everything as it is once a newer epoch has a journal. Returns a warning for a failure.
    """
    try:
        with open_location(job.destination, credentials, RetryPolicy()) as store:
            clear_journals(JournalFolder(store, journal_folder(job), transfer_key), epoch)
    except StaleEpoch:
        return ()
    except SkyplaneError as error:
        return (f"what the transfer left at its destination could not all be removed: {error}",)
    return ()


def abort_uploads(
    job: TransferJob, uploads: Sequence[Mapping[str, str]], credentials: CredentialSources
) -> tuple[str, ...]:
    """Abort uploads that no sink could abort; a warning for each upload that stays open."""
    if not uploads:
        return ()
    warnings = []
    try:
        with open_location(job.destination, credentials) as store:
            for upload in uploads:
                try:
                    store.abort_upload(upload["key"], upload["upload_id"])
                except SkyplaneError as error:
                    warnings.append(_stays_open(upload, error))
    except SkyplaneError as error:
        return tuple(_stays_open(upload, error) for upload in uploads)
    return tuple(warnings)


def _stays_open(upload: Mapping[str, str], error: SkyplaneError) -> str:
    return (
        f"the upload {upload['upload_id']} of {upload['key']!r} stays open: {error}; a sweep ends "
        "it; if the object counts as copied, it is at the destination all the same"
    )
