"""Edge lengths from duals, and shortest paths by these lengths.

The length of an edge is the egress price of a Gbit plus the shadow prices of the limits that the
Gbit uses at both ends.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.sparse.csgraph import csgraph_from_dense, dijkstra

from skyplane_orchestration.grids.arrays import Floats
from skyplane_orchestration.planner.constraint_names import (
    CONNECTION_LIMIT_IN,
    CONNECTION_LIMIT_OUT,
    EGRESS_LIMIT,
    INGRESS_LIMIT,
)
from skyplane_orchestration.planner.problem import PlanProblem


def limit_cost(problem: PlanProblem, price: Mapping[str, Floats]) -> Floats:
    """(E,) the shadow cost of the limits that a Gbit over each edge uses.

    Args:
        price: name of each of `REGION_LIMITS` -> (V,) shadow price of one unit.
    """
    connections = (
        price[CONNECTION_LIMIT_OUT][problem.tail] + price[CONNECTION_LIMIT_IN][problem.head]
    )
    cost: Floats = (
        price[EGRESS_LIMIT][problem.tail]
        + price[INGRESS_LIMIT][problem.head]
        + connections / problem.gbps_per_connection
    )
    return cost


def edge_matrix(problem: PlanProblem, value: Floats) -> Floats:
    """(V, V) of an edge quantity (E,), infinite where there is no edge."""
    matrix = np.full((problem.region_count, problem.region_count), np.inf)
    matrix[problem.tail, problem.head] = value
    return matrix


def shortest_distances(lengths: Floats, start: int) -> Floats:
    """(V,) the length of the shortest path from one region to each; lengths (V, V) >= 0."""
    graph = csgraph_from_dense(lengths, null_value=np.inf)
    distances: Floats = dijkstra(graph, indices=[start])[0]
    return distances
