"""Builds a `TransferPlan` from an overlay, with its prices and its provenance."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from skyplane_gateway.common.schema import check
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.grids import FROM_RULES, Grid
from skyplane_orchestration.grids.gateway_speed import SINK, SOURCE
from skyplane_orchestration.grids.grid import MEASURED, MIXED, MODELLED
from skyplane_orchestration.grids.price_rules import STANDARD
from skyplane_orchestration.model.job import Limits, require_at_least, require_positive
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanCost,
    PlanEdge,
    PlanPath,
    SolverReport,
    TransferPlan,
)
from skyplane_orchestration.planner.constraint_names import (
    INSTANCE_QUOTA,
    STORAGE_READ,
    STORAGE_WRITE,
    VCPU_QUOTA,
)
from skyplane_orchestration.planner.instance_options import (
    quota_of,
    read_limit_gbps,
    roles_in,
    write_limit_gbps,
)
from skyplane_orchestration.planner.overlay import Overlay
from skyplane_orchestration.planner.pricing import instance_billing, plan_cost
from skyplane_orchestration.planner.pricing.other_items import (
    OtherItems,
    other_items,
    priced_classes,
)
from skyplane_orchestration.planner.promise import expected_and_promised_gbps
from skyplane_orchestration.planner.transfer_time import ONE_OBJECT_SHARE, Bound, ObjectWork
from skyplane_orchestration.units import gb_to_gbit

#: The lowest rate of any plan: slower flows are within the solver's tolerance.
LEAST_GBPS: Final = 1e-3
#: Rounding of a rate.
_ROUNDING: Final = 1e-4
#: Less is not worth a note: seconds, and a share of the bytes.
_WORTH_A_NOTE_S, _WORTH_A_NOTE = 1.0, 0.001


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The job of a plan, without its objective: region tags, and None for what is not known."""

    grid: Grid
    src: str
    destinations: tuple[str, ...]
    volume_gb: float | None
    objects: int | None
    limits: Limits

    def __post_init__(self) -> None:
        check(self)
        require_positive("volume_gb", self.volume_gb)
        require_at_least("objects", self.objects, 0)

    @property
    def dst(self) -> str:
        """The only destination."""
        return self.destinations[0]

    @property
    def route(self) -> str:
        """The ends in words."""
        return f"{self.src} to {', '.join(self.destinations)}"

    @property
    def volume_gbit(self) -> float:
        """Raises ConfigurationInvalid without a volume; `require_volume` refuses earlier."""
        if not self.volume_gb:
            raise ConfigurationInvalid("an objective in USD of the job needs a volume")
        return gb_to_gbit(self.volume_gb)

    def total_usd(self, usd_per_gbit: float) -> float:
        """USD for the job from USD per Gbit of egress, instances and their further items."""
        return usd_per_gbit * self.volume_gbit + self._fixed_usd

    def usd_per_gbit(self, total_usd: float) -> float:
        """USD per Gbit for egress and instances that a total leaves beside its fixed items."""
        return (total_usd - self._fixed_usd) / self.volume_gbit

    @property
    def _fixed_usd(self) -> float:
        """What the objects cost, whatever the plan."""
        return (self.requests_usd or 0.0) + sum(self.other_items.fixed_usd.values())

    @property
    def other_items(self) -> OtherItems:
        """What the bill has beside egress, instances and requests."""
        return other_items(self.grid, self.src, self.destinations, self.objects, self.volume_gb)

    @property
    def requests_usd(self) -> float | None:
        """Price of all requests of the job; None when the number of objects is not known."""
        if self.objects is None:
            return None
        return plan_cost.request_usd(
            self.grid,
            self.src,
            self.destinations,
            self.objects,
            self.volume_gb,
            self.limits.part_mib,
            whole_mib=self.limits.whole_mib,
        )

    @property
    def object_work(self) -> ObjectWork | None:
        """The requests of the job; None when volume or number of objects is not known."""
        if not self.objects or not self.volume_gb:
            return None
        return ObjectWork.of(
            self.src,
            self.destinations,
            self.objects,
            self.volume_gb,
            self.limits.part_mib,
            self.limits.whole_mib,
            self.grid.contents.largest,
        )

    def object_bound(self, overlay: Overlay | None = None) -> Bound:
        """What the objects take at least: with the instances of an overlay, or with any."""
        work = self.object_work
        if work is None:
            return Bound(0.0)
        return work.least if overlay is None else work.bound(overlay.instances, overlay.types)

    @property
    def share(self) -> float:
        """The share of a plan's rate that the objects reach."""
        work = self.object_work
        return 1.0 if work is None else work.share

    def transfer_s(self, gbps: float) -> float:
        """The least seconds of moving at a rate, whatever the instances.

        Raises ConfigurationInvalid without a volume.
        """
        return max(self.volume_gbit / (self.share * gbps), self.object_bound().seconds)

    def transfer_s_of(self, overlay: Overlay) -> float | None:
        """Seconds of moving with these instances; None without a volume."""
        if self.volume_gb is None:
            return None
        moving_s = gb_to_gbit(self.volume_gb) / (self.share * overlay.throughput_gbps)
        return max(moving_s, self.object_bound(overlay).seconds)

    def cost(self, egress_usd_per_gb: float, overlay: Overlay, wait_s: float) -> PlanCost:
        """The cost of an overlay whose gateways respond after `wait_s`."""
        return plan_cost.itemised(
            egress_usd_per_gb,
            overlay,
            self.volume_gb or None,
            self.requests_usd,
            wait_s,
            self.transfer_s_of(overlay),
            self.other_items,
        )

    def wait_s(self, regions: Iterable[str]) -> float:
        """Seconds until the gateways in these regions respond."""
        return instance_billing.provision_s(regions, self.grid.provision_s)

    @property
    def store_gbps(self) -> dict[str, float]:
        """`storage_read TAG` or `storage_write TAG` -> the limit of that store, where known."""
        limits = {f"{STORAGE_READ} {self.src}": read_limit_gbps(self.grid, self.src, self.limits)}
        for tag in self.destinations:
            limits[f"{STORAGE_WRITE} {tag}"] = write_limit_gbps(self.grid, tag, self.limits)
        return {name: most for name, most in limits.items() if most is not None}


