"""What all connections of a plan are expected to carry, and what the plan promises."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.promised import measured_share, promised_share
from skyplane_orchestration.planner.constraint_names import EGRESS_LIMIT, INGRESS_LIMIT
from skyplane_orchestration.planner.instance_options import MEASURED_CONNECTIONS
from skyplane_orchestration.planner.overlay import Edge, Overlay, instances_needed


def expected_and_promised_gbps(
    grid: Grid, overlay: Overlay, store_gbps: Iterable[float], confidence: float
) -> tuple[float, float]:
    """Gbit/s over the paths of an overlay, each at the rate of its slowest edge.

    Instances and stores let every path grow by the same factor. No path takes over what another
    lacks. Edges err independently, so what a promise takes off the paths adds up in squares.

    Args:
        store_gbps: the limits of the stores at the ends.
    """
    growth = min((most / overlay.throughput_gbps for most in store_gbps), default=math.inf)
    for tag, count in overlay.instances.items():
        needed = instances_needed(tag, overlay.types[tag], overlay.flows, overlay.connections)
        for name in (EGRESS_LIMIT, INGRESS_LIMIT):
            if needed[name] > 0:
                growth = min(growth, count / needed[name])
    reached = {edge: _rate_of(grid, overlay, edge) / flow for edge, flow in overlay.flows.items()}
    expected, lost = 0.0, 0.0
    for regions, flow in overlay.paths.items():
        edges = list(pairwise(regions))
        mean = min(growth, *(reached[edge] for edge in edges))
        low = min(growth, *(reached[edge] * _share(grid, edge, confidence) for edge in edges))
        expected += flow * mean
        lost = math.hypot(lost, flow * (mean - low))
    return expected, expected - lost


def _rate_of(grid: Grid, overlay: Overlay, edge: Edge) -> float:
    """Gbit/s over all connections of an edge."""
    rate = float(grid.throughput_gbps[grid.index_of(edge[0]), grid.index_of(edge[1])])
    return rate * overlay.connections[edge] / MEASURED_CONNECTIONS


def _share(grid: Grid, edge: Edge, confidence: float) -> float:
    """What the confidence leaves of an edge's rate."""
    src, dst = edge
    if grid.measured[grid.index_of(src), grid.index_of(dst)]:
        return measured_share(grid, confidence)
    clouds = ">".join(tag.partition(":")[0] for tag in edge)
    return promised_share(grid, clouds, confidence)
