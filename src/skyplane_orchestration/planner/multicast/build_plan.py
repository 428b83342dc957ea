"""Decodes an integer solution into an overlay of trees, and builds a `MulticastPlan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np

from skyplane_orchestration.model.multicast_plan import MulticastPlan, PlanTree, SeparateTransfers
from skyplane_orchestration.model.plan import SolverReport
from skyplane_orchestration.planner.build_plan import (
    PlanRequest,
    grid_reference,
    instance_groups,
    notes_on_learned_rates,
    notes_on_objects,
    notes_on_prices,
    notes_on_tiers,
    notes_on_volume,
    plan_edges,
)
from skyplane_orchestration.planner.decode import with_fewest
from skyplane_orchestration.planner.multicast.integer_program import TreeSolution
from skyplane_orchestration.planner.overlay import Overlay, flows_over
from skyplane_orchestration.planner.pricing import plan_cost
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.solution import FLOW_TOLERANCE

#: A note of every multicast plan.
NOT_EXECUTED = (
    "for looking and comparing: gateways of this release bring data to one destination, so"
    " running it takes one transfer per destination, at the price of separate plans"
)


def decode_trees(problem: PlanProblem, solution: TreeSolution) -> Overlay:
    """Trees, the largest flow first, and the fewest connections and instances that carry them."""
    tags = problem.tags
    carried = {
        tree: float(rate)
        for tree, rate in zip(solution.trees, solution.rate_gbps, strict=True)
        if rate > FLOW_TOLERANCE
    }
    scale = solution.throughput_gbps / sum(carried.values())
    trees = {
        tuple(
            (tags[tail], tags[head]) for tail, head in nx.bfs_edges(nx.DiGraph(tree), problem.src)
        ): rate * scale
        for tree, rate in sorted(carried.items(), key=lambda item: (-item[1], item[0]))
    }
    most = Overlay(
        throughput_gbps=solution.throughput_gbps,
        paths={},
        flows=dict(sorted(flows_over(trees.items()).items())),
        connections={(tags[u], tags[v]): count for (u, v), count in solution.connections.items()},
        instances=dict(zip(tags, solution.instances.astype(int).tolist(), strict=True)),
        types=dict(zip(tags, problem.types, strict=True)),
        trees=trees,
    )
    used = [region for tree in carried for edge in tree for region in edge]
    return with_fewest(most, problem.with_regions(np.isin(np.arange(problem.region_count), used)))


def assemble_multicast(
    request: PlanRequest,
    overlay: Overlay,
    *,
    objective: Mapping[str, Any],
    binding: tuple[str, ...],
    solver: SolverReport,
    separate: SeparateTransfers,
) -> MulticastPlan:
    """The plan, with its prices and its provenance."""
    grid, rate, volume = request.grid, overlay.throughput_gbps, request.volume_gb
    egress_usd_per_gb = plan_cost.egress_usd_per_gb(grid, overlay)
    edges = plan_edges(grid, overlay)
    wait_s = request.wait_s(overlay.instances)
    transfer_s = request.transfer_s_of(overlay)
    return MulticastPlan(
        src=request.src,
        destinations=request.destinations,
        objective=dict(objective),
        throughput_gbps=rate,
        volume_gb=volume,
        transfer_s=transfer_s,
        provision_s=wait_s,
        cost=request.cost(egress_usd_per_gb, overlay, wait_s),
        instances=instance_groups(grid, overlay),
        edges=edges,
        trees=tuple(PlanTree(tree, flow) for tree, flow in overlay.trees.items()),
        binding=binding,
        solver=solver,
        grid=grid_reference(grid, edges),
        separate=separate,
        notes=(
            NOT_EXECUTED,
            *notes_on_objects(request, overlay),
            *notes_on_prices(grid, overlay),
            *notes_on_tiers(grid, overlay),
            *notes_on_learned_rates(grid, overlay.flows),
            *notes_on_volume(grid, overlay),
        ),
    )
