"""The Pareto frontier: the cost of each further Gbit/s (paper section 5.2).

At each of evenly spaced rates the relaxation bounds the price of every plan as fast or faster. Its
optimum uses few edges, on which the integer model is small.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, overload

import numpy as np

from skyplane_orchestration.errors import ConfigurationInvalid, SolverFailed
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.egress_pricing import priced_for
from skyplane_orchestration.model.job import ANY_REGION, NO_LIMITS, Limits, MinimizeCost, Policy
from skyplane_orchestration.model.plan import SolverReport, TransferPlan
from skyplane_orchestration.planner.build_plan import LEAST_GBPS, PlanRequest
from skyplane_orchestration.planner.constraint_names import THROUGHPUT_FLOOR
from skyplane_orchestration.planner.distance_to_bound import relative_gap, solver_status
from skyplane_orchestration.planner.formulation import cost_per_second, policy_rows
from skyplane_orchestration.planner.infeasibility import (
    binding_limits,
    goal_infeasible,
    total_ceiling_infeasible,
)
from skyplane_orchestration.planner.least_total_cost import candidate_from
from skyplane_orchestration.planner.optimize import checked_plan, plan, require_volume
from skyplane_orchestration.planner.problem import PlanProblem, build_problem
from skyplane_orchestration.planner.search.optimum import cheapest, fastest
from skyplane_orchestration.planner.search.restricted import SCALE
from skyplane_orchestration.planner.single_region import is_single_region
from skyplane_orchestration.planner.solution import (
    FLOW_TOLERANCE,
    Incumbent,
    IntegerSolution,
    Relaxation,
)
from skyplane_orchestration.planner.solve import relax, solve_integers
from skyplane_orchestration.units import gb_to_gbit, usd_per_gbit_to_usd_per_gb

logger = logging.getLogger(__name__)

#: A price above that of every plan: a ceiling that never binds.
_NO_CEILING_USD_PER_GBIT: Final = 1e6
#: Prices and rates that differ by less than this share are equal.
_SAME: Final = 1e-6
#: Relative gap at which the solver may stop on the edges of a point.
_NEAR: Final = 2e-4
#: Nodes for the integer model on the edges of a point.
_POINT_NODES: Final = 500
#: A point farther than this (relative) from the relaxed frontier is searched on more regions.
_FAR: Final = 0.004
#: What the solver's tolerance adds to the highest rate, relative.
_TOLERANCE: Final = 1e-5


@dataclass(frozen=True, slots=True, eq=False)
class Frontier(Sequence[TransferPlan]):
    """Plans from the cheapest per GB to the fastest, each faster and more expensive than the last.

    The `solver.bound` of a plan is the relaxed price (USD per GB) at its rate: no plan at that rate
    or above is cheaper. `relaxed` has the rate (Gbit/s) and that price of each plan found; it is
    empty within one region.
    """

    plans: tuple[TransferPlan, ...]
    relaxed: tuple[tuple[float, float], ...]

    def knee(self, objective: MinimizeCost) -> int:
        """The place of the plan with the least sum of its bill and of its time."""

        def usd(plan: TransferPlan) -> float:
            cost, done_s = plan.cost, gb_to_gbit(1.0) / plan.throughput_gbps
            if plan.transfer_s is not None:
                done_s = plan.transfer_s + plan.provision_s
            bill = cost.usd_per_gb if cost.total_usd is None else cost.total_usd
            return bill + objective.time_usd_per_s * done_s

        return min(range(len(self.plans)), key=lambda place: usd(self.plans[place]))

    def __len__(self) -> int:
        return len(self.plans)

    @overload
    def __getitem__(self, number: int) -> TransferPlan: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[TransferPlan, ...]: ...

    def __getitem__(self, number: int | slice) -> TransferPlan | tuple[TransferPlan, ...]:
        return self.plans[number]


def frontier(
    grid: Grid,
    src: str,
    dst: str,
    *,
    points: int = 20,
    volume_gb: float | None = None,
    objects: int | None = None,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
) -> Frontier:
    """The plans along the frontier between two region tags.

    The first plan is the fastest of the cheapest plans per GB (4a). The last plan is the cheapest
    of the fastest. Between them are the cheapest plans found at `points` - 2 evenly spaced rates.
    The search stops at 0.4 % above the relaxed frontier. The result has no dominated plans, and
    none above the policy's `max_job_usd`.

    Raises UnknownRegion, PlanInfeasible (no path, or no plan at the policy's price), SolverFailed,
    and ConfigurationInvalid for fewer than two points or for a `max_job_usd` without a volume.
    """
    if points < 2:
        raise ConfigurationInvalid(f"a frontier has two ends: {points} points are too few")
    grid = priced_for(grid, policy, volume_gb)
    goal = MinimizeCost(LEAST_GBPS)
    require_volume(goal, policy, volume_gb)
    if is_single_region(grid, src, dst):
        alone = plan(
            grid, src, dst, goal, volume_gb=volume_gb, objects=objects, limits=limits, policy=policy
        )
        return Frontier((alone,), ())
    request = PlanRequest(grid, src, (dst,), volume_gb, objects, limits)
    problem = build_problem(grid, src, dst, goal_gbps=LEAST_GBPS, limits=limits, policy=policy)
    started = time.perf_counter()
    lowest = cheapest(problem, exactly=False)
    if lowest is None:
        raise goal_infeasible(problem, request)
    found = _along(problem, lowest.solution, points)
    seconds = (time.perf_counter() - started) / len(found)
    every = [_plan_of(request, one, seconds) for one in found]
    plans = _affordable(request, _undominated(every), policy.max_job_usd)
    logger.info(
        "frontier %s -> %s: %d plans of %d rates, %.3f s",
        src,
        dst,
        len(plans),
        points,
        time.perf_counter() - started,
    )
    return Frontier(plans, tuple((one.throughput_gbps, one.solver.bound) for one in every))


def _undominated(found: Sequence[TransferPlan]) -> tuple[TransferPlan, ...]:
    """By ascending rate, without plans that are neither faster nor cheaper than another."""
    kept: list[TransferPlan] = []
    for one in sorted(found, key=lambda one: (-one.throughput_gbps, one.cost.usd_per_gb)):
        if not kept or one.cost.usd_per_gb < kept[-1].cost.usd_per_gb * (1 - _SAME):
            kept.append(one)
    return tuple(reversed(kept))


def _affordable(
    request: PlanRequest, plans: tuple[TransferPlan, ...], max_job_usd: float | None
) -> tuple[TransferPlan, ...]:
    """The plans within the policy's maximum. Raises PlanInfeasible when there is none."""
    if max_job_usd is None:
        return plans
    totals = [one.cost.total_usd or 0.0 for one in plans]
    if min(totals) > max_job_usd:
        raise total_ceiling_infeasible(request.route, max_job_usd, min(totals), is_policy=True)
    return tuple(one for one, total in zip(plans, totals, strict=True) if total <= max_job_usd)


def _along(problem: PlanProblem, lowest: IntegerSolution, points: int) -> list[Incumbent]:
    """Both ends (`lowest` in price) and solutions at evenly spaced rates between them, ascending.

    Each has the relaxed price at its rate as its bound.
    """

    def fastest_at(usd_per_gbit: float) -> IntegerSolution | None:
        found = fastest(problem, usd_per_gbit)
        return found.solution if found else None

    slow = max(
        fastest_at(lowest.usd_per_gbit * (1 + _SAME)) or lowest,
        lowest,
        key=lambda one: one.throughput_gbps,
    )
    fast = fastest_at(_NO_CEILING_USD_PER_GBIT) or slow
    at_most = problem.with_goal(fast.throughput_gbps, fast.throughput_gbps)
    cheaper = cheapest(at_most, exactly=True)
    if cheaper is not None and cheaper.solution.usd_per_s < fast.usd_per_s:
        fast = cheaper.solution
    if fast.throughput_gbps <= slow.throughput_gbps * (1 + _SAME):
        return [_bounded(problem, slow)]
    rates = np.linspace(slow.throughput_gbps, fast.throughput_gbps, points)[1:-1]
    between = [_cheapest_at(problem, gbps) for gbps in rates.tolist()]
    inside = [one for one in between if one is not None]
    return [_bounded(problem, slow), *inside, _bounded(problem, fast)]


def _bounded(problem: PlanProblem, solution: IntegerSolution) -> Incumbent:
    """A solution with the relaxed price at its rate, or just below the highest rate."""
    gbps = solution.throughput_gbps
    relaxed = _relaxed_at(problem, gbps) or _relaxed_at(problem, gbps * (1 - _TOLERANCE))
    bound = relaxed.objective / relaxed.throughput_gbps if relaxed else 0.0
    return Incumbent(solution, bound, problem)


def _relaxed_at(problem: PlanProblem, gbps: float) -> Relaxation | None:
    return relax(problem.with_goal(gbps, gbps), cost_per_second(problem))


def _cheapest_at(problem: PlanProblem, gbps: float) -> Incumbent | None:
    """The cheapest solution found at one rate; None when the solver finds none."""
    relaxed = _relaxed_at(problem, gbps)
    if relaxed is None:
        return None
    bound = relaxed.objective / gbps
    at_rate = problem.with_goal(gbps, gbps)
    near = _on_edges(at_rate, relaxed)
    if near is not None and Incumbent(near, bound, at_rate).gap <= _FAR:
        return Incumbent(near, bound, at_rate)
    wide = cheapest(at_rate, exactly=True)
    found = [one for one in (near, wide.solution if wide else None) if one is not None]
    if not found:
        return None
    return Incumbent(min(found, key=lambda one: one.usd_per_s), bound, at_rate)


def _on_edges(problem: PlanProblem, relaxed: Relaxation) -> IntegerSolution | None:
    """The integer model on the edges of the relaxed optimum; None when it has no solution."""
    few = problem.with_edges(relaxed.flow_gbps > FLOW_TOLERANCE)
    regions = ~few.relays
    regions[few.tail] = regions[few.head] = True
    few = few.with_regions(regions)
    scale = SCALE / relaxed.objective if relaxed.objective > 0 else 1.0
    try:
        return solve_integers(
            few,
            cost_per_second(few) * scale,
            extra=policy_rows(few),
            relative_gap=_NEAR,
            node_limit=_POINT_NODES,
        )
    except SolverFailed:
        return None


def _plan_of(request: PlanRequest, best: Incumbent, solve_s: float) -> TransferPlan:
    found = candidate_from(request, best.solution)
    bound = min(usd_per_gbit_to_usd_per_gb(best.bound), found.usd_per_gb)
    gap = relative_gap(found.usd_per_gb, bound)
    return checked_plan(
        request,
        found.overlay,
        MinimizeCost(found.gbps, exactly=True),
        (THROUGHPUT_FLOOR, *binding_limits(request, found.overlay)),
        SolverReport(solver_status(gap), gap, bound, solve_s),
    )
