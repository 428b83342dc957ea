"""The request of a user: a `TransferJob` with one objective.

Plain data, for files, XCom and templates; needs no cloud. Rules about objects are in
`skyplane_gateway.common.job_options`; here are ends, objectives, limits and the policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

from skyplane_gateway.common.job_options import RECURSIVELY, JobOptions
from skyplane_gateway.common.object_filter import ObjectFilter
from skyplane_gateway.common.objects import ObjectAttributes
from skyplane_gateway.common.quantities import size_bytes
from skyplane_gateway.common.schema import as_mapping, check, decode, encode
from skyplane_gateway.common.wording import FieldName, Text, with_fields
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.delete_limit import DEFAULT_MAX_DELETE, DeleteLimit
from skyplane_orchestration.model.job_checks import (
    check_delete,
    check_manifest_at,
    check_metadata,
    check_move,
)
from skyplane_orchestration.model.location import KNOWN_CLOUDS, Location, holds_template
from skyplane_orchestration.model.source_contents import NOT_LISTED, SourceContents
from skyplane_orchestration.model.written_attributes import written_attributes
from skyplane_orchestration.units import usd_per_hour_to_usd_per_s

SCHEMA_VERSION: Final = 1

#: Whether sources encrypt what they send; `auto`: unless all gateways are on one machine.
Encryption = Literal["auto", "always", "never"]

#: `Limits.chunk_mib` of None. A single PUT costs the stores least, but a lost object is sent
#: again from its beginning.
_WHOLE_MIB: Final = 64
_PART_MIB: Final = 16

#: What a run does when a cloud has no room for the instances of its plan: `replan` without them,
#: or `fail`.
NoCapacityRule = Literal["replan", "fail"]

#: How bytes leave Google Cloud: over its own network, over the internet, or over the internet in
#: each region where that is cheaper.
NetworkTierRule = Literal["premium", "standard", "auto"]

#: Storage classes whose objects cost more to read, of S3, Google and Azure.
ReadStorageClass = Literal[
    "STANDARD_IA", "ONEZONE_IA", "GLACIER_IR", "NEARLINE", "COLDLINE", "ARCHIVE", "Cool", "Cold"
]

#: The ends that pay a key service for each object.
KeyRequestsRule = Literal["none", "source", "destination", "both"]

#: At a lower rate a chunk takes hours, and a transfer outlives its gateways.
_LEAST_BYTES_PER_S: Final = 1024


def require_positive(name: str, value: float | None) -> None:
    """Raise ConfigurationInvalid for a number that is given and not above zero."""
    if value is not None and not value > 0:  # NaN, too.
        where = Text(FieldName(name))
        raise ConfigurationInvalid(where + f" must be a number above zero, not {value!r}")


def require_at_least(name: str, value: int | None, least: int, what: str = "") -> None:
    """Raise ConfigurationInvalid for a number that is given and less than `least`."""
    if value is not None and value < least:
        where = Text(FieldName(name), what)
        raise ConfigurationInvalid(where + f" must be a whole number from {least}, not {value!r}")


def require_not_negative(name: str, value: float | None) -> None:
    """Raise ConfigurationInvalid for a number below zero, or one that is infinite."""
    if value is not None and not 0 <= value < math.inf:
        where = Text(FieldName(name))
        raise ConfigurationInvalid(where + f" must be a number from zero, not {value!r}")


def _require_share(name: str, value: float, least: float) -> None:
    """Raise ConfigurationInvalid for a number that is not from `least` to below 1."""
    if not least <= value < 1:
        where = Text(FieldName(name))
        raise ConfigurationInvalid(
            where + f" must be a number from {least:g} to below 1, not {value!r}"
        )


@dataclass(frozen=True, slots=True)
class MinimizeCost:
    """The cheapest plan that reaches a throughput floor (paper section 5.1).

    Args:
        min_throughput_gbps: the floor in Gbit/s; None for the rate of the direct path with one
            instance.
        exactly: plan at the floor itself, as the paper's equation 4a does. Otherwise
            a faster plan is taken when it is cheaper per GB.
        value_of_time_usd_per_hour: the price of the time until the job is done, provisioning
            included. The plan has the least sum of its bill and of that.
    """

    min_throughput_gbps: float | None = None
    exactly: bool = False
    value_of_time_usd_per_hour: float = 0.0

    def __post_init__(self) -> None:
        check(self)
        require_positive("min_throughput_gbps", self.min_throughput_gbps)
        require_not_negative("value_of_time_usd_per_hour", self.value_of_time_usd_per_hour)
        if self.exactly and self.min_throughput_gbps is None:
            raise ConfigurationInvalid.about("{exactly} needs {min_throughput_gbps}")

    @property
    def floor_gbps(self) -> float:
        """The floor; 0 where it is not known yet."""
        return self.min_throughput_gbps or 0.0

    @property
    def time_usd_per_s(self) -> float:
        """The value of time in USD per second."""
        return usd_per_hour_to_usd_per_s(self.value_of_time_usd_per_hour)


@dataclass(frozen=True, slots=True)
class MaximizeThroughput:
    """The fastest plan under a price ceiling, per GB or for the whole job."""

    max_usd_per_gb: float | None = None
    max_cost_usd: float | None = None

    def __post_init__(self) -> None:
        check(self)
        if (self.max_usd_per_gb is None) == (self.max_cost_usd is None):
            raise ConfigurationInvalid.about("give either {max_usd_per_gb} or {max_cost_usd}")
        require_positive("max_usd_per_gb", self.max_usd_per_gb)
        require_positive("max_cost_usd", self.max_cost_usd)


@dataclass(frozen=True, slots=True)
class Deadline:
    """The cheapest plan that is done within `seconds`, provisioning included."""

    seconds: float

    def __post_init__(self) -> None:
        check(self)
        require_positive("seconds", self.seconds)


Objective = MinimizeCost | MaximizeThroughput | Deadline

#: The price of time where no objective is given.
VALUE_OF_TIME_USD_PER_HOUR: Final = 1.0
#: The objective of a job that names none: the least sum of the bill and of the time.
DEFAULT_OBJECTIVE: Final = MinimizeCost(value_of_time_usd_per_hour=VALUE_OF_TIME_USD_PER_HOUR)

_OBJECTIVES: Final[dict[str, type[MinimizeCost | MaximizeThroughput | Deadline]]] = {
    "minimize-cost": MinimizeCost,
    "maximize-throughput": MaximizeThroughput,
    "deadline": Deadline,
}


def objective_to_dict(objective: Objective) -> dict[str, Any]:
    kind = next(name for name, cls in _OBJECTIVES.items() if isinstance(objective, cls))
    return {"kind": kind, **encode(objective)}


def objective_from_dict(data: Mapping[str, Any]) -> Objective:
    """Raises ConfigurationInvalid for an unknown objective."""
    fields = dict(as_mapping(data, "an objective"))
    kind = str(fields.pop("kind", ""))
    if kind not in _OBJECTIVES:
        raise ConfigurationInvalid(f"unknown objective {kind!r}; use one of {sorted(_OBJECTIVES)}")
    return decode(_OBJECTIVES[kind], fields, f"the objective {kind}")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on what a transfer may use.

    Args:
        instance_limit: most instances per region; None for the grid's own limit.
        instance_types: cloud -> instance type, in place of the grid's default.
        max_relays: most relay regions; None for no bound.
        chunk_mib: largest object that is sent whole, and size of the parts of larger ones; None
            for 64 MiB and parts of 16 MiB, at Google of up to 64 MiB.
        vcpu_quota: cloud -> most vCPUs per region; other clouds are bounded by the number of
            instances alone.
        source_read_gbps, destination_write_gbps: highest rates of the stores at the ends; None
            for those of the grid, if any.
        safety_margin: share to take off every rate between two regions, from 0 to below 1;
            limits of instances count in full.
        confidence: share of transfers for which the promised rate is to hold, from 0.5 to below
            1. Floors and deadlines count promised rates; ceilings count expected ones.
    """

    instance_limit: int | None = None
    instance_types: Mapping[str, str] = field(default_factory=dict, hash=False)
    max_relays: int | None = None
    chunk_mib: int | None = None
    vcpu_quota: Mapping[str, int] = field(default_factory=dict, hash=False)
    source_read_gbps: float | None = None
    destination_write_gbps: float | None = None
    safety_margin: float = 0.0
    confidence: float = 0.9

    def __post_init__(self) -> None:
        check(self)
        require_at_least("instance_limit", self.instance_limit, 1)
        for name in ("vcpu_quota", "instance_types"):
            if unknown := sorted(set(getattr(self, name)) - set(KNOWN_CLOUDS)):
                raise ConfigurationInvalid(
                    Text(FieldName(name), " names ", ", ".join(unknown))
                    + f"; the clouds are {', '.join(KNOWN_CLOUDS)}"
                )
        for cloud, vcpus in self.vcpu_quota.items():
            require_at_least("vcpu_quota", vcpus, 1, f" of {cloud}")
        for name in ("source_read_gbps", "destination_write_gbps"):
            require_positive(name, getattr(self, name))
        _require_share("safety_margin", self.safety_margin, 0.0)
        _require_share("confidence", self.confidence, 0.5)
        require_at_least("max_relays", self.max_relays, 0)
        if self.chunk_mib is not None and not 5 <= self.chunk_mib <= 512:
            # S3 refuses parts below 5 MiB; above 512 MiB a retry costs more than it saves.
            raise ConfigurationInvalid.about(
                "{chunk_mib} must be from 5 to 512, not {given}", given=self.chunk_mib
            )

    @property
    def whole_mib(self) -> int:
        """The largest object that is sent whole."""
        return _WHOLE_MIB if self.chunk_mib is None else self.chunk_mib

    @property
    def part_mib(self) -> int:
        """Size of the parts of larger objects."""
        return _PART_MIB if self.chunk_mib is None else self.chunk_mib


