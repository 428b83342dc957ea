"""Turns the last status of a transfer into its result."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final, TypeVar

from skyplane_gateway.config import TransferState
from skyplane_orchestration.errors import ObjectsFailed
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.result import (
    MAX_LARGEST_BYTES,
    MAX_LISTED_BYTES,
    MAX_LISTED_FAILURES,
    CopiedObject,
    FailedObject,
    TransferResult,
    TryOutcome,
)
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.storage.open import rule_of
from skyplane_orchestration.storage.pattern_notes import unmatched_warnings
from skyplane_orchestration.transfer.actual_cost import cost_of, edge_outcomes, rate_gbps

#: Longest single texts in a result, in bytes of JSON.
_REASON_BYTES: Final = 400
_ERROR_BYTES: Final = 2000
_LISTED_WARNINGS: Final = 10

Listed = TypeVar("Listed", FailedObject, CopiedObject)


def result_of(
    job: TransferJob,
    fleet: Fleet,
    status: TransferStatus,
    *,
    warnings: tuple[str, ...] = (),
) -> TransferResult:
    """The result of an ended transfer, with the figures of its last epoch.

    `Budget.with_totals` adds those of earlier epochs. Raises InternalError where the counts do
    not add up.
    """
    status.require_counted()
    error = status.error or {}
    size = status.copied_bytes - status.copied_earlier_bytes
    own = TryOutcome(
        copied=status.copied - status.copied_earlier,
        copied_bytes=size,
        seconds=status.seconds,
        goodput_gbps=rate_gbps(size, status.seconds),
        cost=status.cost or cost_of(fleet, status, is_first=True),
    )
    return TransferResult(
        transfer_key=status.transfer_key,
        epoch=status.epoch,
        state=_state_of(job, status),
        source=job.source.url,
        destination=job.destination.url,
        objects=status.objects,
        copied=status.copied,
        skipped=status.skipped,
        failed=status.failed,
        copied_bytes=status.copied_bytes,
        copied_earlier=status.copied_earlier,
        unfinished=status.unfinished,
        seconds=own.seconds,
        goodput_gbps=own.goodput_gbps,
        planned_gbps=fleet.plan.throughput_gbps,
        edges=edge_outcomes(fleet, status.delivered_bytes, own.seconds),
        cost=own.cost,
        this_try=own,
        failures=listed_failures(job, status.failures),
        error=cut(str(error.get("message", "")), _ERROR_BYTES),
        error_code=str(error.get("code", "")),
        warnings=_listed_warnings(
            (
                *(one.warning for one in fleet.plan.refused),
                *_status_warnings(job, status),
                *warnings,
            )
        ),
        reserved=status.reserved,
        metadata_not_carried=status.not_carried,
        not_carried_by_name=status.not_carried_by_name,
        gateways=fleet.provisioner,
        server_side=status.server_side,
        server_side_bytes=status.server_side_bytes,
        encrypted=fleet.encrypts(job.encrypt) and status.copied > status.server_side,
        estimated_usd=fleet.plan.cost.total_usd,
        source_digest=status.source_digest,
        largest=_largest(job, status.largest),
        unchecked=status.unchecked,
        measured=fleet.probes,
    )


def _state_of(job: TransferJob, status: TransferStatus) -> TransferState:
    code = (status.error or {}).get("code")
    if status.state == "failed" and job.allow_failed and code == ObjectsFailed.code:
        return "succeeded"
    return status.state


def _status_warnings(job: TransferJob, status: TransferStatus) -> Iterator[str]:
    if status.not_carried:
        names = ", ".join(f"{name} ({count})" for name, count in status.not_carried_by_name.items())
        lost = f"{counted(status.not_carried, 'object')} lost some metadata in the copy: {names}"
        instead = "with strict_metadata (--strict-metadata) they fail instead"
        instead = "files do not keep it" if job.destination.kind == "file" else instead
        yield f"{lost}; a manifest names each object; {instead}"
    yield from archived_warnings(status.archived)
    # The listings for the deletes show both ends.
    patterns = () if job.delete else status.unmatched_patterns
    yield from unmatched_warnings(patterns, "at the source", rule_of(job))
    yield from manifest_warnings(job, status.manifest_trouble, status.trusted_unix_s, status.edited)
    if status.pinned_by_time:
        yield (
            f"copied without an ETag at the source: {counted(status.pinned_by_time, 'object')};"
            " their versions were compared by time and size, so a change within the same second"
            " that keeps the size would not be noticed"
        )
    if status.server_side_refusal:
        yield (
            "the store did not copy all objects itself, so the others passed through the gateways: "
            f'{status.server_side_refusal}; server_side_copy="never" (--server-side-copy never) '
            "does not ask it"
        )


def manifest_warnings(
    job: TransferJob, trouble: str, trusted_unix_s: float, edited: int
) -> Iterator[str]:
    """What a run says of the manifest of its destination."""
    if trusted_unix_s:
        when = datetime.fromtimestamp(trusted_unix_s, UTC).isoformat(" ", "seconds")
        yield f"only the source was listed: the manifest of the destination of {when} was trusted"
    if trouble:
        yield f"objects were compared without the manifest of the destination: {trouble}"
    if edited:
        kept = "kept" if job.on_edited_copy == "keep" else "replaced"
        yield f"changed at the destination since the copy, and {kept}: {counted(edited, 'object')}"


def listed_failures(
    job: TransferJob, rows: Iterable[Mapping[str, Any]]
) -> tuple[FailedObject, ...]:
    """The first failures, as many as a result may list, with long reasons cut."""
    failures = (
        FailedObject(
            source=job.source.url_of(row["source"]),
            destination=job.destination.url_of(row["destination"]),
            code=row["code"],
            reason=cut(row["reason"], _REASON_BYTES),
            attempts=row["attempts"],
        )
        for row in islice(rows, MAX_LISTED_FAILURES)
    )
    return tuple(_fitting(failures, MAX_LISTED_BYTES))


def _largest(job: TransferJob, rows: Iterable[Mapping[str, Any]]) -> tuple[CopiedObject, ...]:
    copied = (
        CopiedObject(
            source=job.source.url_of(row["source"]),
            destination=job.destination.url_of(row["destination"]),
            size_bytes=row["bytes"],
        )
        for row in rows
    )
    return tuple(_fitting(copied, MAX_LARGEST_BYTES))


def _fitting(found: Iterable[Listed], most_bytes: int) -> Iterator[Listed]:
    """The first ones, as many as fit into so many bytes of JSON."""
    for one in found:
        most_bytes -= len(json.dumps(asdict(one)))
        if most_bytes < 0:
            return
        yield one


def archived_warnings(count: int) -> tuple[str, ...]:
    """A warning about archived objects that the job's rule skips, if there are any."""
    if not count:
        return ()
    return (
        f"not copied, because the source has archived them: {counted(count, 'object')}; a manifest "
        "names each object; restore them, then copy again",
    )


def _listed_warnings(warnings: tuple[str, ...]) -> tuple[str, ...]:
    listed = tuple(cut(text, _REASON_BYTES) for text in warnings[:_LISTED_WARNINGS])
    more = len(warnings) - len(listed)
    return (*listed, f"and {more} more warnings like these") if more else listed


def cut(text: str, max_bytes: int) -> str:
    """The text, cut to this many bytes of JSON."""
    if len(json.dumps(text)) <= max_bytes:
        return text
    # One character takes at most twelve bytes: an escaped surrogate pair.
    front = text[: max(0, max_bytes - len('"..."')) // 12]
    for end in range(len(front), len(text)):
        if len(json.dumps(text[: end + 1])) > max_bytes - len("..."):
            break
        front = text[: end + 1]
    return front + "..."
