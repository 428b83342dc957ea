"""What to build, and how many instances it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from skyplane_orchestration.grids import InstanceType
from skyplane_orchestration.planner.constraint_names import (
    CONNECTION_LIMIT_IN,
    CONNECTION_LIMIT_OUT,
    EGRESS_LIMIT,
    INGRESS_LIMIT,
)

#: The region tags of an edge.
Edge = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Overlay:
    """What to build, by region tag; rates in Gbit/s.

    Attributes:
        paths: regions of a path -> flow; empty for several destinations.
        flows: edge -> flow, the sum over the paths or trees that use it.
        connections: edge -> connections over the whole edge.
        instances: region -> instances, for every region on a path or tree.
        types: region -> instance type, at least for the regions with instances.
        trees: edges of a distribution tree -> flow; empty for one destination.
    """

    throughput_gbps: float
    paths: Mapping[tuple[str, ...], float]
    flows: Mapping[Edge, float]
    connections: Mapping[Edge, int]
    instances: Mapping[str, int]
    types: Mapping[str, InstanceType]
    trees: Mapping[tuple[Edge, ...], float] = field(default_factory=dict)


def flows_over(parts: Iterable[tuple[Iterable[Edge], float]]) -> dict[Edge, float]:
    """Edge -> flow, from the edges and the flow of every path or tree."""
    found: dict[Edge, float] = {}
    for edges, flow in parts:
        for edge in edges:
            found[edge] = found.get(edge, 0.0) + flow
    return found


def with_spare_connections(overlay: Overlay) -> Overlay:
    """The same flows over the connections that the instances have, in proportion.

    They cost nothing, and an edge that is slower than the grid says keeps its flow the longer. One
    of several paths may be expensive, so the edges at the end with the least to spare stay as they
    are then: they hold every path to its share.
    """
    used: Counter[tuple[int, str]] = Counter()
    for edge, count in overlay.connections.items():
        used.update(dict.fromkeys(enumerate(edge), count))
    most = {end: overlay.types[end[1]].connection_limit * overlay.instances[end[1]] for end in used}
    src, *_, dst = next(iter(overlay.paths))
    holding = max((0, src), (1, dst), key=lambda end: used[end] / most[end])

    def spread(edge: Edge, count: int) -> int:
        if len(overlay.paths) > 1 and holding in enumerate(edge):
            return count
        return min(count * most[end] // used[end] for end in enumerate(edge))

    return replace(
        overlay,
        connections={edge: spread(edge, count) for edge, count in overlay.connections.items()},
    )


def instances_needed(
    tag: str, kind: InstanceType, flows: Mapping[Edge, float], connections: Mapping[Edge, int]
) -> dict[str, float]:
    """How many instances a region needs, by the name of the limit: (4g), (4f), (4h), (4i)."""
    outward = [edge for edge in flows if edge[0] == tag]
    inward = [edge for edge in flows if edge[1] == tag]
    return {
        EGRESS_LIMIT: sum(flows[edge] for edge in outward) / kind.egress_gbps,
        INGRESS_LIMIT: sum(flows[edge] for edge in inward) / kind.ingress_gbps,
        CONNECTION_LIMIT_OUT: sum(connections[edge] for edge in outward) / kind.connection_limit,
        CONNECTION_LIMIT_IN: sum(connections[edge] for edge in inward) / kind.connection_limit,
    }
