"""The end of a transfer: uploads, manifest, the deletes of a move, result, resume handle."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Final

from skyplane_orchestration.errors import (
    AlreadyExists,
    BudgetReached,
    ConfigurationInvalid,
    InternalError,
    MetadataNotCarried,
    SkyplaneError,
    TooManyDeletes,
    TransferFailed,
)
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.resume_handle import MAX_TEXT_BYTES, RESUME_TTL_S, ResumeHandle
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.recovery.destination_cleanup import abort_uploads, remove_journals
from skyplane_orchestration.storage.open import journal_folder
from skyplane_orchestration.transfer.manifest_record import record_run
from skyplane_orchestration.transfer.move import Removal, remove_sources
from skyplane_orchestration.transfer.path_conflicts import with_put_back
from skyplane_orchestration.transfer.results import result_of
from skyplane_orchestration.transfer.row_spool import RowSpool
from skyplane_orchestration.transfer.transfer_monitor import Monitor

log = logging.getLogger(__name__)

#: Code of a move that copied everything and could not delete every source.
SOURCES_LEFT = "sources-left"

_TRACEBACK: Final = "Traceback (most recent call last)"

#: Codes that an object fails with again as long as objects and job are the same. An invalid key
#: is not among them: a folder of that name may be in the way, which the user can remove.
_FAILS_AGAIN: Final = frozenset((AlreadyExists.code, MetadataNotCarried.code))


def finalize(monitor: Monitor, status: TransferStatus, manifest: str | None) -> TransferResult:
    """The result of an ended transfer, with its resume handle if it has one; its gateways released.

    Deletes the journals of a success, and those that nothing can go on by: of a failure that
    cannot be resumed, unless its run may be repeated under its key and it has copied something.

    Raises StoreError if only the manifest cannot be written.
    """
    try:
        result = _result(monitor, status, manifest)
    except BaseException:
        monitor.control.release(monitor.submitted)
        raise
    _log_tracebacks(result, monitor)
    if result.succeeded:
        remains = _release_success(monitor)
        result = replace(result, warnings=(*result.warnings, *remains))
        return monitor.budget.with_totals(result)
    has_use = result.state != "failed" or _can_be_resumed(result, monitor, status)
    may_be_repeated = monitor.context.identity.may_be_repeated
    keeps_journals = has_use or (may_be_repeated and status.copied > 0)
    folder = None if keeps_journals else journal_folder(monitor.request.job)
    monitor.control.release(monitor.submitted, journals_in=folder)
    result = monitor.budget.with_totals(result)
    if result.state == "failed" and has_use:
        return _with_resume_handle(result, monitor)
    return result


def require_success(result: TransferResult, status: TransferStatus) -> TransferResult:
    """Raises TransferFailed with the result unless it is a success."""
    if result.succeeded:
        return result
    raise TransferFailed(
        result.error or f"the transfer was {result.state}",
        result=result,
        is_permanent=_is_permanent(result, status),
    )


def _result(monitor: Monitor, status: TransferStatus, manifest: str | None) -> TransferResult:
    job = monitor.request.job
    warnings = list(monitor.warnings)
    try:
        if monitor.is_abandoned:
            # A resume needs its uploads. The orchestrator that fetched the success of an abandoned
            # move has deleted its sources.
            return result_of(job, monitor.fleet, status, warnings=tuple(warnings))
        warnings += abort_uploads(job, status.open_uploads, monitor.request.credentials)
        result = result_of(job, monitor.fleet, status, warnings=tuple(warnings))
        result = _recorded(monitor, result, manifest)
        return _delete_sources(monitor, result) if job.move and result.succeeded else result
    except SkyplaneError as error:
        if status.state == "succeeded":
            raise
        # The failure of the transfer itself matters more.
        warnings.append(f"after the transfer: {error.message}")
        return result_of(job, monitor.fleet, status, warnings=tuple(warnings))


def _recorded(monitor: Monitor, result: TransferResult, manifest: str | None) -> TransferResult:
    """Record the objects of the transfer, and of its deletes, which come after a success."""
    job, credentials = monitor.request.job, monitor.request.credentials
    with closing(RowSpool()) as rows:
        if manifest is not None or job.keeps_manifest:
            # Now: the lead's lease may end while deletes run.
            rows.add(monitor.control.report_rows(monitor.submitted))
        context, troubles = monitor.context, record_run(monitor.context, job, rows.rows())
        result = replace(result, warnings=(*result.warnings, *troubles))
        if job.delete:
            if result.succeeded:
                from skyplane_orchestration.transfer.deletes import delete_extra

                note = partial(record_run, context, job, ())
                result = delete_extra(
                    job, credentials, result, context.rng, lambda row: rows.add([row]), note
                )
            result = with_put_back(job, result)
        if manifest is None:
            return result
        from skyplane_orchestration.storage.object_manifest import write_manifest

        uri = write_manifest(manifest, job, rows.rows(), credentials)
    return replace(result, manifest_uri=uri)


def _delete_sources(monitor: Monitor, result: TransferResult) -> TransferResult:
    """Delete what was copied at the source; the result with what became of that."""
    removal = Removal()
    trouble = ""
    try:
        rows = monitor.control.report_rows(monitor.submitted)
        request, rng = monitor.request, monitor.context.rng
        remove_sources(request.job, rows, request.credentials, removal, rng)
    except ConfigurationInvalid as error:
        return replace(result, state="failed", error=error.message, error_code=error.code)
    except SkyplaneError as error:
        trouble = error.message
    if removal.failed:
        trouble = trouble or removal.reasons[0]
    warnings = (*result.warnings, *removal.reasons)
    result = replace(result, moved=removal.removed, warnings=warnings)
    if not trouble:
        return result
    text = (
        f"all copies are at the destination, but only {removal.removed} of {result.copied} "
        f"sources could be deleted: {trouble}"
    )
    return replace(result, state="failed", error=text, error_code=SOURCES_LEFT)


def _log_tracebacks(result: TransferResult, monitor: Monitor) -> None:
    """Log the cause of internal errors: only the gateways' logs have it, until teardown."""
    codes = {result.error_code, *(failure.code for failure in result.failures)}
    if InternalError.code not in codes:
        return
    for node, tail in monitor.control.log_tails().items():
        if _TRACEBACK in tail:
            log.error("end of the log of %s:\n%s", node, tail)


