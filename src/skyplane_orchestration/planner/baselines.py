"""Plans without an optimiser: the direct path, and the best single relay.

Both fill whole instances and ignore the price.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import pairwise

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    ANY_REGION,
    NO_LIMITS,
    Limits,
    MinimizeCost,
    Policy,
)
from skyplane_orchestration.model.plan import SolverReport, TransferPlan
from skyplane_orchestration.planner.build_plan import PlanRequest, assemble
from skyplane_orchestration.planner.constraint_names import NO_ROUTE
from skyplane_orchestration.planner.instance_options import (
    MEASURED_CONNECTIONS,
    chosen_type,
    quota_of,
    read_limit_gbps,
    write_limit_gbps,
)
from skyplane_orchestration.planner.overlay import Overlay
from skyplane_orchestration.planner.problem import may_relay
from skyplane_orchestration.planner.single_region import is_single_region

#: The default floor within one region, where no path gives a rate.
_RATE_WITHOUT_EDGES_GBPS = 1.0


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
    request = _request("direct", src, dst, instances, volume_gb, objects, limits)
    return _chain_plan(grid, request, (src, dst), instances, limits)


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
    request = _request("ron", src, dst, instances, volume_gb, objects, limits)
    best: tuple[str, ...] = (src, dst)
    best_gbps = _rate_gbps(grid, best, instances, limits)
    relays = grid.tags if limits.max_relays != 0 else ()
    for relay in relays:
        if relay in (src, dst) or not may_relay(relay, policy):
            continue
        rate = _rate_gbps(grid, (src, relay, dst), instances, limits)
        if rate > best_gbps:
            best_gbps, best = rate, (src, relay, dst)
    return _chain_plan(grid, request, best, instances, limits)


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
    kinds: tuple[tuple[str, Callable[..., TransferPlan]], ...] = (
        ("direct", direct),
        ("ron", partial(best_relay, policy=policy)),
    )
    most = max(most_instances(grid, tag, limits) for tag in (src, dst))
    found: dict[str, tuple[int, TransferPlan | PlanInfeasible]] = {}
    for name, baseline in kinds:
        for suffix, count in (("1", 1), ("n", most)):
            result: TransferPlan | PlanInfeasible
            try:
                result = baseline(grid, src, dst, count, volume_gb, objects=objects, limits=limits)
            except PlanInfeasible as error:
                result = error
            found[f"{name}_{suffix}"] = count, result
    return found


def default_objective(grid: Grid, src: str, dst: str, limits: Limits = NO_LIMITS) -> MinimizeCost:
    """A floor at the rate of the direct path with one instance at each end (region tags).

    Raises UnknownRegion, and PlanInfeasible when there is no such path.
    """
    if is_single_region(grid, src, dst):
        return MinimizeCost(_RATE_WITHOUT_EDGES_GBPS)
    return MinimizeCost(direct(grid, src, dst, 1, limits=limits).throughput_gbps)


def most_instances(grid: Grid, tag: str, limits: Limits = NO_LIMITS) -> int:
    """How many instances of the chosen type one region may have."""
    return quota_of(grid, tag, chosen_type(grid, tag, limits), limits).instances


def _request(
    kind: str,
    src: str,
    dst: str,
    instances: int,
    volume_gb: float | None,
    objects: int | None,
    limits: Limits,
) -> PlanRequest:
    objective = {"kind": kind, "instances": instances}
    return PlanRequest(src, dst, objective, volume_gb, objects, limits.chunk_mib)


def _counts(
    grid: Grid, regions: tuple[str, ...], instances: int, limits: Limits
) -> Mapping[str, int]:
    return {tag: min(instances, most_instances(grid, tag, limits)) for tag in regions}


def _connections(
    grid: Grid, regions: tuple[str, ...], counts: Mapping[str, int], limits: Limits
) -> Mapping[tuple[str, str], int]:
    """Connections per hop: as many as the end with fewer allows, (4h) and (4i)."""
    most = {tag: chosen_type(grid, tag, limits).connection_limit * counts[tag] for tag in regions}
    return {(tail, head): min(most[tail], most[head]) for tail, head in pairwise(regions)}


def _rate_gbps(grid: Grid, regions: tuple[str, ...], instances: int, limits: Limits) -> float:
    """The rate of a chain of regions: the least of (4b), (4f), (4g) and the stores' limits."""
    counts = _counts(grid, regions, instances, limits)
    return min(_rate_limits_gbps(grid, regions, counts, limits))


def _rate_limits_gbps(
    grid: Grid, regions: tuple[str, ...], counts: Mapping[str, int], limits: Limits
) -> Iterator[float]:
    usable_share = 1 - limits.safety_margin
    for (tail, head), count in _connections(grid, regions, counts, limits).items():
        rate = float(grid.throughput_gbps[grid.index_of(tail), grid.index_of(head)])
        yield rate * usable_share * count / MEASURED_CONNECTIONS
        yield chosen_type(grid, tail, limits).egress_gbps * counts[tail]
        yield chosen_type(grid, head, limits).ingress_gbps * counts[head]
    for store_gbps in (
        read_limit_gbps(grid, regions[0], limits),
        write_limit_gbps(grid, regions[-1], limits),
    ):
        if store_gbps is not None:
            yield store_gbps


def _chain_plan(
    grid: Grid,
    request: PlanRequest,
    regions: tuple[str, ...],
    instances: int,
    limits: Limits,
) -> TransferPlan:
    started = time.perf_counter()
    rate = _rate_gbps(grid, regions, instances, limits)
    counts = _counts(grid, regions, instances, limits)
    _require_instances(grid, counts, limits)
    if rate <= 0:
        raise PlanInfeasible(
            f"grid {grid.name!r} has no edge {' -> '.join(regions)}",
            binding=(NO_ROUTE,),
            most_gbps=0.0,
        )
    overlay = Overlay(
        throughput_gbps=rate,
        paths={regions: rate},
        flows=dict.fromkeys(pairwise(regions), rate),
        connections=dict(_connections(grid, regions, counts, limits)),
        instances=dict(counts),
    )
    types = {tag: chosen_type(grid, tag, limits) for tag in regions}
    report = SolverReport("baseline", 0.0, 0.0, time.perf_counter() - started)
    return assemble(grid, request, overlay, types, binding=(), solver=report)


def _require_instances(grid: Grid, counts: Mapping[str, int], limits: Limits) -> None:
    for tag, count in counts.items():
        if count < 1:
            kind = chosen_type(grid, tag, limits)
            raise PlanInfeasible(
                f"the limits allow no instance of {kind.name} ({kind.vcpus} vCPUs) in {tag};"
                " raise the vCPU quota or choose a smaller type",
                binding=(f"{quota_of(grid, tag, kind, limits).name} {tag}",),
                most_gbps=0.0,
            )
