"""Decodes an integer solution into an overlay: paths, connections, instances.

The flow is split into simple paths, which drops cycles and the solver's noise. The edges are then
rebuilt from the paths, so that both always agree.
"""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import networkx as nx
import numpy as np

from skyplane_orchestration.planner.overlay import Overlay, flows_over, instances_needed
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.solution import FLOW_TOLERANCE, IntegerSolution

#: Share of one connection or instance that counts as rounding.
ROUNDING = 1e-6


def decode(solution: IntegerSolution) -> Overlay:
    """The overlay of a solution: at most its connections and instances."""
    problem = solution.problem
    paths = _paths(solution)
    # The option that each region has instances of, or its first option if it has none.
    options: dict[str, int] = {}
    for option in np.argsort(-solution.instances, kind="stable"):
        options.setdefault(problem.tags[problem.option_region[option]], int(option))
    most = Overlay(
        throughput_gbps=solution.throughput_gbps,
        paths=paths,
        flows=flows_over((pairwise(regions), flow) for regions, flow in paths.items()),
        connections={
            edge: int(count) for edge, count in problem.by_edge(solution.connections).items()
        },
        instances={tag: int(solution.instances[option]) for tag, option in options.items()},
        types={tag: problem.types[option] for tag, option in options.items()},
    )
    return with_fewest(most, problem)


def with_fewest(most: Overlay, problem: PlanProblem) -> Overlay:
    """The overlay with the fewest connections and instances that carry its flows.

    At least one of each, and at most those of `most`: the solver's tolerance is a noticeable share
    of a connection on a slow edge. Instances: ends, then relays by name.
    """
    gbps_each = problem.by_edge(problem.gbps_per_connection)
    connections = {
        edge: max(1, min(math.ceil(flow / gbps_each[edge] - ROUNDING), most.connections[edge]))
        for edge, flow in most.flows.items()
    }
    ends = [problem.tags[end] for end in problem.ends]
    relays = {tag for edge in most.flows for tag in edge} - set(ends)
    instances: dict[str, int] = {}
    for tag in (*ends, *sorted(relays)):
        needed = instances_needed(tag, most.types[tag], most.flows, connections)
        count = math.ceil(max(needed.values()) - ROUNDING)
        instances[tag] = max(1, min(count, most.instances[tag]))
    types = {tag: most.types[tag] for tag in instances}
    return replace(most, connections=connections, instances=instances, types=types)


def _paths(solution: IntegerSolution) -> dict[tuple[str, ...], float]:
    """Simple paths with their flows, scaled to add up to the throughput."""
    problem = solution.problem
    # Flow without a connection is the solver's tolerance.
    carried = (solution.connections > 0) & (solution.flow_gbps > FLOW_TOLERANCE)
    graph: nx.DiGraph[str] = nx.DiGraph()
    for edge, flow in problem.by_edge(np.where(carried, solution.flow_gbps, 0.0)).items():
        if flow > 0.0:
            graph.add_edge(*edge, flow=flow)
    graph.add_nodes_from(problem.tags[end] for end in problem.ends)
    ends = problem.tags[problem.src], problem.tags[problem.dst]
    found: dict[tuple[str, ...], float] = {}
    while nx.has_path(graph, *ends):
        path = tuple(nx.shortest_path(graph, *ends))
        found[path] = min(graph.edges[hop]["flow"] for hop in pairwise(path))
        for hop in pairwise(path):
            graph.edges[hop]["flow"] -= found[path]
            if graph.edges[hop]["flow"] <= FLOW_TOLERANCE:
                graph.remove_edge(*hop)
    scale = solution.throughput_gbps / sum(found.values()) if found else 1.0
    return {
        regions: flow * scale
        for regions, flow in sorted(found.items(), key=lambda item: (-item[1], item[0]))
    }
