"""An independent check that a plan for several destinations holds as stated.

Shares no code with the formulation: it reads the plan and the grid, and evaluates what a
distribution tree is, how rates add up, and (4b) to (4j) on the plan's own integers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.job import NO_LIMITS, Limits
from skyplane_orchestration.multicast_plan import MulticastPlan, PlanTree
from skyplane_orchestration.units import usd_per_gbit_to_usd_per_gb, usd_per_hour_to_usd_per_s

MEASURED_OVER = 64
RELATIVE = 1e-5


def multicast_violations(plan: MulticastPlan, grid: Grid, limits: Limits = NO_LIMITS) -> list[str]:
    """Every constraint that the plan breaks, in words; empty when it holds.

    Args:
        limits: those that the plan was made with.
    """
    return [
        *_trees(plan),
        *_rates(plan),
        *_edges(plan, grid, limits),
        *_regions(plan, grid, limits),
        *_ends(plan, grid, limits),
        *_price(plan, grid),
    ]


def _above(value: float, limit: float) -> bool:
    return value > limit + RELATIVE * max(1.0, abs(limit))


def _differs(value: float, other: float) -> bool:
    return abs(value - other) > RELATIVE * max(1.0, abs(other))


def _trees(plan: MulticastPlan) -> Iterator[str]:
    """Each tree is an arborescence from the source that reaches every destination."""
    for number, tree in enumerate(plan.trees, 1):
        heads = Counter(head for _, head in tree.edges)
        for region, count in heads.items():
            if count > 1:
                yield f"tree {number} enters {region} {count} times"
        if plan.src in heads:
            yield f"tree {number} enters the source"
        reached = _reached(plan.src, tree)
        for tail, head in tree.edges:
            if tail not in reached:
                yield f"tree {number} does not hang together at {tail} -> {head}"
        for end in plan.destinations:
            if end not in reached:
                yield f"tree {number} does not reach {end}"
        forwarding = {tail for tail, _ in tree.edges}
        for region in sorted(set(heads) - forwarding - set(plan.destinations)):
            yield f"tree {number} ends in {region}, which is no destination"
        if tree.flow_gbps <= 0:
            yield f"tree {number} carries {tree.flow_gbps:g} Gbit/s"


def _reached(source: str, tree: PlanTree) -> set[str]:
    reached, grows = {source}, True
    while grows:
        more = {head for tail, head in tree.edges if tail in reached} - reached
        reached |= more
        grows = bool(more)
    return reached


def _rates(plan: MulticastPlan) -> Iterator[str]:
    """Trees add up to the throughput, and over each edge to its flow."""
    if _differs(sum(tree.flow_gbps for tree in plan.trees), plan.throughput_gbps):
        yield "the trees do not add up to the throughput"
    over: dict[tuple[str, str], float] = defaultdict(float)
    for tree in plan.trees:
        for edge in tree.edges:
            over[edge] += tree.flow_gbps
    for one in plan.edges:
        if _differs(over.pop((one.src, one.dst), 0.0), one.flow_gbps):
            yield f"the trees over {one.src} -> {one.dst} do not add up to its flow"
    for tail, head in over:
        yield f"a tree uses {tail} -> {head}, which is no edge of the plan"


def _edges(plan: MulticastPlan, grid: Grid, limits: Limits) -> Iterator[str]:
    """(4b), and that connections are whole."""
    for edge in plan.edges:
        place = grid.index_of(edge.src), grid.index_of(edge.dst)
        capacity = float(grid.throughput_gbps[place]) * (1 - limits.safety_margin)
        if edge.connections != int(edge.connections) or edge.connections < 1:
            yield f"{edge.src} -> {edge.dst} has {edge.connections} connections"
        if _above(edge.flow_gbps, capacity * edge.connections / MEASURED_OVER):
            yield (
                f"(4b) {edge.src} -> {edge.dst} carries {edge.flow_gbps:g} Gbit/s over"
                f" {edge.connections} connections"
            )


def _regions(plan: MulticastPlan, grid: Grid, limits: Limits) -> Iterator[str]:
    """(4f) to (4j), out and in at every region, the ends too."""
    touched = {end for edge in plan.edges for end in (edge.src, edge.dst)}
    for region in sorted(touched | {plan.src, *plan.destinations}):
        group = plan.instances.get(region)
        if group is None:
            yield f"{region} carries flow and has no instances"
            continue
        cloud = region.partition(":")[0]
        kind = grid.instance_type(cloud, group.type)
        inward = [edge for edge in plan.edges if edge.dst == region]
        outward = [edge for edge in plan.edges if edge.src == region]
        quota = kind.instance_limit if limits.instance_limit is None else limits.instance_limit
        rows = [
            (
                "(4f) ingress",
                sum(edge.flow_gbps for edge in inward),
                kind.ingress_gbps * group.count,
            ),
            (
                "(4g) egress",
                sum(edge.flow_gbps for edge in outward),
                kind.egress_gbps * group.count,
            ),
            (
                "(4h) connections out",
                sum(edge.connections for edge in outward),
                kind.connection_limit * group.count,
            ),
            (
                "(4i) connections in",
                sum(edge.connections for edge in inward),
                kind.connection_limit * group.count,
            ),
            ("(4j) instances", group.count, quota),
        ]
        for vcpus in (limits.vcpu_quota.get(cloud), grid.vcpu_quota(region)):
            if vcpus is not None:
                rows.append(("(4j) vCPUs", group.count * kind.vcpus, vcpus))
        if group.count != int(group.count):
            yield f"{region} has {group.count} instances"
        for name, used, limit in rows:
            if _above(used, limit):
                yield f"{name} of {region}: {used:g} where {limit:g} is the limit"


def _ends(plan: MulticastPlan, grid: Grid, limits: Limits) -> Iterator[str]:
    """Stores at the ends, by the job's word or else the grid's, and the most relays."""
    stores = [(f"{plan.src} reads", limits.source_read_gbps or grid.storage_limits(plan.src)[0])]
    for tag in plan.destinations:
        write = limits.destination_write_gbps or grid.storage_limits(tag)[1]
        stores.append((f"{tag} writes", write))
    for name, most in stores:
        if most is not None and _above(plan.throughput_gbps, most):
            yield f"{name} {plan.throughput_gbps:g} Gbit/s where {most:g} is the limit"
    if limits.max_relays is not None and len(plan.relays) > limits.max_relays:
        yield f"{len(plan.relays)} relays where {limits.max_relays} is the limit"


def _price(plan: MulticastPlan, grid: Grid) -> Iterator[str]:
    """(4a) per GB of source data: an edge is paid once for each byte that crosses it."""
    egress = sum(
        edge.flow_gbps
        / plan.throughput_gbps
        * float(grid.usd_per_gb[grid.index_of(edge.src), grid.index_of(edge.dst)])
        for edge in plan.edges
    )
    per_s = sum(
        usd_per_hour_to_usd_per_s(
            grid.instance_type(region.partition(":")[0], group.type).usd_per_hour
        )
        * group.count
        for region, group in plan.instances.items()
    )
    stated = egress + usd_per_gbit_to_usd_per_gb(per_s / plan.throughput_gbps)
    if abs(plan.cost.usd_per_gb - stated) > RELATIVE * stated:
        yield f"(4a) the plan says {plan.cost.usd_per_gb:g} USD per GB, its integers {stated:g}"
