"""Quantities of edges as matrices, and shortest paths by them."""

from __future__ import annotations

import numpy as np
from scipy.sparse.csgraph import csgraph_from_dense, dijkstra

from skyplane_orchestration.grids.arrays import Floats
from skyplane_orchestration.planner.problem import PlanProblem


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
