"""From the lead's status document to the values that callers see."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from typing import Any, Final

from skyplane_gateway.journal.totals import Totals
from skyplane_gateway.schema import reading
from skyplane_gateway.selection.rules import JOURNAL_FOLDER
from skyplane_orchestration.errors import InternalError
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.model.result import (
    MAX_LISTED_BYTES,
    MAX_LISTED_FAILURES,
    CostOutcome,
    EdgeOutcome,
    FailedObject,
    TransferResult,
    TransferState,
    TryOutcome,
)
from skyplane_orchestration.units import bytes_to_gb, gbps_of, usd_per_hour_to_usd_per_s

#: What a single text may take of a result, in bytes of JSON.
_REASON_BYTES: Final = 400
_ERROR_BYTES: Final = 2000
_LISTED_WARNINGS: Final = 10


@dataclass(frozen=True, slots=True)
class TransferStatus:
    """How far a transfer is.

    Attributes:
        objects, size_bytes: found so far; final once `listed`.
        copied, copied_bytes: durable and verified; of these `copied_earlier` and
            `copied_earlier_bytes` by an earlier epoch, or before the transfer was resumed.
        skipped_bytes, failed_bytes: of the objects that are not to be copied, or could not be.
        failures: the failed objects, once the transfer has ended.
        needs_credentials: sides of the lead's own gateway (`source`, `sink`) whose credentials
            have expired, or soon will.
        unfinished: found, and neither copied, skipped nor failed (yet).
        pinned_by_time: those of `copied` whose source has no ETag: their version was told by
            time and size alone.
        error: what the lead says of the whole (`code`, `message`, `is_permanent`).
        delivered_bytes: route number -> payload with a receipt.
        not_carried, not_carried_by_name: see `TransferResult.metadata_not_carried`.
        reserved, first_reserved: see `TransferResult.reserved`, and the first such key.
        earlier: what the epochs before this one have sent, and how long they worked.
    """

    transfer_key: str
    epoch: int
    state: TransferState
    listed: bool
    objects: int
    size_bytes: int
    copied: int
    copied_bytes: int
    skipped: int
    failed: int
    seconds: float
    delivered_bytes: Mapping[int, int]
    error: Mapping[str, Any] | None
    failures: tuple[Mapping[str, Any], ...]
    open_uploads: tuple[Mapping[str, str], ...]
    copied_earlier: int = 0
    copied_earlier_bytes: int = 0
    skipped_bytes: int = 0
    failed_bytes: int = 0
    pinned_by_time: int = 0
    not_carried: int = 0
    not_carried_by_name: Mapping[str, int] = field(default_factory=dict)
    unfinished: int = 0
    reserved: int = 0
    first_reserved: str = ""
    earlier: Totals = field(default_factory=Totals)
    needs_credentials: tuple[str, ...] = ()

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    def require_counted(self) -> None:
        """See that every object that was found is in exactly one of the counts.

        Raises:
            InternalError: it is not, so that nobody takes the result for whole.
        """
        ended = self.copied + self.skipped + self.failed
        if self.unfinished < 0 or self.objects != ended + self.unfinished:
            raise InternalError(
                f"of {self.objects} objects {self.copied} were copied, {self.skipped} skipped, "
                f"{self.failed} failed and {self.unfinished} are unfinished, which does not add "
                "up; please report this"
            )

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TransferStatus:
        """Read the control API's document, ignoring what a newer gateway adds.

        Raises ConfigurationInvalid when it is none, InternalError when it does not add up.
        """
        with reading("the status of a transfer"):
            status = cls(
                transfer_key=document["transfer_key"],
                epoch=document["epoch"],
                state=document["state"],
                listed=document["listed"],
                objects=document["objects"],
                size_bytes=document["bytes"],
                copied=document["copied"],
                copied_bytes=document["copied_bytes"],
                # A gateway of the release before does not know of them.
                copied_earlier=document.get("copied_earlier", 0),
                copied_earlier_bytes=document.get("copied_earlier_bytes", 0),
                skipped_bytes=document.get("skipped_bytes", 0),
                failed_bytes=document.get("failed_bytes", 0),
                pinned_by_time=document.get("pinned_by_time", 0),
                not_carried=document.get("not_carried", 0),
                not_carried_by_name=dict(document.get("not_carried_by_name", {})),
                unfinished=document.get("unfinished", _rest(document)),
                reserved=document.get("reserved", 0),
                first_reserved=document.get("first_reserved", ""),
                earlier=Totals.from_dict(document.get("earlier", {})),
                needs_credentials=tuple(document.get("needs_credentials", ())),
                skipped=document["skipped"],
                failed=document["failed"],
                seconds=document["seconds"],
                delivered_bytes={int(k): int(v) for k, v in document["delivered_bytes"].items()},
                error=document["error"],
                failures=tuple(document["failures"]),
                open_uploads=tuple(document["open_uploads"]),
            )
        status.require_counted()
        return status


def _rest(document: Mapping[str, Any]) -> int:
    """What the status of a gateway of the release before leaves to be reckoned."""
    ended = document["copied"] + document["skipped"] + document["failed"]
    return int(document["objects"]) - int(ended)


def empty_status(transfer_key: str, epoch: int) -> TransferStatus:
    """A running transfer of which nothing was heard yet."""
    return TransferStatus(
        transfer_key=transfer_key,
        epoch=epoch,
        state="running",
        listed=False,
        objects=0,
        size_bytes=0,
        copied=0,
        copied_bytes=0,
        skipped=0,
        failed=0,
        seconds=0.0,
        delivered_bytes={},
        error=None,
        failures=(),
        open_uploads=(),
    )


def result_of(
    job: TransferJob,
    fleet: Fleet,
    status: TransferStatus,
    *,
    manifest_uri: str = "",
    warnings: tuple[str, ...] = (),
) -> TransferResult:
    """The result of a transfer that has ended, as far as its last epoch goes: `Spending` knows
    of the others.

    Raises InternalError where an object is in none of its counts, or in two.
    """
    status.require_counted()
    error = status.error or {}
    seconds = status.seconds
    state = status.state
    if state == "failed" and job.allow_failed and error.get("code") == "objects-failed":
        state = "succeeded"
    edges = edge_outcomes(fleet, status.delivered_bytes, seconds)
    cost = cost_of(fleet, status, fleet.provision_s)
    own_bytes = status.copied_bytes - status.copied_earlier_bytes
    goodput_gbps = rate_gbps(own_bytes, seconds)
    return TransferResult(
        transfer_key=status.transfer_key,
        epoch=status.epoch,
        state=state,
        source=job.source.url,
        destination=job.destination.url,
        objects=status.objects,
        copied=status.copied,
        skipped=status.skipped,
        failed=status.failed,
        copied_bytes=status.copied_bytes,
        copied_earlier=status.copied_earlier,
        unfinished=status.unfinished,
        seconds=seconds,
        goodput_gbps=goodput_gbps,
        planned_gbps=fleet.plan.throughput_gbps,
        edges=edges,
        cost=cost,
        this_try=TryOutcome(
            copied=status.copied - status.copied_earlier,
            copied_bytes=own_bytes,
            seconds=seconds,
            goodput_gbps=goodput_gbps,
            cost=cost,
        ),
        failures=listed_failures(job, status.failures),
        error=cut(str(error.get("message", "")), _ERROR_BYTES),
        error_code=str(error.get("code", "")),
        manifest_uri=manifest_uri,
        warnings=_listed_warnings(
            (
                *_not_carried(status),
                *reserved_warnings(job, status.reserved, status.first_reserved),
                *_warnings_of(status),
                *warnings,
            )
        ),
        reserved=status.reserved,
        metadata_not_carried=status.not_carried,
        not_carried_by_name=status.not_carried_by_name,
        gateways=fleet.provisioner,
    )


def listed_failures(
    job: TransferJob, rows: Iterable[Mapping[str, Any]]
) -> tuple[FailedObject, ...]:
    """As many of the report's failures as a result may list, their reasons cut."""
    listed: list[FailedObject] = []
    room = MAX_LISTED_BYTES
    for row in islice(rows, MAX_LISTED_FAILURES):
        failure = FailedObject(
            source=job.source.url_of(row["source"]),
            destination=job.destination.url_of(row["destination"]),
            code=row["code"],
            reason=cut(row["reason"], _REASON_BYTES),
            attempts=row["attempts"],
        )
        room -= len(json.dumps(asdict(failure)))
        if room < 0:
            break
        listed.append(failure)
    return tuple(listed)


