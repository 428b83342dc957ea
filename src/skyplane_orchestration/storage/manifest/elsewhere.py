"""Opens the manifest of a job's destination, which may lie elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from skyplane_gateway.config import HandedManifest
from skyplane_gateway.manifest.document import (
    INDEX_SUFFIX,
    POINTER,
    Elsewhere,
    Pointer,
    place_of,
    read_pointer,
)
from skyplane_gateway.manifest.reader import ManifestReader
from skyplane_gateway.selection.key_mapping import folder_of
from skyplane_gateway.stores.base import ObjectStore, read_object
from skyplane_orchestration.errors import StoreError
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.open import (
    beside_location,
    journal_folder,
    open_location,
)

ReadPointer = Callable[[], tuple[Pointer, str] | None]

#: A control call carries no more; base64 takes a third of it.
_MOST_BYTES: Final = 9 << 20


@contextmanager
def open_manifest(
    job: TransferJob,
    destination: ObjectStore,
    credentials: CredentialSources,
    read: ReadPointer | None = None,
) -> Iterator[ManifestReader]:
    """Reads the manifest beside listings of the destination, whose store is open."""
    with manifest_store(job, destination, credentials) as (store, at):
        yield ManifestReader(store, journal_folder(job), at, read)


@contextmanager
def manifest_store(
    job: TransferJob, destination: ObjectStore, credentials: CredentialSources
) -> Iterator[tuple[ObjectStore, Elsewhere | None]]:
    """The store that the manifest lies in, and where if that is elsewhere."""
    if not job.keeps_manifest_elsewhere:
        yield destination, None
        return
    place = beside_location(job.destination, job.manifest_at)
    folder = place_of(destination, journal_folder(job))
    with open_location(place, credentials) as store:
        yield store, Elsewhere(folder_of(place.key), folder, destination.spec.kind)


def handed_manifest(job: TransferJob, credentials: CredentialSources) -> HandedManifest | None:
    """What the lead needs of a manifest that lies elsewhere; None for a job without one."""
    if not (job.reads_manifest and job.keeps_manifest_elsewhere):
        return None
    kind, place, bodies, left = job.destination.kind, "", dict[str, str](), _MOST_BYTES
    try:
        with (
            open_location(job.destination, credentials) as destination,
            manifest_store(job, destination, credentials) as (store, at),
        ):
            place = place_of(destination, journal_folder(job))
            found = read_pointer(store, "", at)
            prefix = "" if at is None else at.prefix
            names = [] if found is None else [one.name + INDEX_SUFFIX for one in found[0].newest]
            for name in (*names, POINTER) if found is not None else ():
                _, body = read_object(store, prefix + name, max_bytes=left)
                left -= len(body)
                bodies[name] = base64.b64encode(body).decode()
    except StoreError as error:
        return HandedManifest(place, kind, {}, error.message)
    return HandedManifest(place, kind, bodies)
