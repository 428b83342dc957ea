"""Commits rows of objects that are at a place, as a run that has copied them does."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from itertools import chain

from skyplane_gateway.manifest.document import Pointer, Snapshot
from skyplane_gateway.selection.key_mapping import folder_of
from skyplane_gateway.stores.readback import object_crc32c
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.location import Location
from skyplane_orchestration.security.store_credentials import CredentialSources
from skyplane_orchestration.storage.manifest.commit import ManifestCommit
from skyplane_orchestration.storage.manifest.elsewhere import manifest_store
from skyplane_orchestration.storage.manifest.rows import copied_rows, deleted_rows, table_of
from skyplane_orchestration.storage.manifest.signature import ManifestKey
from skyplane_orchestration.storage.open import open_location

RUN = "owner/run"


def commit(
    place: Location,
    copied: Sequence[str] = (),
    deleted: Sequence[str] = (),
    *,
    run: str = RUN,
    key: ManifestKey | None = None,
    version: str = "v1",
    manifest_at: str = "auto",
) -> Pointer:
    """Record objects of a place; `version` is that of their sources."""
    folder = folder_of(place.key)
    of_all = {"source_store": "s3://lake/", "run": run, "recorded": 1_700_000_000_000_000}
    snapshot = Snapshot(
        secrets.token_hex(8), 0, run, "s3://lake/", place.url, 1_700_000_000.0, len(copied),
        len(deleted), (),
    )  # fmt: skip
    job, credentials = TransferJob(place, place, manifest_at=manifest_at), CredentialSources()
    with (
        open_location(place, credentials) as store,
        manifest_store(job, store, credentials) as (kept_in, at),
    ):
        report = [
            {
                "state": "copied",
                "attempts": 1,
                "source": name,
                "version": version,
                "destination": folder + name,
                "bytes": store.head(folder + name).size_bytes,
                "source_unix_s": 1_600_000_000.0,
                "destination_etag": store.head(folder + name).etag,
                "crc32c": object_crc32c(store, folder + name)[1],
            }
            for name in copied
        ]
        gone = deleted_rows([folder + name for name in deleted], folder, **of_all)
        rows = table_of(chain(copied_rows(report, store, folder, **of_all), gone))
        return ManifestCommit(kept_in, folder, snapshot, key, at).run(rows)
