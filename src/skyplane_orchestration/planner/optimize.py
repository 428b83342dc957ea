"""`plan`: from an objective to a checked `TransferPlan` between two regions."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import ConfigurationInvalid, SolverFailed
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
    require_positive,
)
from skyplane_orchestration.model.plan import SolverReport, TransferPlan
from skyplane_orchestration.planner.baselines import with_floor
from skyplane_orchestration.planner.build_plan import PlanRequest, assemble
from skyplane_orchestration.planner.burst import notes_on_bursts, with_bursts
from skyplane_orchestration.planner.check import violations
from skyplane_orchestration.planner.distance_to_bound import gap_of, solver_status
from skyplane_orchestration.planner.overlay import Overlay, with_spare_connections
from skyplane_orchestration.planner.pricing.other_items import HEADERS
from skyplane_orchestration.planner.single_region import best_in_single_region, is_single_region
from skyplane_orchestration.planner.value_of_time import counts_time, notes_on_time

if TYPE_CHECKING:
    from skyplane_orchestration.planner.problem import PlanProblem

logger = logging.getLogger(__name__)

#: The solver's rounding of a rate, and the least share of a price that is worth a note.
_ROUNDING: Final = 1e-6
_WORTH_A_NOTE: Final = 0.01


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
) -> TransferPlan:
    """The best plan for one objective between two region tags.

    - `MinimizeCost`: the cheapest plan at any rate from the floor up. Without a volume the cost
      is (4a) per GB, with a volume it is the total of the job. `exactly` is (4a) at the floor.
      With a value of time, the time until the job is done joins the cost. Near the least sum, the
      plan with the fewest instances wins (`value_of_time.ROOM`).
    - `Deadline`: the cheapest total that meets the deadline, provisioning included.
    - `MaximizeThroughput`: the fastest plan under the ceiling, then the cheapest at that rate.

    A floor that is given and a deadline count the rates that the grid promises with the limits'
    confidence, as far as a plan can be promised; everything else counts expected rates.

    The rates that instances sustain count; those of a burst for a transfer that surely ends
    while it lasts. Ties go to fewer relays. Every plan is checked against (4b) to (4j) before it
    is returned.

    Args:
        volume_gb: GB (1e9 bytes) to move; required for totals in USD and for deadlines.
        objects: number of objects, for the price and the time of requests.
        limits: limits of the job; the grid's limits apply where the job sets none.
        policy: regions that may relay (the ends are always allowed), and the maximum cost.

    Raises UnknownRegion, PlanInfeasible, SolverFailed, and ConfigurationInvalid when the
    objective needs a volume.
    """
    require_volume(objective, policy, volume_gb)
    grid = priced_for(grid, policy, volume_gb)
    is_promised = _has_promise(objective)
    objective = with_floor(grid, src, dst, objective, limits, volume_gb, objects)
    counting = with_bursts(grid, objective, volume_gb)
    request = PlanRequest(counting, src, (dst,), volume_gb, objects, limits)
    if is_single_region(grid, src, dst):
        return _plan_in_single_region(request, objective, policy)
    found = _plan_over_edges(request, objective, policy, is_promised=is_promised)
    found = replace(
        found,
        notes=(*found.notes, *notes_on_bursts(grid, found)),
        egress_ceiling_usd_per_gb=_egress_ceiling_usd_per_gb(found, objective, policy),
    )
    logger.info(
        "planned %s -> %s: %.3f Gbit/s, %.5f USD per GB, %d relays, gap %.2g, %.3f s",
        found.src,
        found.dst,
        found.throughput_gbps,
        found.cost.usd_per_gb,
        len(found.relays),
        found.solver.gap,
        found.solver.solve_s,
    )
    return found


def _egress_ceiling_usd_per_gb(
    found: TransferPlan, objective: Objective, policy: Policy
) -> float | None:
    """The lowest ceiling, less all that a plan costs beside egress and the headers on it.

    A path at the price of the ceiling is below it, whatever the rounding.
    """
    egress = sum(edge.flow_gbps * edge.usd_per_gb for edge in found.edges) / found.throughput_gbps
    cost, totals, left = found.cost, [policy.max_job_usd], []
    if isinstance(objective, MaximizeThroughput):
        totals.append(objective.max_cost_usd)
        if objective.max_usd_per_gb is not None:
            left.append(objective.max_usd_per_gb - cost.usd_per_gb)
    for usd in totals:
        if usd is not None and cost.total_usd is not None and cost.egress_usd and found.volume_gb:
            headers = cost.other_usd.get(HEADERS, 0.0) / cost.egress_usd
            left.append((usd - cost.total_usd) / found.volume_gb / (1 + headers))
    return (egress + max(0.0, min(left))) * (1 + _ROUNDING) if left else None


def require_volume(objective: Objective, policy: Policy, volume_gb: float | None) -> None:
    """Raises ConfigurationInvalid without a volume that is needed, or for a bad one."""
    what: str | None = None
    if isinstance(objective, Deadline):
        what = "a deadline"
    elif isinstance(objective, MaximizeThroughput) and objective.max_cost_usd is not None:
        what = "a ceiling in USD"
    elif policy.max_job_usd is not None:
        what = "{max_job_usd}"
    if what and not volume_gb:
        raise ConfigurationInvalid.about(
            what + " needs a volume: give {volume_gb}, or list the source"
        )
    require_positive("volume_gb", volume_gb)


def _has_promise(objective: Objective) -> bool:
    """Whether a user has asked for a rate or a time, which then counts promised rates."""
    if isinstance(objective, MinimizeCost):
        return objective.min_throughput_gbps is not None and not objective.exactly
    return isinstance(objective, Deadline)


def _plan_over_edges(
    request: PlanRequest, objective: Objective, policy: Policy, *, is_promised: bool
) -> TransferPlan:
    """Build the problem, solve it, decode the solution and check the plan."""
    # These load NumPy and SciPy, which takes half a second. Plans within one region do without.
    from skyplane_orchestration.planner.object_limits import limited_by_objects
    from skyplane_orchestration.planner.objectives import (
        ObjectiveSearch,
        best_promised,
        is_total,
        least_gbps,
        objective_value,
        remove_thin_paths,
    )
    from skyplane_orchestration.planner.problem import build_problem

    started = time.perf_counter()

    def search_at(confidence: float | None) -> ObjectiveSearch:
        problem = build_problem(
            request.grid,
            request.src,
            request.dst,
            goal_gbps=least_gbps(objective),
            limits=request.limits,
            policy=policy,
            confidence=confidence,
        )
        if counts_time(objective) and not isinstance(objective, MinimizeCost):
            problem = limited_by_objects(request, problem)
        if is_total(objective, request.volume_gb):
            problem = problem.with_bill(request.other_items)
        return ObjectiveSearch(request, problem, policy.max_job_usd)

    search, best, note = best_promised(request, objective, search_at, is_promised=is_promised)
    candidate = remove_thin_paths(search, objective, best.candidate)
    gap = gap_of(objective, objective_value(objective, candidate), best.bound)
    solver = SolverReport(solver_status(gap), gap, best.bound, time.perf_counter() - started)
    binding = search.binding(objective, candidate)
    found = checked_plan(request, candidate.overlay, objective, binding, solver)
    on_request = _notes_on_request(request, search.problem, policy, found)
    found = replace(found, notes=(*note, *found.notes, *on_request))
    if not isinstance(objective, MinimizeCost) or not objective.time_usd_per_s:
        return found
    cheapest = search.best(replace(objective, value_of_time_usd_per_hour=0.0)).candidate
    return replace(found, notes=(*notes_on_time(candidate, cheapest), *found.notes))


def _notes_on_request(
    request: PlanRequest, problem: PlanProblem, policy: Policy, found: TransferPlan
) -> Iterator[str]:
    """A note on regions that an account may lack, where relaying there pays by a relaxation."""
    import numpy as np

    from skyplane_orchestration.planner.formulation import cost_per_second
    from skyplane_orchestration.planner.problem import build_problem, may_relay
    from skyplane_orchestration.planner.solution import FLOW_TOLERANCE
    from skyplane_orchestration.planner.solve import relax

    grid = request.grid
    may = [tag for tag in grid.tags if policy.may_relay(tag)]
    if request.limits.max_relays == 0 or all(may_relay(grid, policy, tag) for tag in may):
        return
    rate = found.throughput_gbps * (1 - _ROUNDING)
    every = build_problem(
        grid,
        request.src,
        request.dst,
        goal_gbps=rate,
        limits=request.limits,
        policy=replace(policy, allow_regions=("*:*",)),
    ).with_goal(rate, rate)
    known = np.isin(every.tags, problem.tags)
    used = np.isin(every.tags, list(found.instances))
    # Those of the plan and those on request mostly show that there is nothing to say.
    tags: list[str] = []
    for regions, more in ((used, used | ~known), (known, known | ~known)):
        parts = every.with_regions(regions), every.with_regions(more)
        least, lower = (relax(part, cost_per_second(part)) for part in parts)
        if least is None or lower is None:
            return
        saved = 1 - lower.objective / (least.objective or 1.0)
        if saved <= _WORTH_A_NOTE:
            return
        heads = parts[1].head[lower.flow_gbps > FLOW_TOLERANCE].tolist()
        tags = sorted({parts[1].tags[region] for region in heads} - set(problem.tags))
    yield (
        f"relays in {', '.join(tags)} would lower the price of this rate by up to {saved:.0%};"
        " not every account has them: allow them by name where yours does"
    )


def checked_plan(
    request: PlanRequest,
    overlay: Overlay,
    objective: Objective,
    binding: tuple[str, ...],
    solver: SolverReport,
) -> TransferPlan:
    """The plan of an overlay. Raises SolverFailed when it breaks (4b) to (4j)."""
    found = assemble(
        request,
        with_spare_connections(overlay),
        objective=objective_to_dict(objective),
        binding=binding,
        solver=solver,
    )
    broken = violations(found, request.grid, request.limits)
    if broken:
        raise SolverFailed(f"the plan breaks its constraints: {'; '.join(broken)}")
    return found


def _plan_in_single_region(
    request: PlanRequest, objective: Objective, policy: Policy
) -> TransferPlan:
    started = time.perf_counter()
    region, overlay = best_in_single_region(request, objective, policy.max_job_usd)
    best = region.priced(overlay)
    notes: tuple[str, ...] = ()
    if isinstance(objective, MinimizeCost) and objective.time_usd_per_s:
        plain = replace(objective, value_of_time_usd_per_hour=0.0)
        cheapest = region.priced(region.best(plain, policy.max_job_usd))
        notes = tuple(notes_on_time(best, cheapest))
    is_rate = isinstance(objective, MaximizeThroughput)
    bound = best.gbps if is_rate else best.usd_with_time(0.0)
    found = assemble(
        request,
        overlay,
        objective=objective_to_dict(objective),
        binding=region.binding(overlay),
        solver=SolverReport("optimal", 0.0, bound, time.perf_counter() - started),
        egress_usd_per_gb=region.egress_usd_per_gb,
    )
    return replace(found, notes=(*notes, *found.notes))
