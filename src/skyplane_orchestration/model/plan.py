"""The plan for a job: regions, instances, paths, connections and their price.

`to_dict()` is the object that `skyplane-orch plan --json` prints. Rates are Gbit/s (1e9
bit/s), prices USD per GB (1e9 bytes).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import import_module
from itertools import pairwise
from typing import Any

from skyplane_gateway.common.schema import Document, decode
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.source_contents import NOT_LISTED, SourceContents

PLAN_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class PlanEdge:
    """One ordered region pair that carries bytes.

    Attributes:
        flow_gbps: planned rate over the whole edge (F in the paper).
        connections: TCP connections over the whole edge, all instances together (M).
        capacity_gbps: the grid's rate of one instance pair with 64 connections.
        throughput: origin of that rate, `measured` or `modelled`.
        price: origin of the price, `table`, `rules` or `override`.
    """

    src: str
    dst: str
    flow_gbps: float
    connections: int
    capacity_gbps: float
    usd_per_gb: float
    throughput: str = "modelled"
    price: str = "rules"


@dataclass(frozen=True, slots=True)
class PlanPath:
    """One path from source to sink; the flows of all paths add up to the throughput."""

    regions: tuple[str, ...]
    flow_gbps: float


@dataclass(frozen=True, slots=True)
class InstanceGroup:
    """The instances of one region: all of one type (N in the paper).

    Attributes:
        network_tier: of their public addresses, `premium` or `standard`; empty where the cloud
            has no such choice.
        processor_gbps: what the processors of one instance carry there; None where unknown.
    """

    type: str
    count: int
    usd_per_hour: float = 0.0
    network_tier: str = ""
    processor_gbps: float | None = None


@dataclass(frozen=True, slots=True)
class PlanCost:
    """Predicted cost. `usd_per_gb` is egress plus instances as in (4a), and nothing else.

    The sums in USD are None without a volume; `request_usd` also without a number of objects.

    Attributes:
        egress_usd: every hop of every byte.
        instance_usd: instances while bytes move.
        request_usd: reads, writes and listings of the objects.
        total_usd: the sum of all items; unknown requests count as zero.
        boot_usd: instances while they wait for the slowest cloud to come up.
        minimum_billing_usd: what clouds charge in addition for a short life.
        other_usd: what else is counted, such as packet headers, public addresses, disks, retrieval
            from a storage class and requests to a key service: item -> amount.
    """

    egress_usd: float | None
    instance_usd: float | None
    request_usd: float | None
    total_usd: float | None
    usd_per_gb: float
    boot_usd: float | None = None
    minimum_billing_usd: float | None = None
    other_usd: Mapping[str, float] = field(default_factory=dict, hash=False)

    def shared(self, count: int) -> PlanCost:
        """An equal share of it, for one of so many destinations."""
        amounts = {
            one.name: value / count
            for one in fields(self)
            if isinstance(value := getattr(self, one.name), float)
        }
        others = {item: usd / count for item, usd in self.other_usd.items()}
        return replace(self, **amounts, other_usd=others)


@dataclass(frozen=True, slots=True)
class SolverReport:
    """The proven quality of the plan.

    Attributes:
        status: `optimal`, or `feasible` when a limit stopped the search at `gap`.
        gap: proven relative distance between the plan's objective and the bound.
        bound: proven bound on the objective, in its own unit: Gbit/s for the most
            throughput; else USD for the job, or USD per GB (4a) without a volume and for
            `exactly`.
        solve_s: wall seconds spent planning.
    """

    status: str
    gap: float
    bound: float
    solve_s: float


@dataclass(frozen=True, slots=True)
class GridReference:
    """Which grid the plan was made on, and whether its rates were measured.

    Attributes:
        throughput: `measured`, `modelled` or `mixed`, over the edges that the plan uses.
        prices: `table`, `rules`, `override` or `mixed`, over the same edges.
        gateway_speed: when and where the gateway's own speed was measured; empty if it is unknown.
    """

    name: str
    as_of: str
    throughput: str
    prices: str = "rules"
    gateway_speed: str = ""


@dataclass(frozen=True, slots=True)
class RefusedLaunch:
    """An instance that a cloud has refused, so that another plan was made.

    Attributes:
        instances: how many instances the fleet got in that region.
        is_quota: a quota is used up; else the region has no such instance.
        quota: the quota's name, or the cloud's words that hold it.
        series: begin of the names of the instance types that the quota limits; empty for all.
    """

    region: str
    instance_type: str
    instances: int
    is_quota: bool
    quota: str = ""
    series: str = ""

    @property
    def warning(self) -> str:
        """What happened, and what to ask for."""
        got = f"only {self.instances}" if self.instances else "no"
        if self.is_quota:
            cloud = self.region.partition(":")[0]
            why = f"a quota is used up; ask {cloud} for more of: {self.quota or 'that quota'}"
        else:
            why = "the region does not offer more of that type now"
        return (
            f"planned again, because {self.region} gave {got} {self.instance_type} instances: {why}"
        )


@dataclass(frozen=True, slots=True)
class PlanTree:
    """One distribution tree: edges that join the source to every destination.

    The flows of all trees add up to the throughput; a byte travels over each edge of its
    tree once, whatever number of destinations lies behind it.
    """

    edges: tuple[tuple[str, str], ...]
    flow_gbps: float

    def path_to(self, region: str) -> tuple[str, ...]:
        """The regions from the source to that one."""
        above = {head: tail for tail, head in self.edges}
        path = [region]
        while path[0] in above:
            path.insert(0, above[path[0]])
        return tuple(path)


@dataclass(frozen=True, slots=True)
class TransferPlan(Document, what="a plan document", version=PLAN_SCHEMA_VERSION):
    """The overlay that answers one job.

    A transfer inside one region, or from and to a file on this machine, has no edges, one
    path of one region and the instances of that region alone.

    Attributes:
        src: region tag.
        objective: the job's objective, as plain data.
        throughput_gbps: planned payload rate from the source to each destination.
        volume_gb: volume to move, counted once; None when not given, 0 when there is nothing to
            copy.
        transfer_s: predicted seconds of moving, without provisioning; None without volume.
        provision_s: predicted seconds until the gateways are up.
        cost: with several destinations per GB of source data that has reached all of them.
        instances: region tag -> instances there.
        edges: what each edge carries.
        binding: names of the limits that bind.
        dst: region tag; the first of several destinations.
        paths: how the bytes go; their flows add up to the rate of each destination.
        server_side_copy: the store itself copies large objects within its region; their bytes pass
            through no gateway, and the rate and the instances are for the other objects.
        notes: remarks for the reader, such as a price that was never verified.
        objects: number of objects to move; None when not given.
        contents: what the listing of the source has shown of them.
        refused: launches that clouds refused for earlier plans of this job, and that this plan
            does without.
        replaces: the `shape` of the first plan of this job, which was refused, or made before the
            fleet had measured its edges; empty for that one.
        expected_gbps: the rate that the grid expects of all connections of the plan; not below
            the planned one. None within one region.
        promised_gbps: the rate that at least the share `confidence` of transfers reaches.
        egress_ceiling_usd_per_gb: the most that egress may cost on average under the ceilings, with
            the planned cost of all else; None without a ceiling. Transfers keep it.
        destinations, trees: of a plan for several destinations: region tags, and how the bytes
            reach all of them.
        separate_usd_per_gb: the sum of the prices of one plan per destination, at the same rate and
            by itself; None for one destination, and where one has no such plan.
    """

    src: str
    objective: Mapping[str, Any]
    throughput_gbps: float
    volume_gb: float | None
    transfer_s: float | None
    provision_s: float
    cost: PlanCost
    instances: Mapping[str, InstanceGroup]
    edges: tuple[PlanEdge, ...]
    binding: tuple[str, ...]
    solver: SolverReport
    grid: GridReference
    dst: str
    paths: tuple[PlanPath, ...]
    notes: tuple[str, ...] = field(default=())
    server_side_copy: bool = False
    objects: int | None = None
    contents: SourceContents = NOT_LISTED
    refused: tuple[RefusedLaunch, ...] = ()
    replaces: str = ""
    expected_gbps: float | None = None
    promised_gbps: float | None = None
    confidence: float = 0.9
    egress_ceiling_usd_per_gb: float | None = None
    destinations: tuple[str, ...] = ()
    trees: tuple[PlanTree, ...] = ()
    separate_usd_per_gb: float | None = None

    def _repr_html_(self) -> str:
        # By its name: the model knows nothing above it.
        return str(import_module("skyplane_orchestration.report.page").notebook_view(self))

    @property
    def instance_count(self) -> int:
        return sum(group.count for group in self.instances.values())

    @property
    def ends(self) -> tuple[str, ...]:
        """The source and every destination."""
        return (self.src, *(self.destinations or (self.dst,)))

    def branch(self, region: str) -> TransferPlan:
        """The part of a plan for several destinations that leads to one of them.

        Its cost is an equal share of the whole.
        """
        paths = tuple(PlanPath(tree.path_to(region), tree.flow_gbps) for tree in self.trees)
        on_way = {tag for path in paths for tag in path.regions}
        hops = {hop for path in paths for hop in pairwise(path.regions)}
        return replace(
            self,
            dst=region,
            paths=paths,
            edges=tuple(edge for edge in self.edges if (edge.src, edge.dst) in hops),
            instances={tag: group for tag, group in self.instances.items() if tag in on_way},
            cost=self.cost.shared(len(self.destinations)),
            destinations=(),
            trees=(),
            separate_usd_per_gb=None,
        )

    @property
    def shape(self) -> str:
        """Digest of objective, instances and paths: the same where one job is planned twice.

        Prices are not in it, since those by the volume of the month change in between.
        """
        document = self.to_dict()
        parts = [document[key] for key in ("src", "dst", "objective", "instances", "paths")]
        parts += [(edge.src, edge.dst, edge.connections) for edge in self.edges]
        text = json.dumps(parts, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    @property
    def relays(self) -> tuple[str, ...]:
        """Regions that are neither source nor destination, in order of their names."""
        return tuple(sorted(set(self.instances).difference(self.ends)))

    @property
    def in_words(self) -> str:
        """Rate, price and instances in one line."""
        groups = (f"{tag} {group.count} {group.type}" for tag, group in self.instances.items())
        return (
            f"{self.throughput_gbps:.2f} Gbit/s for {self.cost.usd_per_gb:.4f} USD per GB"
            f" on {', '.join(groups)}"
        )

    @property
    def needs_gateways(self) -> bool:
        """False where there is nothing to copy."""
        return self.volume_gb != 0

    def without_work(self) -> TransferPlan:
        """The same plan for a job that has nothing to copy: it takes no time and costs nothing."""
        return replace(
            self,
            volume_gb=0.0,
            transfer_s=0.0,
            provision_s=0.0,
            cost=PlanCost(0.0, 0.0, 0.0, 0.0, self.cost.usd_per_gb, 0.0, 0.0),
            notes=(*self.notes, "there is nothing to copy, so no gateways are started"),
        )

    def to_json(self) -> str:
        """The plan as one indented JSON object."""
        return json.dumps(self.to_dict(), indent=2)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TransferPlan:
        """The plan that `to_dict()` wrote.

        Raises ConfigurationInvalid when the document has another version or lacks a field.
        """
        try:
            return decode(cls, data, "a plan document", version=PLAN_SCHEMA_VERSION)
        except ConfigurationInvalid as error:
            raise ConfigurationInvalid(f"{error.message}; make the plan again") from error