@dataclass(frozen=True, slots=True)
class Policy:
    """What a team allows every job.

    Args:
        allow_regions, exclude_regions: globs of regions that may, and may not, carry bytes.
        max_job_usd: most that one job may cost: a plan with a higher predicted cost is
            refused, and a transfer that reaches this cost is stopped.
        on_no_capacity: what to do when a cloud refuses an instance of the plan, because a quota
            is used up or a region has no such instance: `replan` with what is left, for the same
            objective, or `fail`. Either way nothing of the refused fleet stays. `fail` also keeps
            the plan of a transfer that runs.
        network_tier: of instances on Google Cloud and Azure that send to other clouds: `premium`;
            `standard` where the region has it, which is routing preference Internet at Azure; or
            `auto`, which is standard where it makes some way out of the region cheaper and none
            dearer. No tier changes a planned rate.
        already_this_month_gb: GB (1e9 bytes) that the account has sent to the internet this month
            before the job, for prices that fall with the volume of a month; None: what the learned
            grid says, by cloud (docs/how-to/learned-grid.md), else 0.
        source_storage_class: of the objects, for its price of reading them, such as `STANDARD_IA`,
            `NEARLINE` or `Cool`; None for a class that is free to read.
        key_requests: the ends in S3 that ask AWS KMS for each object, because its key is there and
            the bucket has no bucket key: `none`, `source`, `destination` or `both`.
    """

    allow_regions: tuple[str, ...] = ()
    exclude_regions: tuple[str, ...] = ()
    max_job_usd: float | None = None
    on_no_capacity: NoCapacityRule = "replan"
    network_tier: NetworkTierRule = "premium"
    already_this_month_gb: float | None = None
    source_storage_class: ReadStorageClass | None = None
    key_requests: KeyRequestsRule = "none"

    def __post_init__(self) -> None:
        check(self)
        require_positive("max_job_usd", self.max_job_usd)
        require_not_negative("already_this_month_gb", self.already_this_month_gb)
        for name in ("allow_regions", "exclude_regions"):
            _check_regions(name, getattr(self, name))

    def excludes(self, tag: str) -> bool:
        """True when `exclude_regions` names the region tag."""
        return _matches(tag, self.exclude_regions)

    def may_relay(self, tag: str) -> bool:
        """True for a region tag that may be a relay."""
        return not self.excludes(tag) and (
            not self.allow_regions or _matches(tag, self.allow_regions)
        )


