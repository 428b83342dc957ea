"""What there is without an optimiser: the direct path, and the best single relay.

Both fill whole instances and ignore the price, as their users would.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import pairwise

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.job import NO_LIMITS, Limits
from skyplane_orchestration.plan import SolverReport, TransferPlan
from skyplane_orchestration.planner.assemble import Request, assemble
from skyplane_orchestration.planner.decode import Overlay
from skyplane_orchestration.planner.problem import MEASURED_CONNECTIONS


def direct(
    grid: Grid,
    src: str,
    dst: str,
    instances: int = 1,
    volume_gb: float | None = None,
    *,
    objects: int | None = None,
    limits: Limits = NO_LIMITS,
) -> TransferPlan:
    """The direct path with `instances` at each end, every connection in use.

    Raises UnknownRegion, and PlanInfeasible when the grid has no such edge.
    """
    request = Request(
        src, dst, {"kind": "direct", "instances": instances}, volume_gb, objects, limits.chunk_mib
    )
    return _chain(grid, request, (src, dst), instances, limits.instance_types)


def best_relay(
    grid: Grid,
    src: str,
    dst: str,
    instances: int = 1,
    volume_gb: float | None = None,
    *,
    objects: int | None = None,
    limits: Limits = NO_LIMITS,
) -> TransferPlan:
    """The fastest way over at most one relay, whatever it costs (RON); ties stay direct."""
    request = Request(
        src, dst, {"kind": "ron", "instances": instances}, volume_gb, objects, limits.chunk_mib
    )
    chosen = limits.instance_types
    best: tuple[float, tuple[str, ...]] = (
        _rate(grid, (src, dst), instances, chosen),
        (src, dst),
    )
    for relay in grid.tags:
        if relay not in (src, dst):
            regions = (src, relay, dst)
            rate = _rate(grid, regions, instances, chosen)
            if rate > best[0]:
                best = rate, regions
    return _chain(grid, request, best[1], instances, chosen)


def _rate(grid: Grid, regions: tuple[str, ...], instances: int, chosen: Mapping[str, str]) -> float:
    """Gbit/s of a chain of regions with as many instances in each."""
    types = [grid.instance_type(tag.partition(":")[0], _named(tag, chosen)) for tag in regions]
    hops = list(pairwise(regions))
    limits = [
        *(
            float(grid.throughput_gbps[grid.index_of(tail), grid.index_of(head)])
            * min(one.connection_limit, other.connection_limit)
            / MEASURED_CONNECTIONS
            for (tail, head), one, other in zip(hops, types, types[1:], strict=False)
        ),
        *(kind.egress_gbps for kind in types[:-1]),
        *(kind.ingress_gbps for kind in types[1:]),
    ]
    return min(limits) * instances


def _named(tag: str, chosen: Mapping[str, str]) -> str | None:
    return chosen.get(tag.partition(":")[0])


def _chain(
    grid: Grid,
    request: Request,
    regions: tuple[str, ...],
    instances: int,
    chosen: Mapping[str, str],
) -> TransferPlan:
    started = time.perf_counter()
    rate = _rate(grid, regions, instances, chosen)
    if rate <= 0:
        raise PlanInfeasible(
            f"grid {grid.name!r} has no edge {' -> '.join(regions)}",
            binding=("no_route",),
            most_gbps=0.0,
        )
    types = {tag: grid.instance_type(tag.partition(":")[0], _named(tag, chosen)) for tag in regions}
    hops = list(pairwise(regions))
    connections = {
        (tail, head): min(types[tail].connection_limit, types[head].connection_limit) * instances
        for tail, head in hops
    }
    overlay = Overlay(
        throughput_gbps=rate,
        paths={regions: rate},
        flows=dict.fromkeys(hops, rate),
        connections=connections,
        instances=dict.fromkeys(regions, instances),
    )
    report = SolverReport("baseline", 0.0, 0.0, time.perf_counter() - started)
    return assemble(grid, request, overlay, types, binding=(), solver=report)
