"""Routes of gateways from a plan of regions.

A plan has paths over regions with several instances; a route is a sequence of gateways. A
path's flow is a line of length 1. Each region cuts it into equal pieces, one per gateway. The
pieces between the cuts of all regions are the routes, so gateways of a region share equally.

Before it carries a transfer, a fleet may measure edges on routes of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Final

from skyplane_gateway.config import MAX_CONNECTIONS, TREE_CONNECTIONS, Route
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import instance_of
from skyplane_orchestration.model.plan import PlanEdge, TransferPlan
from skyplane_orchestration.provision.fleet.machines import Reach

#: Of routes that measure: those of plans count from 0, and numbers end at 65,535.
_FIRST_PROBE: Final = 1 << 15

#: An edge, as region tags.
Edge = tuple[str, str]


def node_names(
    plan: TransferPlan, max_instances_per_region: int | None = None
) -> dict[str, tuple[str, ...]]:
    """Region tag -> names of its instances, `region tag/index`, for all regions on a path.

    They are names of gateways as well, where each instance has one gateway.

    Raises ConfigurationInvalid if a path has a region without instances.
    """
    nodes: dict[str, tuple[str, ...]] = {}
    for region in dict.fromkeys(region for path in plan.paths for region in path.regions):
        planned = _planned_count(plan, region)
        count = min(planned, max_instances_per_region or planned)
        nodes[region] = tuple(f"{region}/{index}" for index in range(count))
    if not nodes:
        raise ConfigurationInvalid("the plan has no path; make the plan again")
    return nodes


def split_into_processes(
    instances: Mapping[str, Sequence[str]], processes: int
) -> dict[str, tuple[str, ...]]:
    """Region tag -> names of its gateways, with `processes` of them on each instance.

    Routes divide flow and connections of an instance among its gateways. `instances` are from
    `node_names`.
    """
    return {
        region: tuple(
            f"{instance}.{process}" if processes > 1 else instance
            for instance in names
            for process in range(processes)
        )
        for region, names in instances.items()
    }


def build_routes(
    plan: TransferPlan, nodes_by_region: Mapping[str, Sequence[str]]
) -> tuple[Route, ...]:
    """The routes of a fleet, numbered from 0; their shares add up to the plan's throughput.

    A hop has the route's share of the edge's planned connections, from 1 to 64, and fewer if
    `nodes_by_region` has gateways on fewer instances than planned.

    Raises ConfigurationInvalid if regions, paths and edges do not fit together.
    """
    edges = {(edge.src, edge.dst): edge for edge in plan.edges}
    if plan.trees:
        return _routes_along_trees(plan, edges, nodes_by_region)
    routes: list[Route] = []
    for path in plan.paths:
        hops = [_edge_of(edges, hop) for hop in pairwise(path.regions)]
        ceiling, over = plan.egress_ceiling_usd_per_gb, 0.0
        if ceiling is not None:
            over = sum(edge.usd_per_gb for edge in hops) - ceiling
        for nodes, share in _pieces(path.regions, nodes_by_region):
            share_gbps = path.flow_gbps * float(share)
            connections = tuple(
                _connections(plan, edge, share_gbps, nodes_by_region) for edge in hops
            )
            routes.append(Route(len(routes), nodes, connections, share_gbps, (), over))
    used = {node for route in routes for node in route.nodes}
    idle = [node for nodes in nodes_by_region.values() for node in nodes if node not in used]
    if idle:
        raise ConfigurationInvalid(f"no path of the plan leads through {', '.join(idle)}")
    return tuple(routes)


def _routes_along_trees(
    plan: TransferPlan,
    edges: Mapping[tuple[str, str], PlanEdge],
    nodes_by_region: Mapping[str, Sequence[str]],
) -> tuple[Route, ...]:
    """A route to each destination along each piece of a tree; the piece has a number as well.

    A hop has `TREE_CONNECTIONS + 1` parts of connections. Its routes share one part. The tree gets
    the others (see `Tree.of`).
    """
    routes: list[Route] = []
    number = 0
    for tree in plan.trees:
        regions = tuple(dict.fromkeys(region for edge in tree.edges for region in edge))
        paths = [tree.path_to(tag) for tag in plan.destinations]
        used = Counter(hop for path in paths for hop in pairwise(path))
        for nodes, share in _pieces(regions, nodes_by_region):
            node_of = dict(zip(regions, nodes, strict=True))
            gbps = tree.flow_gbps * float(share)
            of_tree = number
            for path in paths:
                connections = tuple(
                    max(
                        1,
                        _connections(plan, _edge_of(edges, hop), gbps, nodes_by_region)
                        // (used[hop] * (TREE_CONNECTIONS + 1)),
                    )
                    for hop in pairwise(path)
                )
                number += 1
                way = tuple(node_of[region] for region in path)
                routes.append(Route(number, way, connections, gbps, tree=of_tree))
            number += 1
    return tuple(routes)


def dialed(routes: Sequence[Route], reach_of: Callable[[str], Reach]) -> tuple[Route, ...]:
    """The same routes, each hop dialed by a gateway that reaches the other one.

    Args:
        reach_of: of the gateways of a region tag.

    Raises ConfigurationInvalid: a hop has none, or a source does not reach a sink, whose control
    API it calls.
    """

    def reaches(dialer: str, other: str) -> bool:
        own, its = (reach_of(_region(node)) for node in (dialer, other))
        if own.network == its.network:
            return True
        if its.is_open and own.network and not own.egress_cidrs:
            raise ConfigurationInvalid(
                f"gateways of {_region(dialer)} open connections to {_region(other)}; name the"
                " addresses from which these leave their network: egress_cidrs of the region"
            )
        return its.is_open

    found = []
    for route in routes:
        ends = route.nodes[0], route.nodes[-1]
        if not reaches(*ends):
            raise ConfigurationInvalid(
                f"{_region(ends[1])} admits no connections of {_region(ends[0])}, and sources call"
                " the control API of sinks: give the destination's region load_balancer, or both"
                " the same network"
            )
        backwards = []
        for number, (upstream, downstream) in enumerate(pairwise(route.nodes)):
            if reaches(upstream, downstream):
                continue
            if not reaches(downstream, upstream):
                raise ConfigurationInvalid(
                    f"neither {_region(upstream)} nor {_region(downstream)} admits connections of"
                    " the other: give one of them load_balancer, or both the same network, or plan"
                    " with a relay in a region of a cloud (allow_regions)"
                )
            backwards.append(number)
        found.append(replace(route, dialed_by_downstream=tuple(backwards)))
    return tuple(found)


def _region(node: str) -> str:
    return node.rpartition("/")[0]


def peers_of(nodes_by_region: Mapping[str, Sequence[str]]) -> dict[str, frozenset[str]]:
    """Node -> the nodes of other regions: those that may become its neighbours.

    A fleet gets other routes when it is planned again on what it has measured.
    """
    every = {node for nodes in nodes_by_region.values() for node in nodes}
    return {
        node: frozenset(every.difference(nodes))
        for nodes in nodes_by_region.values()
        for node in nodes
    }


def edges_to_probe(plan: TransferPlan) -> tuple[Edge, ...]:
    """The edges of the plan, the direct path, and those of paths over one of its relays."""
    if not plan.edges:
        return ()
    planned = ((edge.src, edge.dst) for edge in plan.edges)
    over_one = (edge for relay in plan.relays for edge in pairwise((plan.src, relay, plan.dst)))
    return tuple(dict.fromkeys((*planned, (plan.src, plan.dst), *over_one)))


def probe_routes(
    edges: Iterable[Edge],
    nodes_by_region: Mapping[str, Sequence[str]],
    planned: Iterable[Route] = (),
) -> tuple[Route, ...]:
    """The routes of all edges, each between the first instances of both regions.

    The gateways of an instance divide its 64 connections, as with a plan that has so many.

    Args:
        planned: the fleet's own routes, which tell who of an edge can dial the other.
    """
    backwards = {
        (_region(route.nodes[hop]), _region(route.nodes[hop + 1]))
        for route in planned
        for hop in route.dialed_by_downstream
    }
    routes: list[Route] = []
    for src, dst in edges:
        ends = (_first_instance(nodes_by_region[tag]) for tag in (src, dst))
        pairs = list(zip(*ends, strict=False))
        connections = (max(1, MAX_CONNECTIONS // len(pairs)),)
        by_downstream = (0,) if (src, dst) in backwards else ()
        routes += [
            Route(number, pair, connections, 1.0, by_downstream)
            for number, pair in enumerate(pairs, _FIRST_PROBE + len(routes))
        ]
    return tuple(routes)


def _first_instance(nodes: Sequence[str]) -> list[str]:
    first = instance_of(nodes[0])
    return [node for node in nodes if instance_of(node) == first]


def connections_of(routes: Sequence[Route]) -> dict[str, int]:
    """Node -> number of its data connections, for all nodes of the routes."""
    found = {node: 0 for route in routes for node in route.nodes}
    for route in routes:
        with_tree = 1 if route.tree is None else 1 + TREE_CONNECTIONS
        for hop, count in zip(pairwise(route.nodes), route.connections, strict=True):
            for node in hop:
                found[node] += with_tree * count
    return found


def _pieces(
    regions: Sequence[str], nodes_by_region: Mapping[str, Sequence[str]]
) -> list[tuple[tuple[str, ...], Fraction]]:
    """The routes of a path, or the pieces of a tree, as (nodes, share of its flow)."""
    groups = [nodes_by_region.get(region, ()) for region in regions]
    for region, group in zip(regions, groups, strict=True):
        if not group:
            raise ConfigurationInvalid(f"the plan has a path over {region}, which has no gateway")
    cuts = sorted({Fraction(k, len(group)) for group in groups for k in range(len(group))})
    ends = [*cuts[1:], Fraction(1)]
    return [
        (tuple(group[int(begin * len(group))] for group in groups), end - begin)
        for begin, end in zip(cuts, ends, strict=True)
    ]


def _connections(
    plan: TransferPlan, edge: PlanEdge, gbps: float, nodes_by_region: Mapping[str, Sequence[str]]
) -> int:
    """Connections of a route that carries so much of an edge."""
    share_of_edge = gbps / edge.flow_gbps if edge.flow_gbps > 0 else 1.0
    # With fewer instances than planned, connections are fewer too: one instance gains nothing
    # beyond 64, and its connections share its memory.
    running = min(
        len({instance_of(node) for node in nodes_by_region[region]}) / _planned_count(plan, region)
        for region in (edge.src, edge.dst)
    )
    wanted = round(edge.connections * share_of_edge * min(1.0, running))
    return max(1, min(wanted, MAX_CONNECTIONS))


def _edge_of(edges: Mapping[tuple[str, str], PlanEdge], hop: tuple[str, str]) -> PlanEdge:
    edge = edges.get(hop)
    if edge is None:
        raise ConfigurationInvalid(
            f"the plan has a path over {hop[0]} -> {hop[1]}, which is not one of its edges"
        )
    return edge


def _planned_count(plan: TransferPlan, region: str) -> int:
    group = plan.instances.get(region)
    if group is None or group.count < 1:
        raise ConfigurationInvalid(
            f"the plan has a path over {region}, but no instance there; make the plan again"
        )
    return group.count
