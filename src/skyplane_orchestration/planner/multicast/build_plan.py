"""Decodes an integer solution into an overlay of trees, and builds a `MulticastPlan`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np

from skyplane_orchestration.model.multicast_plan import MulticastPlan, PlanTree, SeparateTransfers
from skyplane_orchestration.model.plan import SolverReport
from skyplane_orchestration.planner.build_plan import PlanRequest, notes_on, overlay_fields
from skyplane_orchestration.planner.decode import with_fewest
from skyplane_orchestration.planner.multicast.integer_program import TreeSolution
from skyplane_orchestration.planner.overlay import Overlay, flows_over
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
    return MulticastPlan(
        **overlay_fields(request, overlay, objective, binding, solver),
        destinations=request.destinations,
        trees=tuple(PlanTree(tree, flow) for tree, flow in overlay.trees.items()),
        separate=separate,
        notes=(NOT_EXECUTED, *notes_on(request, overlay)),
    )