def _release_success(monitor: Monitor) -> tuple[str, ...]:
    """Release the gateways and delete the journals; warnings for what stays."""
    request = monitor.request
    if monitor.control.release(monitor.submitted, journals_in=journal_folder(request.job)):
        return ()
    # No sink could delete them.
    return remove_journals(
        request.job, request.transfer_key, monitor.submitted.epoch, request.credentials
    )


def _with_resume_handle(result: TransferResult, monitor: Monitor) -> TransferResult:
    text = ResumeHandle(
        job=monitor.request.job,
        plan=monitor.fleet.plan,
        fleet_key=monitor.fleet.resume_key,
        generation=monitor.fleet.generation,
        deployment=monitor.fleet.deployment,
        transfer_key=monitor.submitted.transfer_key,
        epoch=monitor.submitted.epoch,
        expires_unix_s=monitor.context.clock.wall() + RESUME_TTL_S,
    ).to_text()
    if len(text) > MAX_TEXT_BYTES:
        warning = "the job and its plan are too long for a resume handle; run it again instead"
        return replace(result, warnings=(*result.warnings, warning))
    return replace(result, resume_handle=text)


def _can_be_resumed(result: TransferResult, monitor: Monitor, status: TransferStatus) -> bool:
    """Whether a resume may end differently, and saves work."""
    if (status.error or {}).get("code") == BudgetReached.code:
        return True
    if _is_permanent(result, status):
        return False
    # The last status of an abandoned transfer may be old.
    if status.objects == 0 and monitor.submitted.epoch == 1 and not monitor.is_abandoned:
        return False
    failures = {failure["code"] for failure in status.failures}
    is_complete = status.failed == len(status.failures) > 0
    return not (is_complete and failures <= _FAILS_AGAIN)


def _is_permanent(result: TransferResult, status: TransferStatus) -> bool:
    """Whether a retry cannot help, neither the transfer nor what followed it."""
    is_refused = result.error_code in (ConfigurationInvalid.code, TooManyDeletes.code)
    return is_refused or bool((status.error or {}).get("is_permanent", False))
