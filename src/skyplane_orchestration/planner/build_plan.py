"""Builds a `TransferPlan` from an overlay, with its prices and its provenance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyplane_orchestration.grids import FROM_RULES, Grid, InstanceType
from skyplane_orchestration.grids.grid import MEASURED, MIXED, MODELLED
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanEdge,
    PlanPath,
    SolverReport,
    TransferPlan,
)
from skyplane_orchestration.planner.overlay import Overlay
from skyplane_orchestration.planner.pricing import billing, costs
from skyplane_orchestration.units import gb_to_gbit


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The job of a plan: region tags, its objective as plain data, and None for what is not known.

    `chunk_mib` is the size of the written parts, for the price of requests.
    """

    src: str
    dst: str
    objective: Mapping[str, Any]
    volume_gb: float | None = None
    objects: int | None = None
    chunk_mib: int = 16


def requests_usd(grid: Grid, request: PlanRequest) -> float | None:
    """Price of all requests of the job; None when the number of objects is not known."""
    if request.objects is None:
        return None
    return costs.request_usd(
        grid, request.src, request.dst, request.objects, request.volume_gb, request.chunk_mib
    )


def assemble(
    grid: Grid,
    request: PlanRequest,
    overlay: Overlay,
    types: Mapping[str, InstanceType],
    *,
    binding: tuple[str, ...],
    solver: SolverReport,
    egress_usd_per_gb: float | None = None,
) -> TransferPlan:
    """The plan of one overlay.

    Args:
        types: region tag -> instance type, at least for the regions of the overlay.
        egress_usd_per_gb: replaces the edges' prices, for a plan without edges.
    """
    per_gb = costs.egress_usd_per_gb(grid, overlay)
    rate = overlay.throughput_gbps
    volume = request.volume_gb
    edges = tuple(plan_edge(grid, overlay, tail, head) for tail, head in overlay.flows)
    return TransferPlan(
        src=request.src,
        dst=request.dst,
        objective=dict(request.objective),
        throughput_gbps=rate,
        volume_gb=volume,
        transfer_s=None if volume is None else gb_to_gbit(volume) / rate,
        provision_s=billing.provision_s(overlay.instances),
        cost=costs.itemised(
            per_gb if egress_usd_per_gb is None else egress_usd_per_gb,
            overlay,
            types,
            volume,
            requests_usd(grid, request),
        ),
        instances=instance_groups(overlay, types),
        edges=edges,
        paths=tuple(PlanPath(regions, flow) for regions, flow in overlay.paths.items()),
        binding=binding,
        solver=solver,
        grid=grid_reference(grid, edges),
        notes=notes_on_prices(grid, overlay),
    )


def instance_groups(
    overlay: Overlay, types: Mapping[str, InstanceType]
) -> dict[str, InstanceGroup]:
    """The instances of each region, with their type and price."""
    return {
        tag: InstanceGroup(types[tag].name, count, types[tag].usd_per_hour)
        for tag, count in overlay.instances.items()
    }


def plan_edge(grid: Grid, overlay: Overlay, tail: str, head: str) -> PlanEdge:
    """One edge with its flow, capacity and price, and the provenance of both."""
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


def grid_reference(grid: Grid, edges: Sequence[PlanEdge]) -> GridReference:
    """The grid, and the provenance of its figures over these edges."""
    return GridReference(
        name=grid.name,
        as_of=grid.as_of,
        throughput=_one_or_mixed((edge.throughput for edge in edges), MODELLED),
        prices=_one_or_mixed((edge.price for edge in edges), FROM_RULES),
    )


def _one_or_mixed(kinds: Iterable[str], none: str) -> str:
    found = set(kinds)
    return MIXED if len(found) > 1 else next(iter(found), none)


def notes_on_prices(grid: Grid, overlay: Overlay) -> tuple[str, ...]:
    """A note that names regions whose prices are assumed from a neighbour."""
    assumed = sorted(
        {
            tag
            for edge in overlay.flows
            for tag in edge
            if not grid.regions[grid.index_of(tag)].price_verified
        }
    )
    if not assumed:
        return ()
    return (f"prices of {', '.join(assumed)} were never verified: a neighbour's are used",)