def _check_regions(name: str, globs: Iterable[str]) -> None:
    """Refuse globs that match no region at all: a rule must not be lost in silence."""
    for glob in globs:
        may_match = any(one in glob for one in ":*?[") and "," not in glob and glob == glob.strip()
        if not (may_match or holds_template(glob)):
            raise ConfigurationInvalid(
                Text(FieldName(name), " must be a list of globs of region tags, such as azure:*, ")
                + f"not {glob!r}"
            )


def _matches(tag: str, globs: Iterable[str]) -> bool:
    """True when one of the globs (`aws:eu-*`, `gcp:*`) matches the region tag."""
    return any(fnmatchcase(tag, glob) for glob in globs)


#: Defaults of a job.
NO_LIMITS: Final = Limits()
ANY_REGION: Final = Policy()


#: Whether a fleet measures its edges before it carries a transfer, and is planned again: `auto`
#: where that costs little.
ProbeRule = Literal["auto", "always", "never"]

#: Whether the store may copy objects itself: `auto` where that is safe and costs nothing more.
ServerSideRule = Literal["auto", "never"]


@dataclass(frozen=True, slots=True)
class TransferJob(JobOptions):
    """A request to copy objects from `source` to `destination`, by its `JobOptions`.

    Args:
        objective: None asks for the least sum of the bill and of the time, at the value of time
            of the client; see `MinimizeCost`.
        move: delete each object at the source once its copy is verified and the whole has
            ended well; see docs/how-to/move.md.
        volume_gb, objects, contents: planning figures; a listing has them when volume_gb is None.
        guess_mime_type: a file that is copied to a bucket gets the content type of its name.
        files_from: keys below the source prefix; nothing else is copied, and a key that is not
            at the source is a failed object. None for all.
        newer_than, older_than: bounds of the store's time: a duration before the begin of the
            transfer (`24h`, `7d`), a date, or an RFC 3339 time.
        min_size, max_size: bounds of the size, such as `10K` or `1.5G`, in powers of 1024.
        bwlimit: highest rate at which the sources together send, in bytes per second, such as
            `10M`, in powers of 1024; None for no limit.
        encrypt: AES-256-GCM from source to sink: `always`, `never`, or `auto`, which encrypts
            unless all gateways are on one machine; see docs/explanation/security.md.
        delete: after all copies are verified, delete the objects that only the destination has;
            see docs/how-to/sync-delete.md.
        server_side_copy: whether the store copies large objects itself where both ends are in one
            region of one service and have one set of credentials: `auto` or `never`; see
            docs/reference/objects.md.
        probe: whether the fleet first measures its edges, and is planned again on the result:
            `auto`, `always` or `never`; see docs/how-to/probe.md.
        max_delete: the most deletes, as a number or a share of the objects at the destination.
        content_type, cache_control: of the objects that are written, in place of the source's.
        headers: Content-Disposition, Content-Encoding, Content-Language, and in S3 Expires, in the
            same way; names in any case.
        object_metadata: user metadata that is added to the source's, or replaces it. A sync does
            not compare any of the four; see docs/reference/objects.md.
        allow_unmatched_patterns: `delete` also where a pattern of `exclude` can match no key, or
            matches none although it would with `/**` behind it.
    """

    source: Location
    destination: Location
    objective: Objective | None = None
    limits: Limits = field(default_factory=Limits)
    policy: Policy = field(default_factory=Policy)
    volume_gb: float | None = None
    objects: int | None = None
    contents: SourceContents = NOT_LISTED
    move: bool = False
    guess_mime_type: bool = True
    files_from: tuple[str, ...] | None = None
    newer_than: str | None = None
    older_than: str | None = None
    min_size: str | None = None
    max_size: str | None = None
    delete: bool = False
    max_delete: str = DEFAULT_MAX_DELETE
    bwlimit: str | None = None
    server_side_copy: ServerSideRule = "auto"
    probe: ProbeRule = "auto"
    encrypt: Encryption = "auto"
    allow_unmatched_patterns: bool = False
    content_type: str | None = None
    cache_control: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    object_metadata: Mapping[str, str] = field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        check(self)
        self._check_filter()
        if self.bwlimit is not None and not holds_template(self.bwlimit):
            require_at_least(
                "bwlimit", self.bytes_per_s, _LEAST_BYTES_PER_S, " in bytes per second"
            )
        if not holds_template(self.max_delete):
            DeleteLimit.from_text(self.max_delete)
        if self.delete:
            check_delete(self)
        require_positive("volume_gb", self.volume_gb)
        require_at_least("objects", self.objects, 0)
        check_move(self)
        check_metadata(self)
        check_manifest_at(self)

    def _check_filter(self) -> None:
        if self.files_from is not None and not self.recursive:
            raise ConfigurationInvalid(
                with_fields("{files_from} names keys below a prefix; ") + RECURSIVELY
            )
        bounds = (self.newer_than, self.older_than, self.min_size, self.max_size)
        texts = (*(self.files_from or ()), *(text for text in bounds if text is not None))
        if not any(holds_template(text) for text in texts):
            found = self.object_filter.files_from
            object.__setattr__(self, "files_from", found)

    @property
    def bytes_per_s(self) -> int | None:
        """`bwlimit` as a number."""
        return None if self.bwlimit is None else size_bytes(with_fields("{bwlimit}"), self.bwlimit)

    @property
    def written_attributes(self) -> ObjectAttributes | None:
        """Headers and user metadata in place of the source's; None for none."""
        return written_attributes(
            self.content_type, self.cache_control, self.headers, self.object_metadata
        )

    @property
    def object_filter(self) -> ObjectFilter:
        """The filters beside the globs."""
        return ObjectFilter(**{one.name: getattr(self, one.name) for one in fields(ObjectFilter)})

    def to_dict(self) -> dict[str, Any]:
        document = encode(self, SCHEMA_VERSION)
        if self.objective is not None:
            document["objective"] = objective_to_dict(self.objective)
        return document

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TransferJob:
        """Raises ConfigurationInvalid for another schema version or a bad value."""
        document = dict(as_mapping(data, "a transfer job"))
        # The document itself names the type of this field.
        objective = document.pop("objective", None)
        job = decode(cls, document, "a transfer job", version=SCHEMA_VERSION)
        return job if objective is None else replace(job, objective=objective_from_dict(objective))
