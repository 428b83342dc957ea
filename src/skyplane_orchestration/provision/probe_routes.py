"""Routes on which a fleet measures edges, before it carries a transfer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from skyplane_gateway.config import MAX_CONNECTIONS, Route
from skyplane_orchestration.model.fleet import instance_of
from skyplane_orchestration.model.plan import TransferPlan

#: An edge, as region tags.
Edge = tuple[str, str]

#: The first number: routes of plans count from 0, and numbers end at 65,535.
_FIRST_NUMBER: Final = 1 << 15


def edges_to_probe(plan: TransferPlan) -> tuple[Edge, ...]:
    """The edges of the plan, the direct path, and those of paths over one of its relays."""
    if not plan.edges:
        return ()
    planned = ((edge.src, edge.dst) for edge in plan.edges)
    over_one = (edge for relay in plan.relays for edge in pairwise((plan.src, relay, plan.dst)))
    return tuple(dict.fromkeys((*planned, (plan.src, plan.dst), *over_one)))


def probe_routes(
    edges: Iterable[Edge], nodes_by_region: Mapping[str, Sequence[str]]
) -> tuple[Route, ...]:
    """The routes of all edges, each between the first instances of both regions.

    The gateways of an instance divide its 64 connections, as with a plan that has so many.
    """
    routes: list[Route] = []
    for src, dst in edges:
        ends = (_first_instance(nodes_by_region[tag]) for tag in (src, dst))
        pairs = list(zip(*ends, strict=False))
        connections = (max(1, MAX_CONNECTIONS // len(pairs)),)
        routes += [
            Route(number, pair, connections, 1.0)
            for number, pair in enumerate(pairs, _FIRST_NUMBER + len(routes))
        ]
    return tuple(routes)


def _first_instance(nodes: Sequence[str]) -> list[str]:
    first = instance_of(nodes[0])
    return [node for node in nodes if instance_of(node) == first]
