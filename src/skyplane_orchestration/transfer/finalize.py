"""What is done once a transfer has ended: uploads, manifest, the deletes of a move, result."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Final

from skyplane_orchestration.errors import (
    AlreadyExists,
    BudgetReached,
    ConfigurationInvalid,
    InternalError,
    MetadataNotCarried,
    SkyplaneError,
    TransferFailed,
)
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.recovery.cleanup import clear_from_here
from skyplane_orchestration.security.credentials import CredentialSources
from skyplane_orchestration.transfer.monitor import Watch, Whereabouts
from skyplane_orchestration.transfer.results import result_of

log = logging.getLogger(__name__)

#: Code of a move whose copies are all there, and some of whose sources are as well.
SOURCES_LEFT = "sources-left"

_TRACEBACK: Final = "Traceback (most recent call last)"

#: What an object fails with as long as the objects and the job are the same. A key that cannot
#: be written is none of that: a folder of its name may be in the way, and can be removed.
_FAILS_AGAIN: Final = frozenset((AlreadyExists.code, MetadataNotCarried.code))


def conclude(
    job: TransferJob,
    watch: Watch,
    status: TransferStatus,
    credentials: CredentialSources,
    *,
    manifest: str | None,
) -> TransferResult:
    """The result of a transfer that has ended, well or not; the ends have let go of it, and
    of a success its journals are gone.

    Raises:
        StoreError: it ended well, but the manifest cannot be written.
    """
    try:
        result = _result(job, watch, status, credentials, manifest)
    except BaseException:
        watch.steering.release(watch.submitted)
        raise
    _log_unforeseen(result, watch)
    if not result.succeeded:
        watch.steering.release(watch.submitted)
        return result
    left = watch.steering.release_success(watch.submitted, job, credentials)
    return replace(result, warnings=(*result.warnings, *left))


def _result(
    job: TransferJob,
    watch: Watch,
    status: TransferStatus,
    credentials: CredentialSources,
    manifest: str | None,
) -> TransferResult:
    warnings = list(watch.warnings)
    uri = ""
    try:
        if not watch.is_abandoned:
            # What nobody leads is kept for whoever goes on with it.
            warnings += watch.steering.abort_left_uploads(job, status, credentials)
            uri = _write_manifest(job, watch, credentials, manifest)
        result = result_of(job, watch.fleet, status, manifest_uri=uri, warnings=tuple(warnings))
        # Whoever has heard of a success before has deleted the sources before that.
        is_mover = job.move and not watch.is_abandoned
        return _moved(job, watch, result, credentials) if is_mover else result
    except SkyplaneError as error:
        if status.state == "succeeded":
            raise
        # The transfer's own failure is what the caller has to hear of.
        warnings.append(f"after the transfer: {error.message}")
        return result_of(job, watch.fleet, status, warnings=tuple(warnings))


def _log_unforeseen(result: TransferResult, watch: Watch) -> None:
    """Of an internal error only the gateways' logs tell, and they go with the gateways."""
    codes = {result.error_code, *(failure.code for failure in result.failures)}
    if InternalError.code not in codes:
        return
    for node, tail in watch.steering.log_tails().items():
        if _TRACEBACK in tail:
            log.error("end of the log of %s:\n%s", node, tail)


def with_handle(
    result: TransferResult,
    job: TransferJob,
    watch: Watch,
    status: TransferStatus,
    now_unix_s: float,
) -> TransferResult:
    """The result with a resume handle, where going on can help."""
    if result.state != "failed" or not _can_be_resumed(result, watch, status):
        return result
    from skyplane_orchestration.model.resume_handle import (
        MAX_TEXT_BYTES,
        RESUME_TTL_S,
        ResumeHandle,
    )

    text = ResumeHandle(
        job=job,
        plan=watch.fleet.plan,
        fleet_key=watch.fleet.key,
        generation=watch.fleet.generation,
        deployment=watch.fleet.deployment,
        transfer_key=watch.submitted.transfer_key,
        epoch=watch.submitted.epoch,
        expires_unix_s=now_unix_s + RESUME_TTL_S,
    ).to_text()
    if len(text) > MAX_TEXT_BYTES:
        warning = "the job and its plan are too long for a resume handle; run it again instead"
        return replace(result, warnings=(*result.warnings, warning))
    return replace(result, resume_handle=text)


def _can_be_resumed(result: TransferResult, watch: Watch, status: TransferStatus) -> bool:
    """Whether a resume comes to another end than this one, and spares what was done."""
    if (status.error or {}).get("code") == BudgetReached.code:
        return True
    if _is_permanent(result, status):
        return False
    # Of what nobody leads, the last that was heard may be old.
    if status.objects == 0 and watch.submitted.epoch == 1 and not watch.is_abandoned:
        return False
    failures = {failure["code"] for failure in status.failures}
    is_complete = status.failed == len(status.failures) > 0
    return not (is_complete and failures <= _FAILS_AGAIN)


def clear_interrupted(job: TransferJob, where: Whereabouts, credentials: CredentialSources) -> None:
    """Nobody goes on with a transfer that was told to end, and its gateways have ended: remove
    what those of them have left that could not be told so any more.

    Of one that had ended before, only its result is missing: the journal tells the next run.
    """
    if where.submitted is None or where.has_ended:
        return
    key, epoch = where.submitted.transfer_key, where.submitted.epoch
    for warning in clear_from_here(job, key, epoch, credentials):
        log.warning("%s", warning)


def require_success(result: TransferResult, status: TransferStatus) -> TransferResult:
    """Raises TransferFailed with the result unless it is a success."""
    if result.succeeded:
        return result
    raise TransferFailed(
        result.error or f"the transfer was {result.state}",
        result=result,
        is_permanent=_is_permanent(result, status),
    )


def _is_permanent(result: TransferResult, status: TransferStatus) -> bool:
    """Whether a repetition cannot help, be it for the transfer or for what came after it."""
    is_refused = result.error_code == ConfigurationInvalid.code
    return is_refused or bool((status.error or {}).get("is_permanent", False))


def _write_manifest(
    job: TransferJob, watch: Watch, credentials: CredentialSources, manifest: str | None
) -> str:
    if manifest is None:
        return ""
    from skyplane_orchestration.storage.object_manifest import write_manifest

    rows = watch.steering.report_rows(watch.submitted)
    return write_manifest(manifest, job, rows, credentials)


def _moved(
    job: TransferJob, watch: Watch, result: TransferResult, credentials: CredentialSources
) -> TransferResult:
    """The result after the sources were deleted; of a failed transfer none is."""
    if not result.succeeded:
        return result
    from skyplane_orchestration.transfer.move import Removal, remove_sources

    removal = Removal()
    trouble = ""
    try:
        remove_sources(job, watch.steering.report_rows(watch.submitted), credentials, removal)
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
