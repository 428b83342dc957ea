"""A loaded grid: immutable, complete, with the provenance of each value."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import GridInvalid, UnknownRegion
from skyplane_orchestration.grids.gateway_speed import (
    MOST_PROCESSES,
    SINK,
    SOURCE,
    GatewaySpeed,
    Role,
)
from skyplane_orchestration.grids.geography import GridRegion
from skyplane_orchestration.grids.monthly_volume import NOTHING_SENT, MonthlyVolume
from skyplane_orchestration.grids.price_overrides import PriceOverride, first_match
from skyplane_orchestration.grids.price_rules import (
    PREMIUM,
    STANDARD,
    AppliedRule,
    applied_rule,
    has_network_tiers,
    standard_tier_rule,
)
from skyplane_orchestration.model.location import did_you_mean
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.model.source_contents import NOT_LISTED, SourceContents

if TYPE_CHECKING:
    from skyplane_orchestration.grids.arrays import Floats, Ints, Mask, Names

#: Provenance of a price: a row of price.csv, a price rule, or an agreed price.
FROM_TABLE, FROM_RULES, FROM_OVERRIDE = "table", "rules", "override"
#: Provenance of an instance type that completes a grid.
FROM_SHIPPED: Final = "shipped"
#: Provenance of a rate or round trip; `mixed` is for several edges together.
MEASURED, MODELLED, MIXED, UNKNOWN = "measured", "modelled", "mixed", "unknown"
#: Provenance of a rate that the deployment itself has measured.
LEARNED: Final = "learned"


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One row of limits.csv. Rates are per instance, for traffic that leaves or enters the region.

    Attributes:
        egress_gbps, ingress_gbps: the rates that the instance sustains.
        burst_egress_gbps, burst_ingress_gbps: the rates of a burst, not below the sustained ones;
            None where the provider publishes none.
        burst_s: the least time that a burst of a new instance lasts; 0 without a burst.
        speed: what its processors let gateways carry; None where nobody has measured it.
        provenance: `table` for the grid's own file, else `shipped`.
    """

    cloud: str
    name: str
    vcpus: int
    egress_gbps: float
    ingress_gbps: float
    connection_limit: int
    usd_per_hour: float
    instance_limit: int
    as_of: str = ""
    source: str = ""
    provenance: str = FROM_TABLE
    burst_egress_gbps: float | None = None
    burst_ingress_gbps: float | None = None
    burst_s: float = 0.0
    speed: GatewaySpeed | None = None

    @property
    def has_burst(self) -> bool:
        return self.burst_egress_gbps is not None or self.burst_ingress_gbps is not None

    def bursting(self) -> InstanceType:
        """The same type with the rates of its burst in place of those that it sustains."""
        return replace(
            self,
            egress_gbps=self.burst_egress_gbps or self.egress_gbps,
            ingress_gbps=self.burst_ingress_gbps or self.ingress_gbps,
        )

    @property
    def processes(self) -> int:
        """Gateway processes of an instance."""
        return max(1, min(self.vcpus, MOST_PROCESSES))

    def processor_gbps(self, *roles: Role) -> float:
        """What the processors carry in these roles, a busy vCPU per process; infinite if unknown.

        The work of a process outside its interpreter may use more vCPUs, which is not counted.
        """
        if self.speed is None or not roles:
            return math.inf
        return self.processes * self.speed.gbps(*roles)

    def carrying(self, *roles: Role) -> InstanceType:
        """The same type with the lower of its network and its processors in these roles.

        Nothing enters a region that is a source only, and nothing leaves one that is a sink only.
        """
        most = self.processor_gbps(*roles)
        egress = math.inf if roles == (SINK,) else most
        ingress = math.inf if roles == (SOURCE,) else most
        if egress >= self.egress_gbps and ingress >= self.ingress_gbps:
            return self
        return replace(
            self,
            egress_gbps=min(self.egress_gbps, egress),
            ingress_gbps=min(self.ingress_gbps, ingress),
        )


@dataclass(frozen=True, slots=True)
class StorageLimit:
    """One row of storage.csv: limits of the buckets in matching regions; None = no limit."""

    region_glob: str
    read_gbps: float | None
    write_gbps: float | None
    as_of: str = ""

    def matches(self, tag: str) -> bool:
        return tag.partition(":")[0] == self.region_glob or fnmatchcase(tag, self.region_glob)


@dataclass(frozen=True, slots=True)
class VcpuQuota:
    """One row of quotas.csv: vCPUs that the account may run in a matching region."""

    region_glob: str
    vcpus: int
    as_of: str = ""

    def matches(self, tag: str) -> bool:
        return fnmatchcase(tag, self.region_glob)


@dataclass(frozen=True, slots=True, eq=False)
class ValueDates:
    """Dates and sample counts of single values, arrays (V, V); "" and 0 where unknown."""

    rate: Names
    rtt: Names
    price: Names
    samples: Ints


