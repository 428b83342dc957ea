"""Decodes an integer solution into an overlay of trees."""

from __future__ import annotations

import networkx as nx
import numpy as np

from skyplane_orchestration.planner.decode import with_fewest
from skyplane_orchestration.planner.multicast.integer_program import TreeSolution
from skyplane_orchestration.planner.overlay import Overlay, flows_over
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.solution import FLOW_TOLERANCE


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
