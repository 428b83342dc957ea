"""`multicast_plan`: from an objective to a checked plan for several destinations.

Relays copy bytes: an edge carries each byte at most once, for all destinations behind it. So the
unit of flow is not a path but a distribution tree (an arborescence from the source that reaches
every destination) with a rate x_T:

    sum x_T = G        F_uv = sum of x_T over the trees with the edge uv

(4b) and (4f) to (4j) hold for F as with one destination. A destination that forwards pays with its
own egress, connections and instances. With one destination trees are paths, and the model is the
paper's.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from skyplane_orchestration.errors import ConfigurationInvalid, PlanInfeasible, SolverFailed
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.egress_pricing import priced_for
from skyplane_orchestration.model.job import (
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
from skyplane_orchestration.model.plan import PlanPath, PlanTree, SolverReport, TransferPlan
from skyplane_orchestration.planner.baselines import direct
from skyplane_orchestration.planner.build_plan import LEAST_GBPS, PlanRequest, assemble
from skyplane_orchestration.planner.candidate import Candidate
from skyplane_orchestration.planner.constraint_names import COST_CEILING, DEADLINE, THROUGHPUT_FLOOR
from skyplane_orchestration.planner.distance_to_bound import OPTIMAL_GAP, gap_of, solver_status
from skyplane_orchestration.planner.infeasibility import binding_limits, no_route, rounded_down
from skyplane_orchestration.planner.least_total_cost import (
    BoundedCandidate,
    provision_waits,
    within_wait,
)
from skyplane_orchestration.planner.multicast.check import multicast_violations
from skyplane_orchestration.planner.multicast.objectives import MulticastSearch
from skyplane_orchestration.planner.object_limits import limited_by_objects
from skyplane_orchestration.planner.objectives import is_total, objective_value
from skyplane_orchestration.planner.optimize import plan, require_volume
from skyplane_orchestration.planner.overlay import Overlay
from skyplane_orchestration.planner.problem import PlanProblem, build_problem
from skyplane_orchestration.planner.value_of_time import counts_time

logger = logging.getLogger(__name__)

#: The search looks at every subset of the destinations, so their number is limited.
MOST_DESTINATIONS = 8


def multicast_plan(
    grid: Grid,
    src: str,
    destinations: Sequence[str],
    objective: Objective,
    *,
    volume_gb: float | None = None,
    objects: int | None = None,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
) -> TransferPlan:
    """The best plan found that brings every byte from `src` to all of `destinations`.

    Relays copy bytes, so egress is paid once per edge that several destinations share. A GB is one
    of source data that has reached every destination. The objectives are those of `plan`. The
    bound in the report is proven over all distribution trees. Every plan is checked before it is
    returned.

    Args:
        destinations: 1 to 8 region tags.
        volume_gb: GB (1e9 bytes) of source data; required for totals in USD and for deadlines.
        objects: number of objects, for the price of requests.
        limits: limits of the job; each cloud has one type, the named one or `chosen_type`.
        policy: regions that may relay, and the maximum cost.

    Raises UnknownRegion, PlanInfeasible, SolverFailed, and ConfigurationInvalid for bad
    destinations, or when the objective needs a volume.
    """
    started = time.perf_counter()
    if isinstance(objective, MinimizeCost):
        if objective.time_usd_per_s:
            raise ConfigurationInvalid.about(
                "plans to several destinations do not count {value_of_time_usd_per_hour}; omit it"
            )
        if objective.min_throughput_gbps is None:
            objective = default_multicast_objective(grid, src, destinations, limits)
    grid = priced_for(grid, policy, volume_gb)
    request = PlanRequest(grid, src, tuple(destinations), volume_gb, objects, limits)
    require_volume(objective, policy, volume_gb)
    problem = build_multicast_problem(
        grid, src, request.destinations, goal_gbps=LEAST_GBPS, limits=limits, policy=policy
    )
    if counts_time(objective):
        problem = limited_by_objects(request, problem)
    if is_total(objective, volume_gb):
        problem = problem.with_bill(request.other_items)
    search, best = _best(request, problem, objective)
    candidate = best.candidate
    gap = gap_of(objective, objective_value(objective, candidate), best.bound)
    search.require_policy(candidate, policy)
    report = SolverReport(solver_status(gap), gap, best.bound, time.perf_counter() - started)
    overlay = candidate.overlay
    binding = _binding(search, objective, overlay)
    trees = tuple(PlanTree(tree, flow) for tree, flow in overlay.trees.items())
    found = replace(
        assemble(
            request, overlay, objective=objective_to_dict(objective), binding=binding, solver=report
        ),
        paths=_paths_of(trees, request.destinations),
        destinations=request.destinations,
        trees=trees,
        separate_usd_per_gb=_separate_usd_per_gb(search, candidate, policy),
    )
    broken = multicast_violations(found, grid, limits)
    if broken:
        raise SolverFailed(f"the plan breaks its constraints: {'; '.join(broken)}")
    found = replace(found, solver=replace(report, solve_s=time.perf_counter() - started))
    logger.info(
        "planned %s -> %s: %.3f Gbit/s, %.5f USD per GB, %d trees, gap %.2g, %.3f s",
        found.src,
        ", ".join(found.destinations),
        found.throughput_gbps,
        found.cost.usd_per_gb,
        len(found.trees),
        found.solver.gap,
        found.solver.solve_s,
    )
    return found


def _paths_of(trees: Sequence[PlanTree], destinations: Sequence[str]) -> tuple[PlanPath, ...]:
    """The paths to each destination, and what each carries."""
    flows: dict[tuple[str, ...], float] = {}
    for tag in destinations:
        for tree in trees:
            path = tree.path_to(tag)
            flows[path] = flows.get(path, 0.0) + tree.flow_gbps
    return tuple(PlanPath(regions, flow) for regions, flow in flows.items())


def _best(
    request: PlanRequest, problem: PlanProblem, objective: Objective
) -> tuple[MulticastSearch, BoundedCandidate]:
    """The best plan, and the search that has found it.

    A plan waits for the slowest cloud that it may use. Where no plan is found that keeps a deadline
    so, it uses quicker clouds only.

    Raises PlanInfeasible.
    """
    if not isinstance(objective, Deadline):
        search = MulticastSearch(request, problem)
        return search, search.best(objective)
    waits_s = provision_waits(problem)
    in_time_s = [wait_s for wait_s in waits_s if wait_s < objective.seconds] or waits_s[:1]
    refusals: list[PlanInfeasible] = []
    for wait_s in reversed(in_time_s):
        search = MulticastSearch(request, within_wait(problem, wait_s))
        try:
            return search, search.best(objective)
        except PlanInfeasible as refusal:
            refusals.append(refusal)
    raise refusals[0]


def default_multicast_objective(
    grid: Grid, src: str, destinations: Sequence[str], limits: Limits = NO_LIMITS
) -> MinimizeCost:
    """A floor at the rate of the slowest direct path with one instance at each end.

    Raises UnknownRegion, ConfigurationInvalid for bad destinations, and PlanInfeasible when there
    is no such path.
    """
    require_ends(grid, src, destinations)
    rates = (direct(grid, src, tag, limits=limits).throughput_gbps for tag in destinations)
    return MinimizeCost(min(rates))


def _binding(search: MulticastSearch, objective: Objective, found: Overlay) -> tuple[str, ...]:
    names = binding_limits(search.request, found)
    if isinstance(objective, MaximizeThroughput):
        return names or (COST_CEILING,)
    if found.throughput_gbps <= search.floor_gbps(objective) * (1 + OPTIMAL_GAP):
        return (DEADLINE if isinstance(objective, Deadline) else THROUGHPUT_FLOOR, *names)
    return names


def _separate_usd_per_gb(search: MulticastSearch, found: Candidate, policy: Policy) -> float | None:
    """The sum of one plan per destination at the same rate, with the same instance types.

    Each may use the full quotas, so the sum may be below the price of the shared plan.
    """
    request = search.request
    floor = MinimizeCost(rounded_down(found.gbps), exactly=True)
    types = {kind.cloud: kind.name for kind in search.problem.types}
    limits = replace(request.limits, instance_types=types)
    alone = replace(policy, max_job_usd=None)
    try:
        return sum(
            plan(request.grid, request.src, tag, floor, limits=limits, policy=alone).cost.usd_per_gb
            for tag in request.destinations
        )
    except PlanInfeasible:
        return None


def build_multicast_problem(
    grid: Grid,
    src: str,
    destinations: Sequence[str],
    *,
    goal_gbps: float,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
) -> PlanProblem:
    """The problem of one source and several destinations on one grid.

    Its option v is the type of region v: regions that may have no instance are left out.

    Raises as `require_ends`, and PlanInfeasible when the policy excludes an end or the quotas allow
    no instance there.
    """
    require_ends(grid, src, destinations)
    problem = build_problem(
        grid,
        src,
        *destinations,
        goal_gbps=goal_gbps,
        limits=limits,
        policy=policy,
        has_choice=False,
    )
    has_option = np.bincount(problem.option_region, minlength=problem.region_count) > 0
    if not has_option[list(problem.ends)].all():
        raise no_route(grid, src, destinations)
    return problem.with_regions(has_option)


def require_ends(grid: Grid, src: str, destinations: Sequence[str]) -> None:
    """Raises UnknownRegion, and ConfigurationInvalid for bad destinations.

    Destinations are bad if there are none or too many, or if they repeat or include the source.
    """
    for tag in (src, *destinations):
        grid.index_of(tag)
    if not 1 <= len(destinations) <= MOST_DESTINATIONS:
        raise ConfigurationInvalid(
            f"give 1 to {MOST_DESTINATIONS} destinations, not {len(destinations)}"
        )
    twice = [tag for tag in dict.fromkeys(destinations) if destinations.count(tag) > 1]
    if twice:
        raise ConfigurationInvalid(f"destination {', '.join(twice)} is given more than once")
    if src in destinations:
        raise ConfigurationInvalid(f"{src} is the source and cannot be a destination as well")
