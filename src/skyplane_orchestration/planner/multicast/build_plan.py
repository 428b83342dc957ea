"""Decodes an integer solution into an overlay of trees, and builds a `MulticastPlan`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.model.location import LOCAL_CLOUD
from skyplane_orchestration.model.multicast_plan import MulticastPlan, PlanTree, SeparateTransfers
from skyplane_orchestration.model.plan import PlanCost, SolverReport
from skyplane_orchestration.planner.build_plan import (
    grid_reference,
    instance_groups,
    notes_on_prices,
    plan_edge,
)
from skyplane_orchestration.planner.constraint_names import REGION_LIMITS
from skyplane_orchestration.planner.decode import ROUNDING
from skyplane_orchestration.planner.multicast.integer_program import TreeSolution
from skyplane_orchestration.planner.multicast.problem import MulticastProblem
from skyplane_orchestration.planner.multicast.relaxation import TreeRelaxation
from skyplane_orchestration.planner.overlay import Overlay
from skyplane_orchestration.planner.pricing import billing, costs
from skyplane_orchestration.planner.solution import FLOW_TOLERANCE
from skyplane_orchestration.units import gb_to_gbit

#: A note of every multicast plan.
NOT_EXECUTED = (
    "for looking and comparing: gateways of this release bring data to one destination, so"
    " running it takes one transfer per destination, at the price of separate plans"
)
#: A limit used up to this share is binding; a shadow price below this is noise.
_FULL_SHARE, _PRICE_NOISE = 1e-4, 1e-6
#: A region whose cloud has no request prices.
_NO_REQUESTS = f"{LOCAL_CLOUD}:free"


@dataclass(frozen=True, slots=True)
class MulticastRequest:
    """The job of a plan, without its objective."""

    grid: Grid
    src: str
    destinations: tuple[str, ...]
    volume_gb: float | None
    objects: int | None
    limits: Limits

    @property
    def requests_usd(self) -> float | None:
        """Reads and a listing at the source once, writes and a listing at every destination."""
        if self.objects is None:
            return None
        ends = [(self.src, _NO_REQUESTS), *((_NO_REQUESTS, tag) for tag in self.destinations)]
        return sum(
            costs.request_usd(
                self.grid, src, dst, self.objects, self.volume_gb, self.limits.chunk_mib
            )
            for src, dst in ends
        )


@dataclass(frozen=True, slots=True)
class TreeOverlay:
    """An overlay whose paths are trees.

    Attributes:
        trees: edges by region tag -> flow, largest first.
        overlay: flows, connections, instances and types; it has no paths.
    """

    trees: Mapping[tuple[tuple[str, str], ...], float]
    overlay: Overlay

    def usd_per_gb(self, grid: Grid) -> float:
        """Egress and instances per GB of source data (4a)."""
        return costs.egress_usd_per_gb(grid, self.overlay) + costs.instance_usd_per_gb(
            self.overlay, self.overlay.types
        )


def decode_trees(problem: MulticastProblem, solution: TreeSolution) -> TreeOverlay:
    """Trees, flows, and the fewest connections and instances that carry them."""
    tags = problem.tags
    carried = {
        tree: float(rate)
        for tree, rate in zip(solution.trees, solution.rate_gbps, strict=True)
        if rate > FLOW_TOLERANCE
    }
    scale = solution.throughput_gbps / sum(carried.values())
    trees = {
        tuple((tags[tail], tags[head]) for tail, head in _outward(tree, problem.src)): rate * scale
        for tree, rate in sorted(carried.items(), key=lambda item: (-item[1], item[0]))
    }
    flows: dict[tuple[int, int], float] = {}
    for tree, rate in carried.items():
        for edge in tree:
            flows[edge] = flows.get(edge, 0.0) + rate * scale
    connections = {
        edge: max(1, min(_round_up(flow * problem.connections_per_gbps[edge]), most))
        for edge, flow in sorted(flows.items())
        for most in [solution.connections[edge]]
    }
    instances = _instances(problem, flows, connections, solution)
    overlay = Overlay(
        throughput_gbps=solution.throughput_gbps,
        paths={},
        flows={(tags[tail], tags[head]): flow for (tail, head), flow in sorted(flows.items())},
        connections={(tags[u], tags[v]): count for (u, v), count in connections.items()},
        instances={tags[region]: count for region, count in instances.items()},
        types=dict(zip(tags, problem.types, strict=True)),
    )
    return TreeOverlay(trees, overlay)


def _round_up(need: float) -> int:
    return math.ceil(need - ROUNDING)


def _outward(tree: tuple[tuple[int, int], ...], source: int) -> list[tuple[int, int]]:
    """The edges of a tree, from the source outwards."""
    ordered: list[tuple[int, int]] = []
    reached = [source]
    for region in reached:
        next_region = [edge for edge in tree if edge[0] == region]
        ordered.extend(next_region)
        reached.extend(head for _, head in next_region)
    return ordered


def _instances(
    problem: MulticastProblem,
    flows: Mapping[tuple[int, int], float],
    connections: Mapping[tuple[int, int], int],
    solution: TreeSolution,
) -> dict[int, int]:
    """The fewest instances by region: source, destinations, then relays by name."""
    used = {region for edge in flows for region in edge}
    ends = [problem.src, *(int(end) for end in problem.destinations)]
    found: dict[int, int] = {}
    for region in [*ends, *sorted(used - set(ends))]:
        uses = _uses(region, flows, connections)
        need = max(use / most for use, most in zip(uses, problem.capacity[:, region], strict=True))
        found[region] = max(1, min(_round_up(need), int(solution.instances[region])))
    return found


def _uses(
    region: int,
    flows: Mapping[tuple[int, int], float],
    connections: Mapping[tuple[int, int], int],
) -> tuple[float, float, float, float]:
    """Ingress, egress, connections in and out of one region."""
    inward = [edge for edge in flows if edge[1] == region]
    outward = [edge for edge in flows if edge[0] == region]
    return (
        sum(flows[edge] for edge in inward),
        sum(flows[edge] for edge in outward),
        sum(connections[edge] for edge in inward),
        sum(connections[edge] for edge in outward),
    )


def binding_limits(
    problem: MulticastProblem, found: TreeOverlay, relaxed: TreeRelaxation | None = None
) -> tuple[str, ...]:
    """Names of the limits that prevent more: used up, or with a price in the relaxation.

    The rate and connection limits of a region bind only where its quota allows no more instances.
    """
    overlay, names = found.overlay, []
    for name, most in problem.store_gbps.items():
        if overlay.throughput_gbps >= most * (1 - _FULL_SHARE):
            names.append(name)
    number = {tag: position for position, tag in enumerate(problem.tags)}
    flows = {(number[u], number[v]): flow for (u, v), flow in overlay.flows.items()}
    connections = {(number[u], number[v]): count for (u, v), count in overlay.connections.items()}
    for tag, count in overlay.instances.items():
        region = number[tag]
        uses = _uses(region, flows, connections)
        full = [
            use >= most * problem.quota[region] * (1 - _FULL_SHARE)
            for use, most in zip(uses, problem.capacity[:, region], strict=True)
        ]
        priced = [False] * 4 if relaxed is None else list(relaxed.price[:, region] > _PRICE_NOISE)
        tight = [
            f"{name} {tag}"
            for name, is_full, is_priced in zip(REGION_LIMITS, full, priced, strict=True)
            if (is_full and count >= problem.quota[region]) or is_priced
        ]
        names.extend([f"{problem.quota_names[region]} {tag}", *tight] if tight else [])
    return tuple(names)


def cost_of(request: MulticastRequest, found: TreeOverlay) -> PlanCost:
    """The cost of the plan, item by item."""
    return costs.itemised(
        costs.egress_usd_per_gb(request.grid, found.overlay),
        found.overlay,
        found.overlay.types,
        request.volume_gb,
        request.requests_usd,
    )


def assemble_multicast(
    request: MulticastRequest,
    found: TreeOverlay,
    *,
    objective: Mapping[str, Any],
    binding: tuple[str, ...],
    solver: SolverReport,
    separate: SeparateTransfers,
) -> MulticastPlan:
    """The plan, with its prices and its provenance."""
    overlay, volume = found.overlay, request.volume_gb
    edges = tuple(plan_edge(request.grid, overlay, *edge) for edge in overlay.flows)
    return MulticastPlan(
        src=request.src,
        destinations=request.destinations,
        objective=dict(objective),
        throughput_gbps=overlay.throughput_gbps,
        volume_gb=volume,
        transfer_s=None if volume is None else gb_to_gbit(volume) / overlay.throughput_gbps,
        provision_s=billing.provision_s(overlay.instances),
        cost=cost_of(request, found),
        instances=instance_groups(overlay, overlay.types),
        edges=edges,
        trees=tuple(PlanTree(tree, flow) for tree, flow in found.trees.items()),
        binding=binding,
        solver=solver,
        grid=grid_reference(request.grid, edges),
        separate=separate,
        notes=(NOT_EXECUTED, *notes_on_prices(request.grid, overlay)),
    )
