"""What became of a transfer: the value that tasks return and lineage reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from skyplane_gateway.config import TransferState
from skyplane_gateway.schema import as_mapping, decode

SCHEMA_VERSION: Final = 1

#: Failed objects listed in the result itself, at most so many and in so many bytes of
#: JSON; the manifest has all of them. Keeps the document below 48 KiB, far below the
#: smallest XCom limit in use (64 KiB on MySQL).
MAX_LISTED_FAILURES: Final = 50
MAX_LISTED_BYTES: Final = 20_000


@dataclass(frozen=True, slots=True)
class FailedObject:
    """An object that is not at the destination, and why."""

    source: str
    destination: str
    code: str
    reason: str
    attempts: int


@dataclass(frozen=True, slots=True)
class EdgeOutcome:
    """Planned against achieved on one edge; rates in Gbit/s over the transfer's time."""

    src: str
    dst: str
    planned_gbps: float
    achieved_gbps: float
    sent_bytes: int


@dataclass(frozen=True, slots=True)
class CostOutcome:
    """Planned cost by item in USD: the bytes and seconds that happened, at the plan's prices.

    Nobody has asked a cloud what it bills; for gateways on a machine of one's own it bills
    no instances.
    """

    egress_usd: float
    instance_usd: float
    request_usd: float

    @property
    def total_usd(self) -> float:
        return self.egress_usd + self.instance_usd + self.request_usd


#: What costs nothing.
NO_COST: Final = CostOutcome(egress_usd=0.0, instance_usd=0.0, request_usd=0.0)


@dataclass(frozen=True, slots=True)
class TryOutcome:
    """What one try of a transfer did, of the whole that its result tells of.

    A try is one call that submits, joins or resumes the transfer, with all the leads that it
    saw. An epoch that it joined counts from its beginning.
    """

    copied: int = 0
    copied_bytes: int = 0
    seconds: float = 0.0
    goodput_gbps: float = 0.0
    cost: CostOutcome = NO_COST


@dataclass(frozen=True, slots=True)
class TransferResult:
    """One transfer, ended (or, in a status call, as far as it is).

    Args:
        objects: objects found under the source.
        copied, skipped, failed: what became of them; `copied` are durable and verified.
        unfinished: found, and without an outcome when the transfer ended; a resume continues
            with them.
        copied_bytes: their size.
        seconds: time in which a lead worked, of all tries: each from its submit to its end.
            Pauses between tries are not in it.
        copied_earlier: copied before the transfer was resumed or changed its lead.
        goodput_gbps: verified payload at the destination over `seconds`.
        edges, cost: of all tries, like `copied_bytes` and `seconds`.
        this_try: what this try did.
        planned_gbps: what the plan promised.
        failures: the first of the failed objects: at most `MAX_LISTED_FAILURES`, fewer
            where their keys are long.
        error: why the transfer as a whole failed; empty otherwise.
        gateways: who ran them: `local` for processes of the machine that ran the task, through
            which all bytes passed; empty where none were needed.
        resume_handle: what a failed transfer leaves to go on by; empty for none.
        manifest_uri: where the whole list of objects was written; empty for nowhere.
        reserved: objects at the source whose keys are kept for journals (`.skyplane/jobs/`).
            They are left out, and in no other count.
        metadata_not_carried: copied objects whose copies lack something that the sources have;
            the manifest says of each what.
        not_carried_by_name: `tags`, `storage-class`, `website-redirect` or `expires` -> how
            many of them lack it.
        moved: copied objects whose source was deleted; 0 unless the job is a move.
        warnings: things that did not fail the transfer but that somebody should see.
    """

    transfer_key: str
    epoch: int
    state: TransferState
    source: str
    destination: str
    objects: int
    copied: int
    skipped: int
    failed: int
    copied_bytes: int
    seconds: float
    goodput_gbps: float
    planned_gbps: float
    edges: tuple[EdgeOutcome, ...]
    cost: CostOutcome
    failures: tuple[FailedObject, ...]
    error: str = ""
    error_code: str = ""
    resume_handle: str = ""
    manifest_uri: str = ""
    warnings: tuple[str, ...] = ()
    moved: int = 0
    copied_earlier: int = 0
    reserved: int = 0
    metadata_not_carried: int = 0
    not_carried_by_name: Mapping[str, int] = field(default_factory=dict)
    unfinished: int = 0
    gateways: str = ""
    this_try: TryOutcome = TryOutcome()

    @property
    def used_gateways(self) -> bool:
        """Whether a transfer ran; False where there was nothing to do."""
        return self.epoch > 0

    @property
    def succeeded(self) -> bool:
        return self.state == "succeeded"

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON data: lists, no tuples, which XCom would wrap."""
        document = asdict(self)
        for name in ("edges", "failures", "warnings"):
            document[name] = list(document[name])
        document["cost"]["total_usd"] = self.cost.total_usd
        document["this_try"]["cost"]["total_usd"] = self.this_try.cost.total_usd
        return {"schema_version": SCHEMA_VERSION, **document}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TransferResult:
        """Raises ConfigurationInvalid for another schema version or a broken document."""
        document = dict(as_mapping(data, "a transfer result"))
        document["cost"] = _items(document.get("cost"), "cost")
        if "this_try" in document:
            own = as_mapping(document["this_try"], "a transfer result: this_try")
            document["this_try"] = {**own, "cost": _items(own.get("cost"), "this_try: cost")}
        return decode(cls, document, "a transfer result", version=SCHEMA_VERSION)


def _items(cost: object, name: str) -> dict[str, Any]:
    """A cost without its sum, which is written for readers and added up again here."""
    found = as_mapping(cost, f"a transfer result: {name}")
    return {item: found[item] for item in found if item != "total_usd"}