def _warnings_of(status: TransferStatus) -> tuple[str, ...]:
    if not status.pinned_by_time:
        return ()
    return (
        f"copied without an ETag at the source: {counted(status.pinned_by_time, 'object')}; their "
        "versions were compared by time and size, so a change within the same second that keeps "
        "the size would not be noticed",
    )


def reserved_warnings(job: TransferJob, count: int, first: str) -> tuple[str, ...]:
    """A warning that names source keys kept for journals, if there are any (see `Listing`)."""
    if not count:
        return ()
    return (
        f"left out at the source: {counted(count, 'object')}, such as "
        f"{job.source.url_of(first)!r}; keys that contain {JOURNAL_FOLDER} are "
        "reserved for the journals of transfers",
    )


def _not_carried(status: TransferStatus) -> tuple[str, ...]:
    """A warning that names what copies lack, if they lack anything."""
    if not status.not_carried:
        return ()
    names = ", ".join(f"{name} ({count})" for name, count in status.not_carried_by_name.items())
    return (
        f"{counted(status.not_carried, 'object')} lost some metadata in the copy: {names}; a "
        "manifest names each object; with strict_metadata (--strict-metadata) they fail instead",
    )


def _listed_warnings(warnings: tuple[str, ...]) -> tuple[str, ...]:
    listed = tuple(cut(text, _REASON_BYTES) for text in warnings[:_LISTED_WARNINGS])
    more = len(warnings) - len(listed)
    return (*listed, f"and {more} more warnings like these") if more else listed


