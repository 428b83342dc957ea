"""What all connections of a plan are expected to carry, and what the plan promises."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import pairwise

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.promised import promised_shares
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
    shares = promised_shares(grid, confidence)
    reached: dict[Edge, float] = {}
    sure: dict[Edge, float] = {}
    for edge, flow in overlay.flows.items():
        place = grid.index_of(edge[0]), grid.index_of(edge[1])
        pairs = overlay.connections[edge] / MEASURED_CONNECTIONS
        reached[edge] = float(grid.throughput_gbps[place]) * pairs / flow
        sure[edge] = reached[edge] * float(shares[place])
    expected, lost = 0.0, 0.0
    for regions, flow in overlay.paths.items():
        edges = list(pairwise(regions))
        mean = min(growth, *(reached[edge] for edge in edges))
        low = min(growth, *(sure[edge] for edge in edges))
        expected += flow * mean
        lost = math.hypot(lost, flow * (mean - low))
    return expected, expected - lost
