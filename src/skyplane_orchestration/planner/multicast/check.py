"""An independent check that a plan for several destinations satisfies its constraints.

It shares no code with the formulation. It reads the plan and the grid, and checks the distribution
trees, their rates, and (4b) to (4j) on the plan's own integers.
"""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import NO_LIMITS, Limits
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner.check import (
    beyond_region_limits,
    beyond_store_limits,
    edges_beyond_capacity,
    wrong_price,
    wrong_sums,
)


def multicast_violations(plan: TransferPlan, grid: Grid, limits: Limits = NO_LIMITS) -> list[str]:
    """Every constraint that the plan breaks, in words; `limits` as the plan was made with."""
    return [
        *_trees(plan),
        *wrong_sums(plan, "tree", [(one.edges, one.flow_gbps) for one in plan.trees]),
        *edges_beyond_capacity(plan, grid, limits),
        *beyond_region_limits(plan, plan.ends, grid, limits),
        *beyond_store_limits(plan, plan.destinations, grid, limits),
        *wrong_price(plan, grid),
    ]


def _trees(plan: TransferPlan) -> Iterator[str]:
    """Each tree is an arborescence from the source that reaches every destination."""
    for number, tree in enumerate(plan.trees, 1):
        graph = nx.DiGraph(tree.edges)
        graph.add_node(plan.src)
        for region, count in graph.in_degree:
            if count > 1:
                yield f"tree {number} enters {region} {count} times"
        if graph.in_degree[plan.src]:
            yield f"tree {number} enters the source"
        reached = {plan.src, *nx.descendants(graph, plan.src)}
        for tail, head in tree.edges:
            if tail not in reached:
                yield f"tree {number} does not hang together at {tail} -> {head}"
        for end in plan.destinations:
            if end not in reached:
                yield f"tree {number} does not reach {end}"
        leaves = {region for region, forwards in graph.out_degree if not forwards}
        for region in sorted(leaves - {plan.src, *plan.destinations}):
            yield f"tree {number} ends in {region}, which is no destination"
        if tree.flow_gbps <= 0:
            yield f"tree {number} carries {tree.flow_gbps:g} Gbit/s"
