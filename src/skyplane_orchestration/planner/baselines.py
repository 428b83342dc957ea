"""Plans without an optimiser: the direct path, and the best single relay.

Both fill whole instances and ignore the price.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Final

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.grids.egress_pricing import priced_for
from skyplane_orchestration.model.job import (
    ANY_REGION,
    NO_LIMITS,
    Limits,
    MinimizeCost,
    Objective,
    Policy,
)
from skyplane_orchestration.model.plan import SolverReport, TransferPlan
from skyplane_orchestration.planner import infeasibility
from skyplane_orchestration.planner.build_plan import LEAST_GBPS, PlanRequest, assemble
from skyplane_orchestration.planner.constraint_names import NO_ROUTE
from skyplane_orchestration.planner.instance_options import (
    MEASURED_CONNECTIONS,
    chosen_type,
    quota_of,
    roles_in,
)
from skyplane_orchestration.planner.overlay import Overlay
from skyplane_orchestration.planner.single_region import is_single_region
from skyplane_orchestration.units import gb_to_gbit

#: The default floor within one region, where no path gives a rate.
_RATE_WITHOUT_EDGES_GBPS: Final = 1.0


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
    """The direct path with `instances` at each end, or fewer by the limits, all connections in use.

    Raises UnknownRegion, and PlanInfeasible when the grid has no such edge.
    """
    grid = priced_for(grid, ANY_REGION, volume_gb)
    request = PlanRequest(grid, src, (dst,), volume_gb, objects, limits)
    return _fastest_chain(request, "direct", [(src, dst)], instances)


def best_relay(
    grid: Grid,
    src: str,
    dst: str,
    instances: int = 1,
    volume_gb: float | None = None,
    *,
    objects: int | None = None,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
) -> TransferPlan:
    """The fastest path over at most one relay, at any price; ties go to the direct path.

    This is RON's path selection as in section 7.6 of the paper: one relay for all of the flow,
    chosen by throughput among the regions that the policy allows. Instances as in `direct`.

    Raises UnknownRegion, and PlanInfeasible when the grid has no such path.
    """
    grid = priced_for(grid, policy, volume_gb)
    request = PlanRequest(grid, src, (dst,), volume_gb, objects, limits)
    return _fastest_chain(request, "ron", _chains(request, policy), instances)


def _chains(request: PlanRequest, policy: Policy) -> list[tuple[str, ...]]:
    """The direct path, and those over one relay that policy and limits allow."""
    ends = src, dst = request.src, request.dst
    if request.limits.max_relays == 0:
        return [ends]
    # Loads NumPy, which plans within one region do without.
    from skyplane_orchestration.planner.problem import may_relay

    grid = request.grid
    relays = [tag for tag in grid.tags if tag not in ends and may_relay(grid, policy, tag)]
    return [ends, *((src, relay, dst) for relay in relays)]


def baselines(
    grid: Grid,
    src: str,
    dst: str,
    volume_gb: float | None = None,
    *,
    objects: int | None = None,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
) -> dict[str, tuple[int, TransferPlan | PlanInfeasible]]:
    """`direct_1`, `direct_n`, `ron_1` and `ron_n`: the number of instances, and the plan or its
    error.

    `_1` has one instance per region, `_n` as many as the limits allow at the end that allows more.

    Raises UnknownRegion.
    """
    grid = priced_for(grid, policy, volume_gb)
    request = PlanRequest(grid, src, (dst,), volume_gb, objects, limits)
    most = max(
        quota_of(grid, tag, chosen_type(grid, tag, limits), limits).instances for tag in (src, dst)
    )
    found: dict[str, tuple[int, TransferPlan | PlanInfeasible]] = {}
    for kind, chains in (("direct", [(src, dst)]), ("ron", _chains(request, policy))):
        for suffix, count in (("1", 1), ("n", most)):
            try:
                found[f"{kind}_{suffix}"] = count, _fastest_chain(request, kind, chains, count)
            except PlanInfeasible as error:
                found[f"{kind}_{suffix}"] = count, error
    return found


def default_objective(grid: Grid, src: str, dst: str, limits: Limits = NO_LIMITS) -> MinimizeCost:
    """A floor at the rate of the direct path with one instance at each end (region tags).

    Raises UnknownRegion, and PlanInfeasible when there is no such path.
    """
    if is_single_region(grid, src, dst):
        stores = (limits.source_read_gbps, limits.destination_write_gbps)
        return MinimizeCost(min((_RATE_WITHOUT_EDGES_GBPS, *(rate for rate in stores if rate))))
    return MinimizeCost(direct(grid, src, dst, 1, limits=limits).throughput_gbps)


def with_floor(
    grid: Grid,
    src: str,
    dst: str,
    objective: Objective,
    limits: Limits,
    volume_gb: float | None,
    objects: int | None,
) -> Objective:
    """The objective, with the floor of `default_objective` where it has none.

    It is lower where the objects of the job take longer than their bytes. Where no direct path is
    known, any rate will do. Raises UnknownRegion and PlanInfeasible.
    """
    if not isinstance(objective, MinimizeCost) or objective.min_throughput_gbps is not None:
        return objective
    try:
        floor = default_objective(grid, src, dst, limits).floor_gbps
        if not is_single_region(grid, src, dst):
            alone = direct(grid, src, dst, 1, volume_gb, objects=objects, limits=limits)
            if volume_gb and alone.transfer_s:
                floor = min(floor, gb_to_gbit(volume_gb) / alone.transfer_s)
    except PlanInfeasible as error:
        if error.binding != (NO_ROUTE,):
            raise
        floor = LEAST_GBPS
    return replace(objective, min_throughput_gbps=floor)


def _fastest_chain(
    request: PlanRequest, kind: str, chains: Iterable[tuple[str, ...]], instances: int
) -> TransferPlan:
    """The plan of the fastest chain of regions; ties go to the first chain."""
    started = time.perf_counter()
    overlay = max(
        (_overlay(request, regions, instances) for regions in chains),
        key=lambda one: one.throughput_gbps,
    )
    for tag, count in overlay.instances.items():
        if count < 1:
            raise _no_instance(request, tag, overlay.types[tag])
    if overlay.throughput_gbps <= 0:
        (regions,) = overlay.paths
        raise PlanInfeasible(
            f"grid {request.grid.name!r} has no edge {' -> '.join(regions)}",
            binding=(NO_ROUTE,),
            most_gbps=0.0,
        )
    return assemble(
        request,
        overlay,
        objective={"kind": kind, "instances": instances},
        binding=(),
        solver=SolverReport("baseline", 0.0, 0.0, time.perf_counter() - started),
    )


def _overlay(request: PlanRequest, regions: tuple[str, ...], instances: int) -> Overlay:
    """A chain of regions with up to this many instances in each, and all of their connections.

    The rate is the least of (4b), (4f), (4g) and the stores' limits. A hop has as many connections
    as the end with fewer allows, (4h) and (4i).
    """
    grid, limits = request.grid, request.limits
    types = {
        tag: chosen_type(grid, tag, limits, roles_in(tag, request.src, request.destinations))
        for tag in regions
    }
    counts = {
        tag: min(instances, quota_of(grid, tag, kind, limits).instances)
        for tag, kind in types.items()
    }
    most = {tag: kind.connection_limit * counts[tag] for tag, kind in types.items()}
    connections = {(tail, head): min(most[tail], most[head]) for tail, head in pairwise(regions)}
    rates = list(request.store_gbps.values())
    for (tail, head), count in connections.items():
        rate = float(grid.throughput_gbps[grid.index_of(tail), grid.index_of(head)])
        rates += [
            rate * (1 - limits.safety_margin) * count / MEASURED_CONNECTIONS,
            types[tail].egress_gbps * counts[tail],
            types[head].ingress_gbps * counts[head],
        ]
    return Overlay(
        throughput_gbps=min(rates),
        paths={regions: min(rates)},
        flows=dict.fromkeys(connections, min(rates)),
        connections=connections,
        instances=counts,
        types=types,
    )


def _no_instance(request: PlanRequest, tag: str, kind: InstanceType) -> PlanInfeasible:
    quota = quota_of(request.grid, tag, kind, request.limits)
    if quota.owner:
        return infeasibility.no_instance(tag, quota)
    return PlanInfeasible(
        f"the limits allow no instance of {kind.name} ({kind.vcpus} vCPUs) in {tag};"
        " raise the vCPU quota or choose a smaller type",
        binding=(f"{quota.name} {tag}",),
        most_gbps=0.0,
    )
