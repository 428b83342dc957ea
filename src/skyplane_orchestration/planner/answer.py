"""From a job's objective to a `TransferPlan`: the planner's one entry."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence

from skyplane_orchestration.errors import ConfigurationInvalid, PlanInfeasible, SolverFailed
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.job import (
    ANY_REGION,
    NO_LIMITS,
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
    objective_to_dict,
)
from skyplane_orchestration.plan import SolverReport, TransferPlan
from skyplane_orchestration.planner import costs
from skyplane_orchestration.planner.assemble import Request, assemble, requests_usd
from skyplane_orchestration.planner.check import violations
from skyplane_orchestration.planner.decode import Overlay, decode
from skyplane_orchestration.planner.explain import (
    COST_CEILING,
    DEADLINE,
    INSTANCE_QUOTA,
    binding_limits,
    infeasible,
)
from skyplane_orchestration.planner.problem import (
    PlanProblem,
    build_problem,
    quota_of,
)
from skyplane_orchestration.planner.search import OPTIMAL_GAP, Found, cheapest, fastest
from skyplane_orchestration.region import parse_region_tag
from skyplane_orchestration.units import (
    gb_to_gbit,
    usd_per_gb_to_usd_per_gbit,
    usd_per_gbit_to_usd_per_gb,
)

logger = logging.getLogger(__name__)

#: Seconds that each attempt to improve a plan, or to prove that nothing is better, may take.
PROOF_S = 0.2
#: Nothing slower is planned: below this, flows drown in the tolerances of the solver.
LEAST_GBPS = 1e-3
#: The rate from which the cheapest price of any plan at all is looked for.
_ANY_RATE_GBPS = 0.1


def plan(
    grid: Grid,
    src: str,
    dst: str,
    objective: Objective,
    *,
    volume_gb: float | None = None,
    objects: int | None = None,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
    proof_s: float = PROOF_S,
) -> TransferPlan:
    """The best plan for one objective between two region tags.

    `MinimizeCost` is the cheapest plan per GB at any rate of at least the floor, or at the
    floor itself when `exactly`; `Deadline` is the floor that a deadline needs;
    `MaximizeThroughput` is the fastest plan under a price ceiling, then the cheapest of
    these. Ties go to fewer relays. Every plan is checked against (4b) to (4j) before it is
    returned.

    Args:
        volume_gb: GB (1e9 bytes) to move; needed for a deadline and for a ceiling in USD.
        objects: number of objects, for the price of requests.
        limits: what a transfer may use; the grid's own limits where it does not say.
        policy: regions that may relay; the ends need no leave.
        proof_s: seconds for each attempt to improve the plan, or to prove that nothing is
            better, where a gap is left; 0 takes what there is and reports the gap.

    Raises UnknownRegion, PlanInfeasible (what binds, and the most that would go),
    ConfigurationInvalid (an objective that needs a volume), SolverFailed.
    """
    started = time.perf_counter()
    request = Request(src, dst, objective_to_dict(objective), volume_gb, objects, limits.chunk_mib)
    if src == dst or _is_off_grid_place(grid, src) or _is_off_grid_place(grid, dst):
        return _without_edges(grid, request, objective, limits)
    problem = build_problem(
        grid,
        src,
        dst,
        goal_gbps=_floor_gbps(objective, volume_gb, (src, dst)),
        limits=limits,
        policy=policy,
    )
    if isinstance(objective, MaximizeThroughput):
        found, solver = _fastest(grid, request, objective, problem, proof_s, started)
    else:
        found, solver = _cheapest(objective, problem, proof_s, started)
    overlay = decode(found.integers)
    types = dict(zip(problem.tags, problem.types, strict=True))
    quota = {tag: int(count) for tag, count in zip(problem.tags, problem.quota, strict=True)}
    binding = binding_limits(overlay, types, quota, problem.goal_gbps)
    if isinstance(objective, MaximizeThroughput) and not binding:
        binding = (COST_CEILING,)
    answer = assemble(grid, request, overlay, types, binding=binding, solver=solver)
    broken = violations(answer, grid, limits)
    if broken:
        raise SolverFailed(f"the plan does not hold: {'; '.join(broken)}")
    logger.info(
        "planned %s -> %s: %.3f Gbit/s, %.5f USD per GB, %d relays, gap %.2g, %.3f s",
        src,
        dst,
        answer.throughput_gbps,
        answer.cost.usd_per_gb,
        len(answer.relays),
        solver.gap,
        solver.solve_s,
    )
    return answer


def _floor_gbps(objective: Objective, volume_gb: float | None, ends: Sequence[str]) -> float:
    if isinstance(objective, MinimizeCost):
        return max(objective.min_throughput_gbps, LEAST_GBPS)
    if isinstance(objective, MaximizeThroughput):
        return _ANY_RATE_GBPS
    if not volume_gb:
        raise ConfigurationInvalid("a deadline needs a volume: give volume_gb, or list the source")
    # A relay may lie in the slowest cloud, so the slowest cloud is what has to be waited for.
    clouds = {tag.partition(":")[0] for tag in ends}
    up_s = costs.provision_s(ends if clouds == {"local"} else costs.PROVISION_S)
    if objective.seconds <= up_s:
        raise PlanInfeasible(
            f"gateways take about {up_s:g} s to come up, which leaves nothing of the deadline of"
            f" {objective.seconds:g} s; allow more time, or copy without gateways",
            binding=(DEADLINE,),
        )
    return max(gb_to_gbit(volume_gb) / (objective.seconds - up_s), LEAST_GBPS)


def _cheapest(
    objective: MinimizeCost | Deadline, problem: PlanProblem, proof_s: float, started: float
) -> tuple[Found, SolverReport]:
    exactly = isinstance(objective, MinimizeCost) and objective.exactly
    found = cheapest(problem, exactly=exactly, proof_s=proof_s)
    if found is None:
        raise infeasible(problem)
    bound = usd_per_gbit_to_usd_per_gb(found.bound)
    return found, _report(found.gap, bound, started)


def _fastest(
    grid: Grid,
    request: Request,
    objective: MaximizeThroughput,
    problem: PlanProblem,
    proof_s: float,
    started: float,
) -> tuple[Found, SolverReport]:
    ceiling = _ceiling_usd_per_gb(grid, request, objective)
    found = None
    if ceiling > 0:
        price = usd_per_gb_to_usd_per_gbit(ceiling)
        found = fastest(problem, price, proof_s=proof_s)
    if found is None:
        floor = cheapest(problem, exactly=False, proof_s=0.0)
        if floor is None:
            raise infeasible(problem)
        least = usd_per_gbit_to_usd_per_gb(floor.integers.usd_per_gbit)
        raise PlanInfeasible(
            f"no plan from {request.src} to {request.dst} costs {ceiling:g} USD per GB or less;"
            f" the cheapest costs {least:g} USD per GB. Raise the ceiling",
            binding=(COST_CEILING,),
        )
    bound = found.bound
    gap = max(0.0, bound / found.integers.throughput_gbps - 1.0)
    return found, _report(gap, bound, started)


def _ceiling_usd_per_gb(grid: Grid, request: Request, objective: MaximizeThroughput) -> float:
    """The price that egress and instances may have per GB, requests paid first."""
    if objective.max_usd_per_gb is not None:
        return objective.max_usd_per_gb
    if not request.volume_gb or objective.max_cost_usd is None:
        raise ConfigurationInvalid(
            "a ceiling in USD needs a volume: give volume_gb, or list the source"
        )
    return (objective.max_cost_usd - (requests_usd(grid, request) or 0.0)) / request.volume_gb


def _report(gap: float, bound: float, started: float) -> SolverReport:
    return SolverReport(
        status="optimal" if gap <= OPTIMAL_GAP else "feasible",
        gap=gap,
        bound=bound,
        solve_s=time.perf_counter() - started,
    )


# ---------------------------------------------------------------- no edge at all


def _is_off_grid_place(grid: Grid, tag: str) -> bool:
    """True for a place without a cloud that the grid says nothing about: this machine."""
    return tag not in grid.index and parse_region_tag(tag).is_local


def _without_edges(
    grid: Grid,
    request: Request,
    objective: Objective,
    limits: Limits,
) -> TransferPlan:
    """A transfer inside one region, or one that starts or ends on this machine.

    The gateways of one region both read and write: this machine's when a file is an end.
    """
    started = time.perf_counter()
    here = request.dst if _is_off_grid_place(grid, request.dst) else request.src
    for tag in {request.src, request.dst}:
        if not _is_off_grid_place(grid, tag):
            grid.index_of(tag)
    cloud = parse_region_tag(here).cloud
    kind = grid.instance_type(cloud, limits.instance_types.get(cloud))
    limit = quota_of(kind, limits)
    count = _instances_needed(request, objective, kind, limit, here)
    rate = min(kind.egress_gbps, kind.ingress_gbps) * count
    if isinstance(objective, MinimizeCost) and objective.exactly:
        rate = objective.min_throughput_gbps
    overlay = Overlay(rate, {(here,): rate}, {}, {}, {here: count})
    price = 0.0 if request.src == request.dst else grid.egress_price(request.src, request.dst)
    return assemble(
        grid,
        request,
        overlay,
        {here: kind},
        binding=(),
        solver=_report(0.0, 0.0, started),
        egress_usd_per_gb=price,
    )


def _instances_needed(
    request: Request, objective: Objective, kind: InstanceType, limit: int, here: str
) -> int:
    each = min(kind.egress_gbps, kind.ingress_gbps)
    if isinstance(objective, MaximizeThroughput):
        return limit
    floor = _floor_gbps(objective, request.volume_gb, (here,))
    count = max(1, math.ceil(floor / each))
    if count > limit:
        raise PlanInfeasible(
            f"{limit} instances of {kind.name} in {here} move {each * limit:g} Gbit/s, not"
            f" {floor:g}; raise the instance limit or choose a larger type",
            binding=(f"{INSTANCE_QUOTA} {here}",),
            most_gbps=each * limit,
        )
    return count