@dataclass(frozen=True, slots=True, eq=False)
class EdgeValues:
    """Values by ordered pair of regions: arrays (V, V), row = from, column = to.

    Attributes:
        throughput_gbps: rate of one instance pair over 64 connections; 0 = no such edge.
        measured: True where the rate was measured, False where a model supplied it.
        rtt_ms, rtt_measured: the same for round trips (nan where unknown).
        usd_per_gb: egress price per 1e9 bytes.
        price_source: `table`, `rules` or `override` per edge.
        dates: dates of single values.
        learned: True where the deployment has measured the rate itself, which is `measured` too.
        remark: what every plan says of learned rates, such as why they cannot be read.
        sent_gb: cloud -> GB that the deployment has sent to the internet this month.
    """

    throughput_gbps: Floats
    measured: Mask
    rtt_ms: Floats
    rtt_measured: Mask
    usd_per_gb: Floats
    price_source: Names
    dates: ValueDates
    learned: Mask
    remark: str = ""
    sent_gb: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """An immutable grid over V regions. It also has the attributes of `EdgeValues`.

    Attributes:
        types: instance types; the first one of a cloud is its default.
        price_document: the price rules, with the prices of requests.
        edges: returns the values by pair, always the same ones. The shipped grid computes them on
            first use: they need NumPy, and a plan within one region uses none of them.
        model: throughput_model.json, with the dates and the errors of modelled values; see
            `grids.throughput_model` and `grids.promised`.
        measured_noise: standard deviation of measured rates as a share of them: that of a probe,
            0 for rates that are taken as they are.
        overrides: the user's own prices, first match wins.
        storage, quotas: rows of storage.csv and quotas.csv, first match wins.
        account: region tag -> quotas that a provisioner has read; they replace rows of `quotas`.
        provision_s: cloud -> seconds until its gateways respond, for clouds whose time the
            provisioner knows.
        price_ratios: region tag -> price of an instance there, as a share of its type's price; 1
            for others.
        standard_tier: tags of regions whose instances send to other clouds by the standard tier;
            `grids.egress_pricing` sets it.
        month: the volume that tiered prices are for; `grids.egress_pricing` sets it. None: they
            are those of the first tiers.
        has_own_prices: the grid has a price.csv; then bytes and instances cost what its tables say,
            and nothing comes with them.
        source_storage_class, key_requests: of the policy of a job.
        contents: what the listing of a job's source has shown.
        input: name and digest of the file or folder that an imported grid came from.
    """

    name: str
    as_of: str
    source: str
    licence: str
    notes: tuple[str, ...]
    regions: tuple[GridRegion, ...]
    types: tuple[InstanceType, ...]
    price_document: Mapping[str, Any]
    index: Mapping[str, int]
    edges: Callable[[], EdgeValues]
    model: Mapping[str, Any] = field(default_factory=dict)
    measured_noise: float = 0.0
    overrides: tuple[PriceOverride, ...] = ()
    storage: tuple[StorageLimit, ...] = ()
    quotas: tuple[VcpuQuota, ...] = ()
    account: Mapping[str, tuple[RegionQuota, ...]] = field(default_factory=dict)
    provision_s: Mapping[str, float] = field(default_factory=dict)
    price_ratios: Mapping[str, float] = field(default_factory=dict)
    standard_tier: frozenset[str] = frozenset()
    month: MonthlyVolume | None = None
    has_own_prices: bool = False
    source_storage_class: str | None = None
    key_requests: str = "none"
    contents: SourceContents = NOT_LISTED
    input: Mapping[str, Any] = field(default_factory=dict)

    @property
    def throughput_gbps(self) -> Floats:
        return self.edges().throughput_gbps

    @property
    def measured(self) -> Mask:
        return self.edges().measured

    @property
    def rtt_ms(self) -> Floats:
        return self.edges().rtt_ms

    @property
    def rtt_measured(self) -> Mask:
        return self.edges().rtt_measured

    @property
    def usd_per_gb(self) -> Floats:
        return self.edges().usd_per_gb

    @property
    def price_source(self) -> Names:
        return self.edges().price_source

    def with_edges(self, **values: Any) -> Grid:
        """The same grid with other values by pair, named as in `EdgeValues`."""
        changed = replace(self.edges(), **values)
        return replace(self, edges=lambda: changed)

    def with_account(self, quotas: Iterable[RegionQuota]) -> Grid:
        """The same grid with the quotas of the account that is to run the gateways."""
        account: dict[str, tuple[RegionQuota, ...]] = {}
        for quota in quotas:
            account[quota.region] = (*account.get(quota.region, ()), quota)
        return replace(self, account=account)

    def with_processes(self, cloud: str) -> Grid:
        """The same grid, where gateways in a cloud's regions are processes of this machine."""
        processes = [replace(kind, cloud=cloud) for kind in self.types if kind.cloud == "local"]
        others = [kind for kind in self.types if kind.cloud != cloud or not processes]
        return replace(self, types=(*others, *processes))

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(self.index)

    def is_on_request(self, tag: str) -> bool:
        """Whether an account may lack the region: not every account has it, nobody has measured it,
        and no quota of the account says that it is there.
        """
        number = self.index_of(tag)
        return (
            self.regions[number].state not in ("", "default")
            and not self.measured[number].any()
            and tag not in self.account
        )

    def index_of(self, tag: str) -> int:
        """Row and column of a region. Raises UnknownRegion, which suggests similar names."""
        found = self.index.get(tag)
        if found is None:
            hint = did_you_mean(tag, self.index)
            raise UnknownRegion(f"grid {self.name!r} has no region {tag!r}{hint}")
        return found

    def instance_type(self, cloud: str, name: str | None = None) -> InstanceType:
        """A cloud's default type, or the type of that name. Raises GridInvalid if unknown."""
        of_cloud = [kind for kind in self.types if kind.cloud == cloud]
        for kind in of_cloud:
            if name is None or kind.name == name:
                return kind
        offered = ", ".join(kind.name for kind in of_cloud) or "none"
        raise GridInvalid(
            f"limits.csv of grid {self.name!r} has no instance type {name or 'at all'!r}"
            f" for {cloud}; it has: {offered}"
        )

    def priced(self, tag: str, kind: InstanceType) -> InstanceType:
        """A type with its price in a region."""
        ratio = self.price_ratios.get(tag, 1.0)
        return kind if ratio == 1.0 else replace(kind, usd_per_hour=kind.usd_per_hour * ratio)

    def storage_limits(self, tag: str) -> tuple[float | None, float | None]:
        """Read and write limit of a bucket in that region, Gbit/s; None = no limit."""
        for row in self.storage:
            if row.matches(tag):
                return row.read_gbps, row.write_gbps
        return None, None

    def vcpu_quota(self, tag: str, instance_type: str = "") -> int | None:
        """vCPUs that the account may still run in that region; None if unknown.

        Args:
            instance_type: counts the quotas of this type too; empty for those of all types.
        """
        quotas = self.account.get(tag, ())
        read = [quota.free_vcpus for quota in quotas if quota.limits(instance_type)]
        known = [vcpus for vcpus in read if vcpus is not None]
        if known:
            return min(known)
        return next((row.vcpus for row in self.quotas if row.matches(tag)), None)

    def instance_quota(self, tag: str) -> int | None:
        """Instances that the account may run in that region; None if only vCPUs count."""
        counts = [quota.instances for quota in self.account.get(tag, ())]
        return min((count for count in counts if count is not None), default=None)

    def request_prices(self, cloud: str) -> Mapping[str, float]:
        """USD per 1000 requests by verb (`read`, `write`, `list`); empty where unknown."""
        prices: Mapping[str, float] = (self.price_document.get("requests") or {}).get(cloud, {})
        return prices

    @property
    def beside_bytes_and_instances(self) -> Mapping[str, Any]:
        """What the price rules say comes with bytes and instances."""
        facts: Mapping[str, Any] = self.price_document.get("bytes_and_instances") or {}
        return {} if self.has_own_prices else facts

    def egress_price(self, src_tag: str, dst_tag: str) -> float:
        """USD per GB from a region to any place; a place off the grid is the internet."""
        if src_tag in self.index and dst_tag in self.index:
            return float(self.usd_per_gb[self.index[src_tag], self.index[dst_tag]])
        override = first_match(self.overrides, src_tag, dst_tag)
        if override is not None and src_tag != dst_tag:
            return override.usd_per_gb
        return self.price_rule(src_tag, dst_tag).usd_per_gb

    def price_rule(self, src_tag: str, dst_tag: str) -> AppliedRule:
        """The rule of a way whose price comes from the rules. Raises GridInvalid."""
        src, dst = self.region(src_tag), self.region(dst_tag)
        month = self.month_of(src.cloud)
        if src_tag in self.standard_tier and src.cloud != dst.cloud:
            return standard_tier_rule(self.price_document, src, month)
        return applied_rule(self.price_document, src, dst, month)

    def month_of(self, cloud: str) -> MonthlyVolume:
        """The volume that the prices of a cloud are for; without one, that of the next byte."""
        month = self.month or NOTHING_SENT
        if month.already_gb is not None:
            return month
        return replace(month, already_gb=self.edges().sent_gb.get(cloud, 0.0))

    def network_tier(self, src_tag: str, destinations: Iterable[str]) -> str:
        """The network tier of a region's instances, which send to these regions.

        Premium if they send to no other cloud; empty for a cloud without tiers.
        """
        cloud = src_tag.partition(":")[0]
        if not has_network_tiers(self.price_document, cloud):
            return ""
        leaves = any(tag.partition(":")[0] != cloud for tag in destinations)
        return STANDARD if leaves and src_tag in self.standard_tier else PREMIUM

    def region(self, tag: str) -> GridRegion:
        """The region of that tag; one without facts for a place off the grid."""
        return self.regions[self.index[tag]] if tag in self.index else GridRegion(tag)
