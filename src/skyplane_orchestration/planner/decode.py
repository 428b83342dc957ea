"""Decodes an integer solution into an overlay: paths, connections, instances.

The flow is split into simple paths, which drops cycles and the solver's noise. The edges are then
rebuilt from the paths, so that both always agree.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from itertools import pairwise

import numpy as np

from skyplane_orchestration.planner.overlay import Overlay
from skyplane_orchestration.planner.solution import FLOW_TOLERANCE, IntegerSolution

#: Share of one connection or instance that counts as rounding.
ROUNDING = 1e-6


def decode(solution: IntegerSolution) -> Overlay:
    """The overlay of a solution: at most its connections and instances."""
    paths = _paths(solution)
    flows: dict[tuple[str, str], float] = {}
    for regions, flow in paths.items():
        for edge in pairwise(regions):
            flows[edge] = flows.get(edge, 0.0) + flow
    connections = _connections(solution, flows)
    option = _options(solution)
    instances = _instances(solution, flows, connections, option)
    return Overlay(
        throughput_gbps=solution.throughput_gbps,
        paths=paths,
        flows=flows,
        connections=connections,
        instances=instances,
        types={tag: solution.problem.types[option[tag]] for tag in instances},
    )


def _options(solution: IntegerSolution) -> dict[str, int]:
    """The option that each region has instances of, or its first option if it has none."""
    problem = solution.problem
    found: dict[str, int] = {}
    for option in np.argsort(-solution.instances, kind="stable"):
        found.setdefault(problem.tags[problem.option_region[option]], int(option))
    return found


def _paths(solution: IntegerSolution) -> dict[tuple[str, ...], float]:
    """Simple paths with their flows, scaled to add up to the throughput."""
    problem = solution.problem
    ahead: dict[int, dict[int, float]] = {}
    # Flow without a connection is the solver's tolerance.
    carried = (solution.connections > 0) & (solution.flow_gbps > FLOW_TOLERANCE)
    for edge in np.flatnonzero(carried):
        flow = float(solution.flow_gbps[edge])
        ahead.setdefault(int(problem.tail[edge]), {})[int(problem.head[edge])] = flow
    found: dict[tuple[str, ...], float] = {}
    while path := _shortest_path(ahead, problem.src, problem.dst):
        hops = list(pairwise(path))
        flow = min(ahead[tail][head] for tail, head in hops)
        found[tuple(problem.tags[region] for region in path)] = flow
        for tail, head in hops:
            ahead[tail][head] -= flow
            if ahead[tail][head] <= FLOW_TOLERANCE:
                del ahead[tail][head]
    scale = solution.throughput_gbps / sum(found.values()) if found else 1.0
    return {
        regions: flow * scale
        for regions, flow in sorted(found.items(), key=lambda item: (-item[1], item[0]))
    }


def _shortest_path(ahead: Mapping[int, Mapping[int, float]], source: int, sink: int) -> list[int]:
    """The regions of a path with the fewest hops (breadth first); empty without a path."""
    before = {source: source}
    queue = deque([source])
    while queue and sink not in before:
        region = queue.popleft()
        for neighbour in ahead.get(region, ()):
            if neighbour not in before:
                before[neighbour] = region
                queue.append(neighbour)
    if sink not in before:
        return []
    path = [sink]
    while path[-1] != source:
        path.append(before[path[-1]])
    return path[::-1]


def _connections(
    solution: IntegerSolution, flows: Mapping[tuple[str, str], float]
) -> dict[tuple[str, str], int]:
    """The fewest connections that carry these flows, and at most those of the solution.

    The solver's tolerance is a noticeable share of a connection on a slow edge.
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
    solution: IntegerSolution,
    flows: Mapping[tuple[str, str], float],
    connections: Mapping[tuple[str, str], int],
    option: Mapping[str, int],
) -> dict[str, int]:
    """The fewest instances that carry these flows and connections: ends, then relays by name."""
    problem = solution.problem
    ends = [problem.tags[problem.src], problem.tags[problem.dst]]
    need = dict.fromkeys(ends, 1.0)
    for position, rate_limit in ((0, problem.egress_gbps), (1, problem.ingress_gbps)):
        for tag in sorted({edge[position] for edge in flows}):
            kind = option[tag]
            here = [edge for edge in flows if edge[position] == tag]
            by_rate = sum(flows[edge] for edge in here) / rate_limit[kind]
            by_connections = (
                sum(connections[edge] for edge in here) / problem.connection_limit[kind]
            )
            need[tag] = max(need.get(tag, 1.0), by_rate, by_connections)
    return {
        tag: max(1, min(math.ceil(need[tag] - ROUNDING), int(solution.instances[option[tag]])))
        for tag in [*ends, *sorted(set(need) - set(ends))]
    }
