"""Puts an overlay, its prices and its provenance together into a `TransferPlan`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanEdge,
    PlanPath,
    SolverReport,
    TransferPlan,
)
from skyplane_orchestration.planner.decode import Overlay
from skyplane_orchestration.planner.pricing import billing, costs
from skyplane_orchestration.units import gb_to_gbit

MEASURED, MODELLED, MIXED = "measured", "modelled", "mixed"
FROM_RULES = "rules"


@dataclass(frozen=True, slots=True)
class Request:
    """What a plan is made for, apart from the objective's own numbers.

    Args:
        src, dst: region tags.
        objective: the objective as plain data, to be kept in the plan.
        volume_gb, objects: how much there is to move, None where not known.
        chunk_mib: size of the parts that are written, for the price of requests.
    """

    src: str
    dst: str
    objective: Mapping[str, Any]
    volume_gb: float | None = None
    objects: int | None = None
    chunk_mib: int = 16


def requests_usd(grid: Grid, request: Request) -> float | None:
    """Price of the requests of one job; None when the number of objects is not known."""
    if request.objects is None:
        return None
    return costs.request_usd(
        grid, request.src, request.dst, request.objects, request.volume_gb, request.chunk_mib
    )


def assemble(
    grid: Grid,
    request: Request,
    overlay: Overlay,
    types: Mapping[str, InstanceType],
    *,
    binding: tuple[str, ...],
    solver: SolverReport,
    egress_usd_per_gb: float | None = None,
) -> TransferPlan:
    """The plan of one overlay.

    Args:
        types: region tag -> instance type, at least of the overlay's regions.
        egress_usd_per_gb: in place of the edges' prices, for a plan without edges.
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
        instances={
            tag: InstanceGroup(types[tag].name, count, types[tag].usd_per_hour)
            for tag, count in overlay.instances.items()
        },
        edges=edges,
        paths=tuple(PlanPath(regions, flow) for regions, flow in overlay.paths.items()),
        binding=binding,
        solver=solver,
        grid=grid_reference(grid, edges),
        notes=notes_on_prices(grid, overlay),
    )


def plan_edge(grid: Grid, overlay: Overlay, tail: str, head: str) -> PlanEdge:
    """What an edge carries, what it could, and where these figures are from."""
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
    """The grid, and what kind its figures over these edges are."""
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
    """Says which prices of the overlay are only taken to be a neighbour's."""
    guessed = sorted(
        {
            tag
            for edge in overlay.flows
            for tag in edge
            if not grid.regions[grid.index_of(tag)].price_verified
        }
    )
    if not guessed:
        return ()
    return (f"prices of {', '.join(guessed)} were never verified: a neighbour's are used",)
