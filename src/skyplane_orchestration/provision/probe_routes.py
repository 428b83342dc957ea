"""Routes on which a fleet measures edges, before it carries a transfer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    edges: Sequence[Edge], nodes_by_region: Mapping[str, Sequence[str]]
) -> dict[Edge, tuple[Route, ...]]:
    """The routes of each edge between the first instances of both regions.

    The gateways of an instance divide its 64 connections, as with a plan that has so many.
    """
    found: dict[Edge, tuple[Route, ...]] = {}
    number = _FIRST_NUMBER
    for edge in edges:
        pairs = list(zip(*(_first_instance(nodes_by_region[tag]) for tag in edge), strict=False))
        connections = max(1, MAX_CONNECTIONS // len(pairs))
        found[edge] = tuple(
            Route(number + index, pair, (connections,), 1.0) for index, pair in enumerate(pairs)
        )
        number += len(pairs)
    return found


def _first_instance(nodes: Sequence[str]) -> list[str]:
    first = instance_of(nodes[0])
    return [node for node in nodes if instance_of(node) == first]
