"""From the solver's vector to an overlay that can be built: paths, connections, instances.

The flow is taken apart into simple paths, which drops cycles and the solver's noise; the
edges are put together again from the paths, so that both always agree.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import networkx as nx
import numpy as np

from skyplane_orchestration.planner.solve import FLOW_TOLERANCE, Integers

#: Share of one connection or instance that counts as rounding, not as need.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Overlay:
    """What is to be built, by region tag; rates in Gbit/s.

    Attributes:
        paths: regions of a path -> flow.
        flows: edge -> flow, the sum over the paths that use it.
        connections: edge -> connections over the whole edge.
        instances: region -> instances, every region that a path visits.
    """

    throughput_gbps: float
    paths: Mapping[tuple[str, ...], float]
    flows: Mapping[tuple[str, str], float]
    connections: Mapping[tuple[str, str], int]
    instances: Mapping[str, int]


def decode(solution: Integers) -> Overlay:
    """The overlay of a solution: never more connections or instances than it has."""
    paths = _paths(solution)
    flows: dict[tuple[str, str], float] = {}
    for regions, flow in paths.items():
        for edge in pairwise(regions):
            flows[edge] = flows.get(edge, 0.0) + flow
    connections = _connections(solution, flows)
    return Overlay(
        throughput_gbps=solution.throughput_gbps,
        paths=paths,
        flows=flows,
        connections=connections,
        instances=_instances(solution, flows, connections),
    )


def _paths(solution: Integers) -> dict[tuple[str, ...], float]:
    """Simple paths with their flows, scaled so that they add up to the throughput."""
    problem = solution.problem
    source, sink = problem.tags[problem.src], problem.tags[problem.dst]
    graph: nx.DiGraph[str] = nx.DiGraph()
    graph.add_nodes_from((source, sink))
    # Flow where there is no connection is the solver's tolerance.
    carried = np.where(solution.connections > 0, solution.flow_gbps, 0.0)
    for tail, head, flow in zip(problem.tail, problem.head, carried, strict=True):
        if flow > FLOW_TOLERANCE:
            graph.add_edge(problem.tags[tail], problem.tags[head], flow=float(flow))
    found: dict[tuple[str, ...], float] = {}
    while nx.has_path(graph, source, sink):
        regions = tuple(nx.shortest_path(graph, source, sink))
        hops = list(pairwise(regions))
        flow = min(graph.edges[hop]["flow"] for hop in hops)
        found[regions] = flow
        for hop in hops:
            graph.edges[hop]["flow"] -= flow
            if graph.edges[hop]["flow"] <= FLOW_TOLERANCE:
                graph.remove_edge(*hop)
    scale = solution.throughput_gbps / sum(found.values()) if found else 1.0
    return {
        regions: flow * scale
        for regions, flow in sorted(found.items(), key=lambda item: (-item[1], item[0]))
    }


def _connections(
    solution: Integers, flows: Mapping[tuple[str, str], float]
) -> dict[tuple[str, str], int]:
    """The fewest connections that carry these flows, and no more than the solution has.

    A flow may exceed what its connections carry by the solver's tolerance, which on a slow
    edge is a noticeable share of one connection.
    """
    problem = solution.problem
    found: dict[tuple[str, str], int] = {}
    for tail, head, rate, most in zip(
        problem.tail,
        problem.head,
        problem.gbps_per_connection,
        solution.connections,
        strict=True,
    ):
        edge = problem.tags[tail], problem.tags[head]
        if edge in flows:
            needed = math.ceil(flows[edge] / float(rate) - ROUNDING)
            found[edge] = max(1, min(needed, int(most)))
    return {edge: found[edge] for edge in flows}


def _instances(
    solution: Integers,
    flows: Mapping[tuple[str, str], float],
    connections: Mapping[tuple[str, str], int],
) -> dict[str, int]:
    """The fewest instances that carry these flows and connections: ends, then relays by name."""
    problem = solution.problem
    number = {tag: position for position, tag in enumerate(problem.tags)}
    ends = [problem.tags[problem.src], problem.tags[problem.dst]]
    need = dict.fromkeys(ends, 1.0)
    for position, rate_limit in ((0, problem.egress_gbps), (1, problem.ingress_gbps)):
        for tag in sorted({edge[position] for edge in flows}):
            region = number[tag]
            here = [edge for edge in flows if edge[position] == tag]
            by_rate = sum(flows[edge] for edge in here) / rate_limit[region]
            by_connections = (
                sum(connections[edge] for edge in here) / problem.connection_limit[region]
            )
            need[tag] = max(need.get(tag, 1.0), by_rate, by_connections)
    return {
        tag: max(1, min(math.ceil(need[tag] - ROUNDING), int(solution.instances[number[tag]])))
        for tag in [*ends, *sorted(set(need) - set(ends))]
    }
