"""Lengths of edges by the duals, and shortest ways in them.

An edge is as long as what a Gbit over it costs, what the limits of its ends are worth included.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from skyplane_orchestration.planner.constraint_names import (
    CONNECTION_LIMIT_IN,
    CONNECTION_LIMIT_OUT,
    EGRESS_LIMIT,
    INGRESS_LIMIT,
)
from skyplane_orchestration.planner.problem import Floats, PlanProblem


def worth_of_limits(problem: PlanProblem, price: Mapping[str, Floats]) -> Floats:
    """(E,) what a Gbit over each edge takes of its ends' limits.

    Args:
        price: name of each of `REGION_LIMITS` -> (V,) what a unit of it is worth.
    """
    connections = (
        price[CONNECTION_LIMIT_OUT][problem.tail] + price[CONNECTION_LIMIT_IN][problem.head]
    )
    worth: Floats = (
        price[EGRESS_LIMIT][problem.tail]
        + price[INGRESS_LIMIT][problem.head]
        + connections / problem.gbps_per_connection
    )
    return worth


def matrix_of(problem: PlanProblem, value: Floats) -> Floats:
    """(V, V) of an edge quantity (E,), infinite where there is no edge."""
    matrix = np.full((problem.region_count, problem.region_count), np.inf)
    matrix[problem.tail, problem.head] = value
    return matrix


def distances(lengths: Floats, start: int) -> Floats:
    """(V,) the shortest way from one region to each.

    Bellman-Ford; a path has at most V - 1 hops.

    Args:
        lengths: (V, V) >= 0; infinite where there is no edge.
    """
    distance = np.full(len(lengths), np.inf)
    distance[start] = 0.0
    for _ in range(len(lengths)):
        shorter = np.minimum(distance, (distance[:, None] + lengths).min(axis=0))
        if np.array_equal(shorter, distance):
            break
        distance = shorter
    return distance