def assemble(
    request: PlanRequest,
    overlay: Overlay,
    *,
    objective: Mapping[str, Any],
    binding: tuple[str, ...],
    solver: SolverReport,
    egress_usd_per_gb: float | None = None,
) -> TransferPlan:
    """The plan of one overlay.

    Args:
        objective: as plain data.
        egress_usd_per_gb: replaces the edges' prices, for a plan without edges.
    """
    grid = request.grid
    if egress_usd_per_gb is None:
        egress_usd_per_gb = plan_cost.egress_usd_per_gb(grid, overlay)
    expected, promised = None, None
    if overlay.flows and not overlay.trees:
        stores, confidence = request.store_gbps.values(), request.limits.confidence
        expected, promised = expected_and_promised_gbps(grid, overlay, stores, confidence)
    edges = tuple(_plan_edge(grid, overlay, tail, head) for tail, head in overlay.flows)
    wait_s = request.wait_s(overlay.instances)
    types = overlay.types.values()
    speeds = (kind.speed.provenance for kind in types if kind.speed is not None)
    return TransferPlan(
        src=request.src,
        dst=request.dst,
        objective=dict(objective),
        throughput_gbps=overlay.throughput_gbps,
        volume_gb=request.volume_gb,
        transfer_s=request.transfer_s_of(overlay),
        provision_s=wait_s,
        cost=request.cost(egress_usd_per_gb, overlay, wait_s),
        instances=_instance_groups(request, overlay),
        edges=edges,
        binding=binding,
        solver=solver,
        grid=GridReference(
            name=grid.name,
            as_of=grid.as_of,
            throughput=_one_or_mixed((edge.throughput for edge in edges), MODELLED),
            prices=_one_or_mixed((edge.price for edge in edges), FROM_RULES),
            gateway_speed="; ".join(dict.fromkeys(speeds)),
        ),
        paths=tuple(PlanPath(regions, flow) for regions, flow in overlay.paths.items()),
        notes=tuple(_notes(request, overlay, binding)),
        objects=request.objects,
        contents=grid.contents,
        expected_gbps=expected,
        promised_gbps=promised,
        confidence=request.limits.confidence,
    )


def _notes(request: PlanRequest, overlay: Overlay, binding: tuple[str, ...]) -> Iterator[str]:
    """What a reader should know of the objects, prices, rates and quotas of an overlay."""
    yield from _notes_on_objects(request, overlay)
    yield from _notes_on_prices(request.grid, overlay)
    yield from _notes_on_tiers(request.grid, overlay)
    yield from _notes_on_volume(request.grid, overlay)
    yield from _notes_on_learned_rates(request.grid, overlay.flows)
    yield from _notes_on_quotas(request, overlay, binding)


def _notes_on_objects(request: PlanRequest, overlay: Overlay) -> Iterator[str]:
    """Storage classes whose retrieval costs, and objects that need more time than their bytes."""
    grid, bound = request.grid, request.object_bound(overlay)
    if grid.source_storage_class is None:
        for name, (_, share) in priced_classes(grid, request.src).items():
            if share >= _WORTH_A_NOTE:
                yield (
                    f"{100 * share:.3g} % of the bytes are in the storage class {name}; the "
                    "total counts their retrieval"
                )
    least = (request.transfer_s_of(overlay) or 0.0) * (1 - _ROUNDING)
    if bound.seconds >= max(least, _WORTH_A_NOTE_S):
        yield f"the objects need more time than their bytes: {bound.sentence}"
    elif request.share < 1:
        yield (
            f"one object moves at {ONE_OBJECT_SHARE:g} of the rate of many, and the largest has "
            f"{100 * ONE_OBJECT_SHARE / request.share:.3g} % of the bytes"
        )


def _notes_on_quotas(
    request: PlanRequest, overlay: Overlay, binding: Sequence[str]
) -> Iterator[str]:
    """A note for each region where the account allows no more instances, and more would help."""
    for name in binding:
        kind, _, tag = name.partition(" ")
        if kind in (INSTANCE_QUOTA, VCPU_QUOTA):
            quota = quota_of(request.grid, tag, overlay.types[tag], request.limits)
            if quota.owner:
                yield (
                    f"the plan has all instances that {tag} may have:"
                    f" {quota.instances}, by {quota.owner}"
                )


