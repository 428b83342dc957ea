"""The result of a transfer: the value that tasks return and lineage reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Final

from skyplane_gateway.common.schema import Document, decode, encode
from skyplane_gateway.config import TransferState
from skyplane_orchestration.errors import SkyplaneError, TransferFailed
from skyplane_orchestration.formatting import throughput
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.fleet import IN_PROCESS, LOCAL
from skyplane_orchestration.model.location import Location

SCHEMA_VERSION: Final = 1

#: Most failed objects in a result, and their bytes of JSON; the manifest has all of them.
#: Keeps the document below 48 KiB; the smallest XCom limit in use is 64 KiB (MySQL).
MAX_LISTED_FAILURES: Final = 50
MAX_LISTED_BYTES: Final = 20_000

#: Achieved and promised rate that differ by more than this share have drifted apart.
DRIFT_LIMIT: Final = 0.25
#: In a shorter transfer, start and tail weigh too much for that.
DRIFT_LEAST_S: Final = 60.0

#: Most bytes of JSON of the largest objects in a result, for the same limit.
MAX_LARGEST_BYTES: Final = 4_000


@dataclass(frozen=True, slots=True)
class FailedObject:
    """An object that was not copied, and why."""

    source: str
    destination: str
    code: str
    reason: str
    attempts: int


@dataclass(frozen=True, slots=True)
class CopiedObject:
    """An object that was copied."""

    source: str
    destination: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class EdgeOutcome:
    """Planned against achieved on one edge; rates in Gbit/s over the transfer's time.

    Args:
        modelled_gbps: the grid's rate of one instance at each end, before a probe.
        probed_gbps: the rate of one instance at each end in the probe; None without one.
    """

    src: str
    dst: str
    planned_gbps: float
    achieved_gbps: float
    sent_bytes: int
    modelled_gbps: float | None = None
    probed_gbps: float | None = None


@dataclass(frozen=True, slots=True)
class CostOutcome(Document, what="the cost of a transfer"):
    """Cost by item in USD, at the plan's prices.

    Args:
        egress_usd: of the bytes that arrived, at every hop.
        instance_usd: of each instance of a cloud from its launch, its cloud's minimum included.
            Gateways on other machines count as if they were such instances, without a minimum.
        request_usd: of the plan, once an object was copied.
        other_usd: the further items of the plan (`PlanCost.other_usd`), as far as they came up.
    """

    egress_usd: float
    instance_usd: float
    request_usd: float
    other_usd: Mapping[str, float] = field(default_factory=dict, hash=False)

    @property
    def total_usd(self) -> float:
        others = sum(self.other_usd.values())
        return self.egress_usd + self.instance_usd + self.request_usd + others

    def to_dict(self) -> dict[str, Any]:
        """The items and their sum."""
        return {**encode(self), "total_usd": self.total_usd}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CostOutcome:
        """The cost without its sum, which `total_usd` computes. Raises ConfigurationInvalid."""
        items = {name: usd for name, usd in data.items() if name != "total_usd"}
        return decode(cls, items, cls._what)


NO_COST: Final = CostOutcome(egress_usd=0.0, instance_usd=0.0, request_usd=0.0)


@dataclass(frozen=True, slots=True)
class TryOutcome:
    """The share of one try in the result of a transfer.

    A try is one call that submits, joins or resumes the transfer, with all leads that it saw.
    An epoch that it joined counts from its beginning.
    """

    copied: int = 0
    copied_bytes: int = 0
    seconds: float = 0.0
    goodput_gbps: float = 0.0
    cost: CostOutcome = NO_COST


@dataclass(frozen=True, slots=True)
class TransferResult(Document, what="a transfer result", version=SCHEMA_VERSION):
    """One transfer that has ended, or its progress in a status call.

    Args:
        objects: objects found under the source.
        copied, skipped, failed: counts of objects; `copied` are durable and verified.
        unfinished: objects that the transfer had not ended with; a resume continues with them.
        copied_bytes: size of the copied objects.
        seconds: time in which a lead worked, over all tries, without the pauses between them.
        copied_earlier: copied before the transfer was resumed or changed its lead.
        goodput_gbps: verified payload at the destination over `seconds`.
        edges, cost: of all tries, like `copied_bytes` and `seconds`. The cost ends with the
            transfer, or with the teardown where one call does both.
        estimated_usd: what the plan had predicted; None where it had no volume.
        this_try: the share of this try.
        planned_gbps: the plan's rate.
        failures: the first of the failed objects: at most `MAX_LISTED_FAILURES`, fewer
            where their keys are long.
        error: why the transfer as a whole failed; empty otherwise.
        gateways: their provisioner; `local` for processes of the machine that ran the task,
            through which all bytes passed; empty if there were none.
        resume_handle: continues a failed transfer; empty for none.
        manifest_uri: URL of the list of all objects; empty if none was written.
        reserved: objects at the source under keys that are reserved for journals
            (`.skyplane/jobs/`). They are left out, and in no other count.
        metadata_not_carried: copied objects whose copies lack some metadata; the manifest names
            it for each.
        not_carried_by_name: `tags`, `storage-class` or another name of
            docs/reference/objects.md -> number of copies that lack it.
        unchecked: copied objects of which the source stated no checksum, so that what was read
            there was compared with nothing; files are not counted.
        moved: copied objects whose source was deleted; 0 unless the job is a move.
        deleted: objects that only the destination had and that were deleted; 0 unless the job
            says `delete`.
        server_side, server_side_bytes: copied objects whose bytes the store copied itself, and
            their size; they are in `copied` and `copied_bytes`, and passed through no gateway.
        encrypted: the gateways encrypted what they sent, from source to sink.
        largest: the largest copied objects, at most ten, fewer where their keys are long.
        source_digest: SHA-256 over key, size and ETag of the `objects`, as the source listed them;
            empty where the listing did not come to its end.
        measured: rates that this transfer has measured: probes, and achieved rates of edges that
            were the bottleneck for long enough; see docs/how-to/learned-grid.md.
        warnings: events that did not fail the transfer but that the user should see.
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
    deleted: int = 0
    server_side: int = 0
    server_side_bytes: int = 0
    encrypted: bool = False
    estimated_usd: float | None = None
    source_digest: str = ""
    largest: tuple[CopiedObject, ...] = ()
    unchecked: int = 0
    measured: tuple[EdgeMeasurement, ...] = ()

    def open(self, key: str = "", mode: str = "rb", at: Location | None = None) -> Any:
        """Open a copy by `Location.fsspec`; `at`: the destination with endpoint and credentials."""
        filesystem, path = (at or Location(self.destination)).fsspec()
        return filesystem.open(f"{path.rstrip('/')}/{key}" if key else path, mode)

    def _repr_html_(self) -> str:
        # By its name: the model knows nothing above it.
        return str(import_module("skyplane_orchestration.report.page").notebook_view(self))

    @property
    def drift(self) -> float | None:
        """Achieved over promised rate, less 1; None where the two cannot be compared.

        They cannot after less than `DRIFT_LEAST_S`, with gateways on one machine, which no plan
        is about, and where the store copied objects itself.
        """
        is_planned = self.gateways not in ("", LOCAL, IN_PROCESS) and self.planned_gbps > 0
        if not is_planned or self.seconds < DRIFT_LEAST_S or self.server_side:
            return None
        return self.goodput_gbps / self.planned_gbps - 1.0

    @property
    def has_drifted(self) -> bool:
        return self.drift is not None and abs(self.drift) > DRIFT_LIMIT

    @property
    def drift_text(self) -> str:
        """Achieved beside promised rate, and whether an edge was the limit."""
        share = self.drift or 0.0
        full = ", ".join(
            f"{one.src} -> {one.dst} at {throughput(one.gbps)}"
            for one in self.measured
            if one.kind == "achieved"
        )
        limit = f"the limit was {full}" if full else "no edge was the limit for long"
        return (
            f"achieved {throughput(self.goodput_gbps)}, {abs(share):.0%}"
            f" {'less' if share < 0 else 'more'} than the {throughput(self.planned_gbps)} that the"
            f" plan promised; {limit}"
        )

    @property
    def used_gateways(self) -> bool:
        """False where there was nothing to do."""
        return self.epoch > 0

    @property
    def succeeded(self) -> bool:
        return self.state == "succeeded"


def failed_result(error: SkyplaneError) -> TransferResult | None:
    """The result of the transfer that an error ends; None if there is none."""
    result = error.result if isinstance(error, TransferFailed) else None
    return result if isinstance(result, TransferResult) else None
