"""Which parts of one plan are used up: instances, links, connections."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.plan import TransferPlan

SOURCE_VM = "source VM"
SOURCE_LINK = "source link"
RELAY_VM = "relay VM"
RELAY_LINK = "relay link"
DESTINATION_VM = "destination VM"
#: The paper's locations, in its order.
LOCATIONS = (SOURCE_VM, SOURCE_LINK, RELAY_VM, RELAY_LINK, DESTINATION_VM)
#: Not one of the paper's, and only where none of those is full: all connections of an
#: instance work at their full rate, spread over several links that are not full themselves.
CONNECTIONS = "connections"

FULL = 0.99


def full_locations(plan: TransferPlan, grid: Grid) -> tuple[str, ...]:
    """Locations of the plan that are used to at least 99 %.

    A VM is full when the instances of its region send, or receive, what they may. A link is
    full when its flow is what the grid measured for one pair of instances, times the pairs.
    """
    found: set[str] = set()
    sent, received = _flow_by_region(plan)
    for tag, group in plan.instances.items():
        kind = grid.instance_type(tag.partition(":")[0], group.type)
        busiest = max(
            sent.get(tag, 0.0) / (kind.egress_gbps * group.count),
            received.get(tag, 0.0) / (kind.ingress_gbps * group.count),
        )
        if busiest >= FULL:
            found.add(_vm_at(plan, tag))
    for edge in plan.edges:
        pairs = min(plan.instances[edge.src].count, plan.instances[edge.dst].count)
        if edge.flow_gbps >= FULL * edge.capacity_gbps * pairs:
            found.add(SOURCE_LINK if edge.src == plan.src else RELAY_LINK)
    if not found and _connections_used_up(plan):
        found.add(CONNECTIONS)
    return tuple(name for name in (*LOCATIONS, CONNECTIONS) if name in found)


def _vm_at(plan: TransferPlan, tag: str) -> str:
    return {plan.src: SOURCE_VM, plan.dst: DESTINATION_VM}.get(tag, RELAY_VM)


def _flow_by_region(plan: TransferPlan) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """Gbit/s out of and into each region."""
    sent: dict[str, float] = defaultdict(float)
    received: dict[str, float] = defaultdict(float)
    for edge in plan.edges:
        sent[edge.src] += edge.flow_gbps
        received[edge.dst] += edge.flow_gbps
    return sent, received


def _connections_used_up(plan: TransferPlan) -> bool:
    """True where sum F / l of a region's links reaches its instances (4h, 4i with M real)."""
    used: dict[tuple[str, str], float] = defaultdict(float)
    for edge in plan.edges:
        share = edge.flow_gbps / edge.capacity_gbps
        used["out", edge.src] += share
        used["in", edge.dst] += share
    return any(
        share >= FULL * plan.instances[tag].count for (_direction, tag), share in used.items()
    )
