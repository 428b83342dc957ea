"""An independent check that a plan satisfies its constraints.

It shares no code with the formulation. It reads the plan and the grid, and evaluates every
constraint of the paper (4b to 4j) on the plan's own integers in plain Python, and also instance
types, vCPU quotas, the safety margin and store limits.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise

from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.model.job import NO_LIMITS, Limits
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.units import usd_per_gbit_to_usd_per_gb, usd_per_hour_to_usd_per_s

#: Connections of a grid's measurements, stated here again on purpose.
MEASURED_OVER = 64
#: What the solver's tolerance and rounding may leave, relative to the limit.
RELATIVE = 1e-5
#: A gateway process keeps at least one vCPU busy, and an instance has no more processes.
MOST_PROCESSES = 8
#: The edges and the flow of each path or tree.
Parts = Sequence[tuple[Iterable[tuple[str, str]], float]]


def violations(plan: TransferPlan, grid: Grid, limits: Limits = NO_LIMITS) -> list[str]:
    """Every constraint that the plan breaks, in words; `limits` as the plan was made with."""
    return [
        *edges_beyond_capacity(plan, grid, limits),
        *_balance(plan),
        *beyond_store_limits(plan, (plan.dst,), grid, limits),
        *beyond_region_limits(plan, (plan.src, plan.dst), grid, limits),
        *_paths(plan),
        *wrong_sums(plan, "path", [(pairwise(one.regions), one.flow_gbps) for one in plan.paths]),
        *wrong_price(plan, grid),
    ]


def above(value: float, limit: float) -> bool:
    """Whether a value exceeds a limit by more than the tolerance."""
    return value > limit + RELATIVE * max(1.0, abs(limit))


def differs(value: float, other: float) -> bool:
    """Whether two figures differ by more than the tolerance."""
    return abs(value - other) > RELATIVE * max(1.0, abs(other))


def edges_beyond_capacity(plan: TransferPlan, grid: Grid, limits: Limits) -> Iterator[str]:
    """(4b) with the safety margin, and that connections are whole."""
    for edge in plan.edges:
        stated = float(grid.throughput_gbps[grid.index_of(edge.src), grid.index_of(edge.dst)])
        if edge.connections != int(edge.connections) or edge.connections < 1:
            yield f"{edge.src} -> {edge.dst} has {edge.connections} connections"
        if differs(edge.capacity_gbps, stated):
            yield (
                f"{edge.src} -> {edge.dst} states a capacity of {edge.capacity_gbps:g} Gbit/s,"
                f" not the grid's {stated:g}"
            )
        capacity = stated * (1 - limits.safety_margin)
        if above(edge.flow_gbps, capacity * edge.connections / MEASURED_OVER):
            yield (
                f"(4b) {edge.src} -> {edge.dst} carries {edge.flow_gbps:g} Gbit/s over"
                f" {edge.connections} connections"
            )


def _balance(plan: TransferPlan) -> Iterator[str]:
    """(4c), (4d) and (4e)."""
    net: dict[str, float] = defaultdict(float)
    for edge in plan.edges:
        net[edge.src] += edge.flow_gbps
        net[edge.dst] -= edge.flow_gbps
    if not plan.edges:
        return
    for region, surplus in net.items():
        wanted = {plan.src: plan.throughput_gbps, plan.dst: -plan.throughput_gbps}.get(region, 0.0)
        if differs(surplus, wanted):
            yield f"(4c-4e) {region} sends {surplus:g} Gbit/s more than it gets, not {wanted:g}"


def beyond_store_limits(
    plan: TransferPlan, destinations: Collection[str], grid: Grid, limits: Limits
) -> Iterator[str]:
    """Limits of the stores at the ends; the job's figure takes precedence over the grid's."""
    stores = [("read", plan.src, limits.source_read_gbps or grid.storage_limits(plan.src)[0])]
    for tag in destinations:
        write = limits.destination_write_gbps or grid.storage_limits(tag)[1]
        stores.append(("write", tag, write))
    for verb, region, limit in stores:
        if plan.edges and limit is not None and above(plan.throughput_gbps, limit):
            yield (
                f"storage {verb} of {region}: {plan.throughput_gbps:g} Gbit/s where {limit:g}"
                " is the limit"
            )


def beyond_region_limits(
    plan: TransferPlan, ends: Collection[str], grid: Grid, limits: Limits
) -> Iterator[str]:
    """(4f) to (4j), the instance types, and the number of relays."""
    if limits.max_relays is not None and len(plan.relays) > limits.max_relays:
        yield f"{len(plan.relays)} relays where {limits.max_relays} is the limit"
    touched = {end for edge in plan.edges for end in (edge.src, edge.dst)}
    for region in sorted(touched.union(ends)):
        group = plan.instances.get(region)
        if group is None:
            yield f"{region} carries flow and has no instances"
            continue
        kind = grid.instance_type(region.partition(":")[0], group.type)
        asked = limits.instance_types.get(kind.cloud, kind.name)
        if kind.name != asked:
            yield f"{region} has instances of {kind.name} where {asked} was asked for"
        yield from _beyond_quotas(region, kind, group.count, grid, limits)
        yield from _beyond_instances(plan, region, kind, group.count)
        yield from _beyond_processors(plan, region, kind, group.count, is_end=region in ends)


def _beyond_quotas(
    region: str, kind: InstanceType, count: int, grid: Grid, limits: Limits
) -> Iterator[str]:
    """(4j) for whole instances, and vCPU quotas of the job and of the account."""
    if count != int(count):
        yield f"{region} has {count} instances"
    own = grid.instance_quota(region)
    standard = kind.instance_limit if own is None and limits.instance_limit is None else None
    for quota in (limits.instance_limit, own, standard):
        if quota is not None and above(count, quota):
            yield f"(4j) instances of {region}: {count:g} where {quota:g} is the limit"
    for vcpus in (limits.vcpu_quota.get(kind.cloud), grid.vcpu_quota(region)):
        if vcpus is not None and count * kind.vcpus > vcpus:
            yield f"vCPUs of {region}: {count * kind.vcpus} where {vcpus} is the quota"


def _beyond_instances(
    plan: TransferPlan, region: str, kind: InstanceType, count: int
) -> Iterator[str]:
    """(4f) to (4i) of one region."""
    inward = [edge for edge in plan.edges if edge.dst == region]
    outward = [edge for edge in plan.edges if edge.src == region]
    connections = kind.connection_limit * count
    for name, used, limit in (
        ("(4f) ingress", sum(e.flow_gbps for e in inward), kind.ingress_gbps * count),
        ("(4g) egress", sum(e.flow_gbps for e in outward), kind.egress_gbps * count),
        ("(4h) connections out", sum(e.connections for e in outward), connections),
        ("(4i) connections in", sum(e.connections for e in inward), connections),
    ):
        if above(used, limit):
            yield f"{name} of {region}: {used:g} where {limit:g} is the limit"


def _beyond_processors(
    plan: TransferPlan, region: str, kind: InstanceType, count: int, *, is_end: bool
) -> Iterator[str]:
    """The seconds that the gateways of a region are busy in each second, where known."""
    if kind.speed is None:
        return
    received = sum(edge.flow_gbps for edge in plan.edges if edge.dst == region)
    sent = sum(edge.flow_gbps for edge in plan.edges if edge.src == region)
    if region == plan.src:
        busy = sent / kind.speed.source_gbps
    elif is_end:
        busy = received / kind.speed.sink_gbps + sent / kind.speed.relay_gbps
    else:
        busy = sent / kind.speed.relay_gbps
    vcpus = min(kind.vcpus, MOST_PROCESSES) * count
    if above(busy, vcpus):
        yield f"processors of {region}: {busy:g} vCPUs busy where {vcpus} run gateways"


def _paths(plan: TransferPlan) -> Iterator[str]:
    """Paths run from source to sink and visit no region twice."""
    for path in plan.paths:
        if plan.edges and (path.regions[0], path.regions[-1]) != (plan.src, plan.dst):
            yield f"path {' -> '.join(path.regions)} does not join source and sink"
        if len(set(path.regions)) != len(path.regions):
            yield f"path {' -> '.join(path.regions)} visits a region twice"


def wrong_sums(plan: TransferPlan, kind: str, parts: Parts) -> Iterator[str]:
    """Paths or trees add up to the throughput, and over each edge to its flow."""
    if differs(sum(flow for _, flow in parts), plan.throughput_gbps):
        yield f"the {kind}s do not add up to the throughput"
    over: dict[tuple[str, str], float] = defaultdict(float)
    for edges, flow in parts:
        for edge in edges:
            over[edge] += flow
    for one in plan.edges:
        if differs(over.pop((one.src, one.dst), 0.0), one.flow_gbps):
            yield f"the {kind}s over {one.src} -> {one.dst} do not add up to its flow"
    for tail, head in over:
        yield f"a {kind} uses {tail} -> {head}, which is no edge of the plan"


def wrong_price(plan: TransferPlan, grid: Grid) -> Iterator[str]:
    """(4a) per GB, for plans over edges."""
    if not plan.edges:
        return
    egress = sum(
        edge.flow_gbps
        / plan.throughput_gbps
        * float(grid.usd_per_gb[grid.index_of(edge.src), grid.index_of(edge.dst)])
        for edge in plan.edges
    )
    per_s = sum(
        usd_per_hour_to_usd_per_s(
            grid.instance_type(region.partition(":")[0], group.type).usd_per_hour
            * grid.price_ratios.get(region, 1.0)
        )
        * group.count
        for region, group in plan.instances.items()
    )
    stated = egress + usd_per_gbit_to_usd_per_gb(per_s / plan.throughput_gbps)
    if abs(plan.cost.usd_per_gb - stated) > RELATIVE * stated:
        yield f"(4a) the plan says {plan.cost.usd_per_gb:g} USD per GB, its integers {stated:g}"
