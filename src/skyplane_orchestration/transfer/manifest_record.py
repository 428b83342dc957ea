"""Records what a run has copied and deletes in the manifest of its destination."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, Any

from skyplane_gateway.common.errors import ManifestUnreadable
from skyplane_gateway.manifest.document import Snapshot, read_pointer
from skyplane_orchestration.errors import SkyplaneError, StoreError
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.storage.manifest.elsewhere import manifest_store
from skyplane_orchestration.storage.open import journal_folder, open_location, spec_of
from skyplane_orchestration.timing import timed
from skyplane_orchestration.transfer.client_context import ClientContext

if TYPE_CHECKING:
    from skyplane_orchestration.storage.manifest.signature import ManifestKey


def record_run(
    context: ClientContext,
    job: TransferJob,
    report: Iterable[Mapping[str, Any]],
    deleted: Iterable[str] = (),
) -> tuple[str, ...]:
    """Add a run to the manifest, if the job keeps one; a warning where that fails.

    Args:
        report: the lead's rows of its objects.
        deleted: keys that it deletes next, under any conflict rule: no row outlives its object.
    """
    if not job.keeps_manifest and (report != () or job.manifest_at == "never"):
        return ()
    try:
        with timed("manifest of the destination"):
            _record(context, job, report, deleted)
    except SkyplaneError as error:
        return (f"the run is not in the manifest of the destination: {error.message}",)
    return ()


def signing_key(context: ClientContext) -> ManifestKey | None:
    """What signs the manifest of a run. Raises ConfigurationInvalid: it cannot be used."""
    if context.manifest_key is None:
        return None
    from skyplane_orchestration.storage.manifest.signature import ManifestKey

    return ManifestKey.for_signing(context.manifest_key)


def _record(
    context: ClientContext,
    job: TransferJob,
    report: Iterable[Mapping[str, Any]],
    deleted: Iterable[str],
) -> None:
    from skyplane_orchestration.storage.manifest.commit import ManifestCommit
    from skyplane_orchestration.storage.manifest.rows import (
        copied_rows,
        deleted_rows,
        table_of,
        without_deleted,
    )

    now_s, folder = context.clock.wall(), journal_folder(job)
    run = f"{context.identity.owner}/{context.identity.run}"
    source = spec_of(job.source).name
    of_all = {"source_store": source, "run": run, "recorded": round(now_s * 1e6)}
    with (
        open_location(job.destination, context.credentials) as store,
        manifest_store(job, store, context.credentials) as (kept_in, at),
    ):
        copied = copied_rows(report, store, folder, **of_all)
        rows = table_of(chain(copied, deleted_rows(deleted, folder, **of_all)))
        gone = rows.num_rows - without_deleted(rows).num_rows
        if not rows.num_rows or (
            gone == rows.num_rows and read_pointer(kept_in, folder, at) is None
        ):
            return
        snapshot = Snapshot(
            id=secrets.token_hex(8),
            commit=0,
            run=run,
            source=job.source.url,
            destination=job.destination.url,
            committed_unix_s=now_s,
            copied=rows.num_rows - gone,
            deleted=gone,
            segments=(),
        )
        commit = ManifestCommit(kept_in, folder, snapshot, signing_key(context), at)
        try:
            commit.run(rows)
        except StoreError as error:
            if gone and not isinstance(error, ManifestUnreadable):
                commit.forget()  # Its rows would outlive their objects.
            raise
