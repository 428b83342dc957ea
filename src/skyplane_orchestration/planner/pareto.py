"""The Pareto frontier: the cost of each further Gbit/s (paper section 5.2).

The relaxed frontier bounds the price of a plan at any rate. Between two of its breakpoints the
relaxed optimum mixes the same few edges at every rate. On these edges the integer model is small,
and one such model per point is solved.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, overload

import numpy as np

from skyplane_orchestration.errors import ConfigurationInvalid, SolverFailed
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.network_tiers import with_network_tier
from skyplane_orchestration.model.job import (
    ANY_REGION,
    NO_LIMITS,
    Limits,
    MinimizeCost,
    Policy,
    objective_to_dict,
)
from skyplane_orchestration.model.plan import SolverReport, TransferPlan
from skyplane_orchestration.planner.build_plan import PlanRequest, assemble
from skyplane_orchestration.planner.check import violations
from skyplane_orchestration.planner.constraint_names import THROUGHPUT_FLOOR
from skyplane_orchestration.planner.formulation import cost_per_second, policy_rows
from skyplane_orchestration.planner.gap import OPTIMAL_GAP, relative_gap, solver_status
from skyplane_orchestration.planner.infeasibility import (
    binding_limits,
    goal_infeasible,
    total_ceiling_infeasible,
)
from skyplane_orchestration.planner.job_cost import candidate_from
from skyplane_orchestration.planner.objectives import LEAST_GBPS
from skyplane_orchestration.planner.optimize import PROOF_S, plan, require_volume
from skyplane_orchestration.planner.problem import PlanProblem, build_problem
from skyplane_orchestration.planner.relaxed_frontier import RelaxedFrontier, relaxed_frontier
from skyplane_orchestration.planner.search.optimum import cheapest, fastest
from skyplane_orchestration.planner.search.restricted import SCALE
from skyplane_orchestration.planner.single_region import is_single_region
from skyplane_orchestration.planner.solution import IntegerSolution
from skyplane_orchestration.planner.solve import solve_integers

logger = logging.getLogger(__name__)

#: A price above that of every plan: a ceiling that never binds.
_NO_CEILING_USD_PER_GBIT: Final = 1e6
#: Prices and rates that differ by less than this share are equal.
_SAME: Final = 1e-6
#: Relative gap at which the solver may stop on the edges of a point.
_NEAR: Final = 2e-4
#: Seconds for the integer model on the edges of a point.
_POINT_S: Final = 0.5
#: A point farther than this (relative) from the relaxed frontier is searched on more regions.
_FAR: Final = 0.004


@dataclass(frozen=True, slots=True, eq=False)
class Frontier(Sequence[TransferPlan]):
    """Plans from the cheapest per GB to the fastest, each faster and more expensive than the last.

    The `solver.bound` of a plan is the relaxed price (USD per GB) at its rate: no plan at that rate
    or above is cheaper. `relaxed` has no breakpoints within one region.
    """

    plans: tuple[TransferPlan, ...]
    relaxed: RelaxedFrontier

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
    proof_s: float = PROOF_S,
) -> Frontier:
    """The plans along the frontier between two region tags.

    The first plan is the fastest of the cheapest plans per GB (4a). The last plan is the cheapest
    of the fastest. Between them are the cheapest plans found at `points` - 2 evenly spaced rates.
    The search stops at 0.4 % above the relaxed frontier. The result has no dominated plans, and
    none above the policy's `max_job_usd`.

    Args:
        proof_s: seconds for each search for the first and the last plan to prove optimality.

    Raises UnknownRegion, PlanInfeasible (no path, or no plan at the policy's price), SolverFailed,
    and ConfigurationInvalid for fewer than two points or for a `max_job_usd` without a volume.
    """
    if points < 2:
        raise ConfigurationInvalid(f"a frontier has two ends: {points} points are too few")
    grid = with_network_tier(grid, policy.network_tier)
    goal = MinimizeCost(LEAST_GBPS)
    require_volume(goal, policy, volume_gb)
    if is_single_region(grid, src, dst):
        alone = plan(
            grid,
            src,
            dst,
            goal,
            volume_gb=volume_gb,
            objects=objects,
            limits=limits,
            policy=policy,
        )
        return Frontier((alone,), RelaxedFrontier(()))
    request = PlanRequest(grid, src, (dst,), volume_gb, objects, limits)
    problem = build_problem(grid, src, dst, goal_gbps=LEAST_GBPS, limits=limits, policy=policy)
    started = time.perf_counter()
    relaxed = relaxed_frontier(problem)
    lowest = cheapest(problem, exactly=False, proof_s=proof_s) if relaxed.points else None
    if lowest is None:
        raise goal_infeasible(problem, request)
    found = _FrontierSearch(problem, relaxed, proof_s).along(lowest.solution, points)
    seconds = (time.perf_counter() - started) / len(found)
    plans = _undominated([_plan_of(request, relaxed, one, seconds) for one in found])
    plans = _affordable(request, plans, policy.max_job_usd)
    logger.info(
        "frontier %s -> %s: %d plans of %d rates, %d breakpoints, %.3f s",
        src,
        dst,
        len(plans),
        points,
        len(relaxed.points),
        time.perf_counter() - started,
    )
    return Frontier(plans, relaxed)


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


class _FrontierSearch:
    """Finds integer solutions at many rates of one problem."""

    def __init__(self, problem: PlanProblem, relaxed: RelaxedFrontier, proof_s: float) -> None:
        self._problem = problem
        self._relaxed = relaxed
        self._proof_s = proof_s

    def along(self, lowest: IntegerSolution, points: int) -> list[IntegerSolution]:
        """Both ends (`lowest` in price), and solutions at evenly spaced rates between them."""
        slow = self._fastest(lowest.usd_per_gbit * (1 + _SAME)) or lowest
        if slow.throughput_gbps <= lowest.throughput_gbps:
            slow = lowest
        fast = self._cheapest_as_fast(self._fastest(_NO_CEILING_USD_PER_GBIT) or slow)
        if fast.throughput_gbps <= slow.throughput_gbps * (1 + _SAME):
            return [slow]
        rates = np.linspace(slow.throughput_gbps, fast.throughput_gbps, points).tolist()
        return [slow, *self._between(rates, slow, fast), fast]

    def _fastest(self, usd_per_gbit: float) -> IntegerSolution | None:
        found = fastest(self._problem, usd_per_gbit, proof_s=self._proof_s)
        return found.solution if found else None

    def _cheapest_as_fast(self, one: IntegerSolution) -> IntegerSolution:
        """The cheapest solution at the rate of this one, over all regions."""
        rate = one.throughput_gbps
        at_rate = self._problem.with_goal(rate, rate)
        found = cheapest(at_rate, exactly=True, proof_s=self._proof_s)
        if found is None or found.solution.usd_per_s >= one.usd_per_s:
            return one
        return found.solution

    def _between(
        self, rates: Sequence[float], left: IntegerSolution, right: IntegerSolution
    ) -> Iterator[IntegerSolution]:
        """Solutions at the rates strictly inside, the middle first.

        Tries the instances of the neighbours first if these are equal. Skips a rate whose bound a
        faster plan reaches.
        """
        if len(rates) < 3:
            return
        middle = len(rates) // 2
        gbps = float(rates[middle])
        bound = self._relaxed.usd_per_s_at(gbps) / gbps
        if right.usd_per_gbit <= bound * (1 + OPTIMAL_GAP):
            yield from self._between(rates[: middle + 1], left, right)
            return
        found = self._cheapest_at(gbps, left, right)
        yield from self._between(rates[: middle + 1], left, found or right)
        if found is not None:
            yield found
        yield from self._between(rates[middle:], found or left, right)

    def _cheapest_at(
        self, gbps: float, left: IntegerSolution, right: IntegerSolution
    ) -> IntegerSolution | None:
        """The cheapest solution found at one rate; None when the solver finds none."""
        if _have_equal_instances(left, right):
            fixed = replace(left.problem.with_goal(gbps, gbps), quota=left.instances)
            found = self._solve(fixed)
            farthest = max(self._gap(left), self._gap(right))
            if found is not None and self._gap(found) <= farthest + _NEAR:
                return found
        found = self._solve(self._network_at(gbps))
        if found is not None and self._gap(found) <= _FAR:
            return found
        wide = cheapest(self._problem.with_goal(gbps, gbps), exactly=True, proof_s=0.0)
        if wide is None or (found is not None and found.usd_per_s <= wide.solution.usd_per_s):
            return found
        return wide.solution

    def _network_at(self, gbps: float) -> PlanProblem:
        """The problem on the edges that relaxed optima at this rate use."""
        few = self._problem.with_goal(gbps, gbps).with_edges(self._relaxed.edges_at(gbps))
        regions = ~few.relays
        regions[few.tail] = regions[few.head] = True
        return few.with_regions(regions)

    def _solve(self, problem: PlanProblem) -> IntegerSolution | None:
        cost = cost_per_second(problem)
        lowest = self._relaxed.usd_per_s_at(problem.goal_gbps)
        try:
            return solve_integers(
                problem,
                cost * (SCALE / lowest if lowest > 0 else 1.0),
                extra=policy_rows(problem),
                relative_gap=_NEAR,
                time_limit_s=_POINT_S,
            )
        except SolverFailed:
            return None

    def _gap(self, found: IntegerSolution) -> float:
        """Relative distance to the relaxed frontier."""
        return relative_gap(found.usd_per_s, self._relaxed.usd_per_s_at(found.throughput_gbps))


def _have_equal_instances(one: IntegerSolution, other: IntegerSolution) -> bool:
    """True for equal instances in the same regions."""
    return one.problem.tags == other.problem.tags and np.array_equal(one.instances, other.instances)


def _plan_of(
    request: PlanRequest, relaxed: RelaxedFrontier, solution: IntegerSolution, solve_s: float
) -> TransferPlan:
    """The plan of a solution. Raises SolverFailed when it breaks (4b) to (4j)."""
    found = candidate_from(request, solution)
    # The fastest plan may exceed the last rate by a tolerance.
    relaxed_usd_per_gb = relaxed.usd_per_gb_at(min(found.gbps, relaxed.most_gbps))
    bound = min(relaxed_usd_per_gb, found.usd_per_gb)
    gap = relative_gap(found.usd_per_gb, bound)
    built = assemble(
        request,
        found.overlay,
        objective=objective_to_dict(MinimizeCost(found.gbps, exactly=True)),
        binding=(THROUGHPUT_FLOOR, *binding_limits(request, found.overlay)),
        solver=SolverReport(solver_status(gap), gap, bound, solve_s),
    )
    broken = violations(built, request.grid, request.limits)
    if broken:
        raise SolverFailed(f"a frontier plan breaks its constraints: {'; '.join(broken)}")
    return built
