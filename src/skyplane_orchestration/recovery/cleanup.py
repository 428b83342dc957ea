"""What is cleared away, from here, of a transfer that nobody goes on with."""

from __future__ import annotations

from skyplane_gateway.journal.document import folder_of_destination
from skyplane_gateway.journal.orphans import clear_journals
from skyplane_gateway.retry import RetryPolicy
from skyplane_orchestration.errors import SkyplaneError, StaleEpoch
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.security.credentials import CredentialSources
from skyplane_orchestration.storage.open import open_location


def clear_from_here(
    job: TransferJob, transfer_key: str, epoch: int, credentials: CredentialSources
) -> tuple[str, ...]:
    """Abort the uploads that the transfer's journals name, and remove the journals.

    Once a newer epoch has a journal, all is that one's.

    Returns:
        A warning where something stays.
    """
    place = job.destination
    folder = folder_of_destination(place.key, recursive=job.recursive)
    try:
        with open_location(place, credentials, RetryPolicy()) as store:
            clear_journals(store, folder, transfer_key, epoch)
    except StaleEpoch:
        return ()
    except SkyplaneError as error:
        return (f"not all that the transfer left at its destination is removed: {error}",)
    return ()