def cut(text: str, max_bytes: int) -> str:
    """The front of a text that fits into so many bytes of JSON."""
    if len(json.dumps(text)) <= max_bytes:
        return text
    # One character takes at most twelve bytes there: a surrogate pair, escaped.
    front = text[: max(0, max_bytes - len('"..."')) // 12]
    for end in range(len(front), len(text)):
        if len(json.dumps(text[: end + 1])) > max_bytes - len("..."):
            break
        front = text[: end + 1]
    return front + "..."


def edge_outcomes(
    fleet: Fleet, delivered_bytes: Mapping[int, int], seconds: float
) -> tuple[EdgeOutcome, ...]:
    """Planned against achieved per edge, from the payload that each route delivered."""
    sent: dict[tuple[str, str], int] = {}
    for route in fleet.routes:
        regions = [fleet.gateway(node).region for node in route["nodes"]]
        for hop in pairwise(regions):
            sent[hop] = sent.get(hop, 0) + delivered_bytes.get(int(route["number"]), 0)
    return tuple(
        EdgeOutcome(
            src=edge.src,
            dst=edge.dst,
            planned_gbps=edge.flow_gbps,
            achieved_gbps=rate_gbps(size, seconds),
            sent_bytes=size,
        )
        for edge in fleet.plan.edges
        for size in (sent.get((edge.src, edge.dst), 0),)
    )


def rate_gbps(size_bytes: int, seconds: float) -> float:
    return gbps_of(size_bytes, seconds) if seconds > 0 else 0.0


def earlier_cost(fleet: Fleet, totals: Totals) -> tuple[CostOutcome, int]:
    """What earlier tries have cost, at the prices and with the instances of this try's plan.

    Journals tell neither prices nor fleets. The time in which earlier fleets came up is not in
    it, nor are requests: the plan has one sum of them, for the whole job.

    Returns:
        The cost, and the bytes of hops that this plan does not have, which are not in it.
    """
    prices = {(edge.src, edge.dst): edge.usd_per_gb for edge in fleet.plan.edges}
    known = [row for row in totals.sent if (row.src, row.dst) in prices]
    cost = CostOutcome(
        egress_usd=sum(bytes_to_gb(row.size_bytes) * prices[row.src, row.dst] for row in known),
        instance_usd=_usd_per_s(fleet) * totals.seconds,
        request_usd=0.0,
    )
    return cost, sum(row.size_bytes for row in totals.sent) - sum(row.size_bytes for row in known)


def _usd_per_s(fleet: Fleet) -> float:
    return sum(
        group.count * usd_per_hour_to_usd_per_s(group.usd_per_hour)
        for group in fleet.plan.instances.values()
    )


def cost_of(fleet: Fleet, status: TransferStatus, up_s: float) -> CostOutcome:
    """What one epoch has cost so far, at the plan's prices.

    Args:
        up_s: seconds of the fleet before the epoch that it is to pay for.
    """
    plan = fleet.plan
    edges = edge_outcomes(fleet, status.delivered_bytes, status.seconds)
    prices = {(edge.src, edge.dst): edge.usd_per_gb for edge in plan.edges}
    return CostOutcome(
        egress_usd=sum(bytes_to_gb(edge.sent_bytes) * prices[edge.src, edge.dst] for edge in edges),
        instance_usd=_usd_per_s(fleet) * (status.seconds + up_s),
        request_usd=(plan.cost.request_usd or 0.0) if status.copied else 0.0,
    )