def _instance_groups(request: PlanRequest, overlay: Overlay) -> dict[str, InstanceGroup]:
    """The instances of each region, with their type, price, network tier and processors."""
    found = {}
    for tag, count in overlay.instances.items():
        kind = overlay.types[tag]
        roles = roles_in(tag, request.src, request.destinations)
        gbps = kind.processor_gbps(*(roles if overlay.flows else (SOURCE, SINK)))
        tier = _network_tier(request.grid, overlay, tag)
        found[tag] = InstanceGroup(
            kind.name, count, kind.usd_per_hour, tier, gbps if math.isfinite(gbps) else None
        )
    return found


def _network_tier(grid: Grid, overlay: Overlay, tag: str) -> str:
    return grid.network_tier(tag, (head for tail, head in overlay.flows if tail == tag))


def _plan_edge(grid: Grid, overlay: Overlay, tail: str, head: str) -> PlanEdge:
    place = grid.index_of(tail), grid.index_of(head)
    return PlanEdge(
        src=tail,
        dst=head,
        flow_gbps=overlay.flows[tail, head],
        connections=overlay.connections[tail, head],
        capacity_gbps=float(grid.throughput_gbps[place]),
        usd_per_gb=float(grid.usd_per_gb[place]),
        throughput=MEASURED if grid.measured[place] else MODELLED,
        price=str(grid.price_source[place]),
    )


def _one_or_mixed(kinds: Iterable[str], none: str) -> str:
    found = set(kinds)
    return MIXED if len(found) > 1 else next(iter(found), none)


def _notes_on_learned_rates(grid: Grid, edges: Collection[tuple[str, str]]) -> Iterator[str]:
    """What a plan on these edges says of rates that the deployment has measured itself."""
    if not edges:
        return
    values = grid.edges()
    if values.remark:
        yield values.remark
    places = [(grid.index_of(tail), grid.index_of(head)) for tail, head in edges]
    days = [str(values.dates.rate[place]) for place in places if values.learned[place]]
    if days:
        yield f"rates of {counted(len(days), 'edge')}: measured here, newest {max(days)}"


def _notes_on_tiers(grid: Grid, overlay: Overlay) -> tuple[str, ...]:
    """A note that names regions that send by the standard tier, whose rate nobody has measured."""
    tags = [tag for tag in overlay.instances if _network_tier(grid, overlay, tag) == STANDARD]
    if not tags:
        return ()
    return (
        f"{', '.join(sorted(tags))} sends to other clouds by the standard network tier; its rate is"
        " planned like that of the premium tier, and was not measured",
    )


def _notes_on_volume(grid: Grid, overlay: Overlay) -> tuple[str, ...]:
    """What each cloud has sent this month, and how the volume falls into the tiers of a price."""
    notes: dict[str, None] = {}
    for edge in overlay.flows:
        if grid.price_source[grid.index_of(edge[0]), grid.index_of(edge[1])] == FROM_RULES:
            notes |= dict.fromkeys(_in_tiers(grid, *edge))
    return tuple(notes)


def _in_tiers(grid: Grid, src: str, dst: str) -> Iterator[str]:
    """In words, how the volume of the month falls into the tiers of a price."""
    rule = grid.price_rule(src, dst)
    if grid.month is None or not rule.shares:
        return
    cloud = grid.region(src).cloud
    month = grid.month_of(cloud)
    if grid.month.already_gb is None and month.already_gb and month.already_gb >= 1:
        yield f"{month.already_gb:,.0f} GB sent from {cloud} this month, by the learned grid"
    if rule.shares[-1].number == 1:
        return
    parts = [f"tier {one.number} ${one.usd:g}" for one in rule.shares]
    if month.volume_gb:
        parts = [
            f"{share.amount:,.0f} {rule.unit} in {words}"
            for share, words in zip(rule.shares, parts, strict=True)
        ]
    yield (
        f"egress of {src} by the volume of the month, per {rule.unit}: {', '.join(parts)}"
        f" ({rule.rule}; {month.already_gb:,.0f} GB sent before)"
    )


def _notes_on_prices(grid: Grid, overlay: Overlay) -> tuple[str, ...]:
    """Notes on prices that are a neighbour's, or that were not read in a list."""
    assumed = sorted(
        {
            tag
            for edge in overlay.flows
            for tag in edge
            if not grid.regions[grid.index_of(tag)].price_verified
        }
    )
    unread = {
        f"the price from {src} to {dst} ({rule.rule}) was not read in a list"
        for src, dst in overlay.flows
        if src not in assumed
        and grid.price_source[grid.index_of(src), grid.index_of(dst)] == FROM_RULES
        if not (rule := grid.price_rule(src, dst)).is_verified
    }
    notes = [f"prices of {', '.join(assumed)} were never verified: a neighbour's are used"]
    return (*(notes if assumed else ()), *sorted(unread))
