"""The status of a transfer, as its lead reports it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, get_origin, get_type_hints

from skyplane_gateway.common.schema import reading
from skyplane_gateway.config import TransferState
from skyplane_gateway.journal.totals import Totals
from skyplane_orchestration.errors import InternalError
from skyplane_orchestration.model.result import CostOutcome


@dataclass(frozen=True, slots=True)
class TransferStatus:
    """The progress of a transfer; by default before the first poll.

    Attributes:
        objects, size_bytes: found so far; final once `listed`.
        copied, copied_bytes: durable and verified objects, those of earlier epochs included.
        copied_earlier, copied_earlier_bytes: the share of earlier epochs.
        skipped_bytes, failed_bytes: size of the skipped and of the failed objects.
        failures: the failed objects, once the transfer has ended.
        largest: the largest copied objects, once the transfer has ended.
        needs_credentials: sides of the lead's own gateway (`source`, `sink`) whose credentials
            have expired or expire soon.
        unfinished: objects that are neither copied, skipped nor failed yet.
        archived: skipped objects that the source has archived.
        pinned_by_time: copied objects whose source has no ETag, so that only time and size
            identify its version.
        error: error of the transfer as a whole (`code`, `message`, `is_permanent`).
        delivered_bytes: route number -> payload with a receipt.
        moving_bytes: payload of unfinished chunks that has arrived so far, by estimate: half of
            what was read and half of what was written.
        unchecked: see `TransferResult.unchecked`.
        not_carried, not_carried_by_name: see `TransferResult.metadata_not_carried`.
        server_side, server_side_bytes: see `TransferResult.server_side`.
        server_side_refusal: why the store copied no more objects itself; empty if it was not asked
            or did.
        reserved: see `TransferResult.reserved`.
        unmatched_patterns: patterns of the job that no key of the source matches, each with its
            kind, such as `exclude 'tmp'`.
        manifest_trouble: why objects were compared without the manifest of the destination.
        trusted_unix_s: when the manifest was written that stood for the listing of the
            destination; 0 for none.
        edited: objects that were changed at the destination since they were copied.
        source_digest: see `TransferResult.source_digest`; empty until `listed`.
        earlier: bytes and seconds of the epochs before this one.
        cost: of this try so far, computed by who polls; None in the lead's own report.
        estimated_usd: what the plan of its fleet says it will cost, also from who polls.
    """

    transfer_key: str
    epoch: int
    state: TransferState = "running"
    listed: bool = False
    objects: int = 0
    size_bytes: int = 0
    copied: int = 0
    copied_bytes: int = 0
    skipped: int = 0
    failed: int = 0
    seconds: float = 0.0
    delivered_bytes: Mapping[int, int] = field(default_factory=dict)
    error: Mapping[str, Any] | None = None
    failures: tuple[Mapping[str, Any], ...] = ()
    open_uploads: tuple[Mapping[str, str], ...] = ()
    copied_earlier: int = 0
    copied_earlier_bytes: int = 0
    skipped_bytes: int = 0
    failed_bytes: int = 0
    archived: int = 0
    pinned_by_time: int = 0
    unchecked: int = 0
    not_carried: int = 0
    not_carried_by_name: Mapping[str, int] = field(default_factory=dict)
    unfinished: int = 0
    reserved: int = 0
    unmatched_patterns: tuple[str, ...] = ()
    manifest_trouble: str = ""
    trusted_unix_s: float = 0.0
    edited: int = 0
    source_digest: str = ""
    largest: tuple[Mapping[str, Any], ...] = ()
    earlier: Totals = field(default_factory=Totals)
    needs_credentials: tuple[str, ...] = ()
    moving_bytes: int = 0
    server_side: int = 0
    server_side_bytes: int = 0
    server_side_refusal: str = ""
    cost: CostOutcome | None = None
    estimated_usd: float | None = None

    @property
    def is_running(self) -> bool:
        return self.state == "running"

    def require_counted(self) -> None:
        """Raise InternalError unless every object is in exactly one of the counts."""
        ended = self.copied + self.skipped + self.failed
        if self.unfinished < 0 or self.objects != ended + self.unfinished:
            raise InternalError(
                f"of {self.objects} objects {self.copied} were copied, {self.skipped} skipped, "
                f"{self.failed} failed and {self.unfinished} are unfinished, which does not add "
                "up; please report this"
            )

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> TransferStatus:
        """Read the control API's document; ignores fields of newer gateways.

        Raises ConfigurationInvalid for a broken document, InternalError for wrong counts.
        """
        with reading("the status of a transfer"):
            given = {"size_bytes": document["bytes"]}
            for one in fields(cls):
                # A gateway of the release before may lack other fields.
                if one.name in document or one.name in _STATED:
                    read, value = _READ.get(one.name), document[one.name]
                    given[one.name] = read(value) if read else value
            status = cls(**{**given, "cost": None, "estimated_usd": None})
        status.require_counted()
        return status


#: What every gateway states.
_STATED: Final = frozenset(
    {
        *("transfer_key", "epoch", "state", "listed", "objects", "copied", "copied_bytes"),
        *("skipped", "failed", "seconds", "delivered_bytes", "error", "failures", "open_uploads"),
    }
)
#: Fields with other values in the document -> what reads them.
_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    **{
        name: tuple
        for name, hint in get_type_hints(TransferStatus).items()
        if get_origin(hint) is tuple
    },
    "delivered_bytes": lambda found: {int(key): int(count) for key, count in found.items()},
    "earlier": Totals.from_dict,
    "not_carried_by_name": dict,
}
