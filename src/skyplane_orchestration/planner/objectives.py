"""Maps each objective to a search over the edges of a grid, and refuses what is infeasible."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Final

import numpy as np

from skyplane_orchestration.errors import PlanInfeasible, SolverFailed
from skyplane_orchestration.grids.promised import promised_shares
from skyplane_orchestration.model.job import Deadline, MaximizeThroughput, MinimizeCost, Objective
from skyplane_orchestration.planner import infeasibility, least_total_cost
from skyplane_orchestration.planner.build_plan import LEAST_GBPS, PlanRequest
from skyplane_orchestration.planner.candidate import Candidate
from skyplane_orchestration.planner.constraint_names import (
    COST_CEILING,
    DEADLINE,
    OBJECTS,
    POLICY_MAX_JOB_USD,
    THROUGHPUT_FLOOR,
)
from skyplane_orchestration.planner.cost_ceiling import Ceilings, fastest_under
from skyplane_orchestration.planner.distance_to_bound import gap_of
from skyplane_orchestration.planner.least_total_cost import (
    BoundedCandidate,
    candidate_from,
    is_within,
)
from skyplane_orchestration.planner.object_limits import limited_by_objects
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.optimum import cheapest, largest_throughput
from skyplane_orchestration.planner.search.totals import Bill, best_rate
from skyplane_orchestration.planner.total_bounds import priced_at
from skyplane_orchestration.planner.value_of_time import ROOM
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit, usd_per_gbit_to_usd_per_gb

#: The floor of the search for the cheapest price at any rate.
ANY_RATE_GBPS: Final = 0.1
#: Makes the rate of a deadline larger than the rounding of its seconds.
_DEADLINE_ROUNDING: Final = 1 + 1e-9
#: Where no plan holds with the confidence of the job.
_LOWER_CONFIDENCES: Final = (0.8, 0.7, 0.6, 0.5)
#: The earliest deadline that an error names is for a rate this factor below the largest.
_BELOW_LARGEST: Final = 1 + 1e-6
#: The share of a deadline that counts as rounding.
_LATE: Final = 1e-6


def least_gbps(objective: Objective) -> float:
    """The lowest rate that meets the objective, before any wait for gateways."""
    if isinstance(objective, MinimizeCost):
        return max(objective.floor_gbps, LEAST_GBPS)
    return ANY_RATE_GBPS if isinstance(objective, MaximizeThroughput) else LEAST_GBPS


def least_gbps_after(objective: Objective, request: PlanRequest, wait_s: float) -> float:
    """The lowest rate that meets the objective after `wait_s`; infinite when it is too late."""
    if not isinstance(objective, Deadline):
        return least_gbps(objective)
    left_s = objective.seconds - wait_s
    if left_s <= 0 or left_s < request.object_bound().seconds:
        return math.inf
    return max(request.volume_gbit / (request.share * left_s) * _DEADLINE_ROUNDING, LEAST_GBPS)


def is_total(objective: Objective, volume_gb: float | None) -> bool:
    """Whether the objective is about the USD of the whole job, not about a price per GB."""
    if isinstance(objective, MaximizeThroughput):
        return objective.max_usd_per_gb is None
    return bool(volume_gb) and not (isinstance(objective, MinimizeCost) and objective.exactly)


def objective_value(objective: Objective, candidate: Candidate) -> float:
    """What the objective optimises: Gbit/s, USD per GB (4a), or USD of the job.

    USD have the value of time.
    """
    if isinstance(objective, MaximizeThroughput):
        return candidate.gbps
    if isinstance(objective, MinimizeCost):
        if objective.exactly:
            return candidate.usd_per_gb
        return candidate.usd_with_time(objective.time_usd_per_s)
    return candidate.usd


@dataclass(frozen=True, slots=True, eq=False)
class ObjectiveSearch:
    """Searches one problem for the best plan of an objective.

    Attributes:
        problem: its goal is `least_gbps` of the objective.
        max_job_usd: of the policy; None for no limit.
    """

    request: PlanRequest
    problem: PlanProblem
    max_job_usd: float | None

    def best(self, objective: Objective) -> BoundedCandidate:
        """The best plan found; its bound has the unit of `objective_value`.

        Raises PlanInfeasible.
        """
        if isinstance(objective, MaximizeThroughput):
            return self._fastest(objective)
        if isinstance(objective, MinimizeCost) and objective.time_usd_per_s:
            return self._least_with_time(objective)
        if isinstance(objective, MinimizeCost) and (
            objective.exactly or not self.request.volume_gb
        ):
            return self._cheapest_per_gb(objective)
        found = self._least_total(objective)
        self._require_policy(found.candidate)
        return found

    def binding(self, objective: Objective, candidate: Candidate) -> tuple[str, ...]:
        """Names of the limits that keep the plan from being better."""
        names = infeasibility.binding_limits(self.request, candidate.overlay)
        if isinstance(objective, MaximizeThroughput):
            return names or (self._binding_ceiling(objective, candidate),)
        least = least_gbps_after(objective, self.request, candidate.wait_s)
        if candidate.gbps > least * (1 + least_total_cost.SAME_RATE):
            return names
        floor = DEADLINE if isinstance(objective, Deadline) else THROUGHPUT_FLOOR
        return (floor, *names)

    def _binding_ceiling(self, objective: MaximizeThroughput, candidate: Candidate) -> str:
        """The ceiling of which the plan uses the larger share: the policy's or the objective's."""
        if self.max_job_usd is None:
            return COST_CEILING
        if objective.max_cost_usd is not None:
            used = candidate.usd / objective.max_cost_usd
        else:
            used = candidate.usd_per_gb / (objective.max_usd_per_gb or math.inf)
        return POLICY_MAX_JOB_USD if candidate.usd / self.max_job_usd > used else COST_CEILING

    def _is_within_policy(self, candidate: Candidate) -> bool:
        """Whether the policy allows this cost."""
        return self.max_job_usd is None or is_within(candidate.usd, self.max_job_usd)

    def _require_policy(self, candidate: Candidate) -> None:
        if self.max_job_usd is not None and not self._is_within_policy(candidate):
            raise infeasibility.total_ceiling_infeasible(
                self.request.route, self.max_job_usd, candidate.usd, is_policy=True
            )

    def _goal_infeasible(self, problem: PlanProblem) -> PlanInfeasible:
        return infeasibility.goal_infeasible(problem, self.request)

    # -- least cost

    def _least_with_time(self, objective: MinimizeCost) -> BoundedCandidate:
        """The least sum of the bill and the value of time, with few instances.

        Where the policy forbids its bill: the fastest or the cheapest plan that the policy allows.
        """
        problem = limited_by_objects(self.request, self.problem)
        if problem.goal_gbps < self.problem.goal_gbps:
            # At the floor, the objects take the time already.
            return self.best(replace(objective, value_of_time_usd_per_hour=0.0))
        timed = replace(self, problem=replace(problem, time_usd_per_s=objective.time_usd_per_s))
        if self.request.volume_gb and not objective.exactly:
            found = timed._least_total(objective)
        else:
            found = timed._cheapest_per_gb(objective)
        if self._is_within_policy(found.candidate):
            best = found.candidate
            if not objective.exactly:
                best = with_fewest_instances(self.request, timed.problem, best)
                if not self._is_within_policy(best):
                    best = found.candidate
        else:
            without_time = replace(objective, value_of_time_usd_per_hour=0.0)
            least = self.best(without_time).candidate
            most = self._fastest(MaximizeThroughput(max_cost_usd=self.max_job_usd)).candidate
            best = min(least, most, key=partial(objective_value, objective))
        return BoundedCandidate(best, found.bound)

    def _cheapest_per_gb(self, objective: MinimizeCost) -> BoundedCandidate:
        """The least (4a); where the policy forbids its total, the least total at the goal."""
        found = cheapest(self.problem, exactly=objective.exactly)
        if found is None:
            raise self._goal_infeasible(self.problem)
        candidate = least_total_cost.candidate_from(self.request, found.solution)
        if not self._is_within_policy(candidate) and not self.problem.time_usd_per_s:
            least = self._least_total(objective).candidate
            candidate = min(candidate, least, key=lambda one: one.usd)
            self._require_policy(candidate)
        return BoundedCandidate(candidate, usd_per_gbit_to_usd_per_gb(found.bound))

    def _least_total(self, objective: MinimizeCost | Deadline) -> BoundedCandidate:
        is_exact = isinstance(objective, MinimizeCost) and objective.exactly

        def solve(problem: PlanProblem, wait_s: float) -> BoundedCandidate | None:
            goal = least_gbps_after(objective, self.request, wait_s)
            if not math.isfinite(goal):
                return None
            most = goal if is_exact else max(goal, problem.most_gbps)
            at_goal = problem.with_goal(goal, most)
            return least_total_cost.least_total(self.request, at_goal, wait_s)

        least = least_total_cost.best_over_waits(self.problem, solve)
        if least is None:
            if isinstance(objective, Deadline):
                raise self._deadline_infeasible(objective)
            raise self._goal_infeasible(self.problem)
        done_s = least.candidate.done_s
        if isinstance(objective, Deadline) and done_s > objective.seconds * (1 + _LATE):
            # Of tiny objects, whose rate is below `LEAST_GBPS`.
            raise infeasibility.deadline_infeasible(
                self.request, objective.seconds, done_s, (OBJECTS,)
            )
        return least

    def _deadline_infeasible(self, objective: Deadline) -> PlanInfeasible:
        earliest: tuple[float, PlanProblem] | None = None
        for wait_s in least_total_cost.provision_waits(self.problem):
            problem = least_total_cost.within_wait(self.problem, wait_s)
            largest = largest_throughput(problem)
            if largest is None:
                continue
            most = infeasibility.rounded_down(largest[0].throughput_gbps / _BELOW_LARGEST)
            if most <= 0:
                continue
            least_s = wait_s + self.request.transfer_s(most)
            if earliest is None or least_s < earliest[0]:
                earliest = least_s, problem
        if earliest is None:
            return self._goal_infeasible(self.problem)
        names = self._goal_infeasible(earliest[1]).binding
        return infeasibility.deadline_infeasible(
            self.request, objective.seconds, earliest[0], names
        )

    # -- most throughput

    def _fastest(self, objective: MaximizeThroughput) -> BoundedCandidate:
        """The fastest plan under the ceiling of the objective and the ceiling of the policy."""
        totals = [usd for usd in (objective.max_cost_usd, self.max_job_usd) if usd is not None]
        per_gb = objective.max_usd_per_gb
        ceilings = Ceilings(math.inf if per_gb is None else per_gb, min(totals, default=math.inf))
        found = fastest_under(self.request, self.problem, ceilings)
        if found is None:
            raise self._ceilings_infeasible(ceilings)
        return found

    def _ceilings_infeasible(self, ceilings: Ceilings) -> PlanInfeasible:
        per_gb, usd = ceilings.usd_per_gb, ceilings.usd
        if math.isfinite(per_gb):
            found = cheapest(self.problem, exactly=False)
            if found is None:
                return self._goal_infeasible(self.problem)
            least = least_total_cost.candidate_from(self.request, found.solution).usd_per_gb
            if math.isinf(usd) or not is_within(least, per_gb):
                return infeasibility.price_ceiling_infeasible(self.request.route, per_gb, least)
            # A total this small keeps both ceilings.
            usd = min(usd, self.request.total_usd(usd_per_gb_to_usd_per_gbit(per_gb)))
        least_usd = self._least_total(MinimizeCost(ANY_RATE_GBPS)).candidate.usd
        return infeasibility.total_ceiling_infeasible(
            self.request.route, usd, least_usd, is_policy=usd == self.max_job_usd
        )


def best_promised(
    request: PlanRequest,
    objective: Objective,
    search_at: Callable[[float | None], ObjectiveSearch],
    *,
    is_promised: bool,
) -> tuple[ObjectiveSearch, BoundedCandidate, tuple[str, ...]]:
    """The search that found the best plan, the plan, and a note where its promise is too low.

    Args:
        search_at: the search at the rates of a confidence, or at the expected ones.
        is_promised: whether the objective holds at the rates of the job's confidence. Where no
            plan does, the next lower confidence counts, down to what the grid expects.

    Raises PlanInfeasible.
    """
    asked = request.limits.confidence
    note: tuple[str, ...] = ()
    if is_promised and (promised_shares(request.grid, asked) < 1).any():
        for confidence in (asked, *(one for one in _LOWER_CONFIDENCES if one < asked)):
            search = search_at(confidence)
            try:
                found = search.best(objective)
            except PlanInfeasible:
                note = (_too_much(objective, asked),)
                continue
            return search, found, note
    search = search_at(None)
    return search, search.best(objective), note


def _too_much(objective: Objective, confidence: float) -> str:
    if isinstance(objective, Deadline):
        what = f"to end within {objective.seconds:g} s"
    else:
        what = f"{least_gbps(objective):g} Gbit/s"
    return f"no plan promises {what} with a confidence of {confidence:g}; this one is less certain"


#: The least share of the rate that a path carries.
LEAST_SHARE: Final = 0.01
#: A thin path that is worth more than this share of the objective stays.
MOST_COST: Final = 0.0035
#: Share of that least flow that counts as rounding.
_ROUNDING: Final = 1e-9


def remove_thin_paths(search: ObjectiveSearch, objective: Objective, found: Candidate) -> Candidate:
    """The candidate, or the best one over the edges of its other paths if it has thin paths.

    A candidate stays as it is if its floor needs the thin paths, or if they are worth their place.
    """
    paths, least = found.overlay.paths, found.gbps * LEAST_SHARE * (1 - _ROUNDING)
    if all(flow >= least for flow in paths.values()):
        return found
    kept = {edge for path, flow in paths.items() if flow >= least for edge in pairwise(path)}
    edges = search.problem.by_edge(search.problem.capacity_gbps)
    narrow = search.problem.with_edges(np.array([edge in kept for edge in edges]))
    try:
        without = replace(search, problem=narrow).best(objective).candidate
    except (PlanInfeasible, SolverFailed):
        return found
    value, best = objective_value(objective, without), objective_value(objective, found)
    return found if gap_of(objective, value, best) > MOST_COST else without


#: A transfer so long that no wait and no minimum counts.
_ENDLESS_GBIT: Final = 1e12
#: The program has real connections. Where whole ones do not reach its rate, a rate lower by this
#: share is tried.
_LOWER: Final = 5e-3


def with_fewest_instances(request: PlanRequest, problem: PlanProblem, best: Candidate) -> Candidate:
    """The plan with the fewest instances whose sum is within `ROOM` of the best one's.

    It has the regions of the best one, or some of them.
    """
    time_usd_per_s = problem.time_usd_per_s
    ceiling_usd = best.usd_with_time(time_usd_per_s) + ROOM * best.decided_usd(time_usd_per_s)
    used = np.array([tag in best.overlay.instances for tag in problem.tags])
    few = problem.with_regions(used | ~problem.relays)
    try:
        found = best_rate(few, _bill(request, problem, best, ceiling_usd), "fewest")
    except SolverFailed:
        return best
    if found is None or found.instances.sum() >= sum(best.overlay.instances.values()):
        return best
    few = replace(few, quota=np.maximum(found.instances, 1.0))
    for factor in (1.0, 1.0 - _LOWER):
        rate = max(found.gbps * factor, few.goal_gbps)
        at_rate = few.with_goal(rate, rate)
        if request.volume_gb:
            at_rate = priced_at(request, at_rate, rate, best.wait_s)
        solved = cheapest(at_rate, exactly=True)
        if solved is not None:
            fewer = candidate_from(request, solved.solution)
            if fewer.usd_with_time(time_usd_per_s) <= ceiling_usd:
                return fewer
    return best


def _bill(request: PlanRequest, problem: PlanProblem, best: Candidate, ceiling_usd: float) -> Bill:
    if best.cost.total_usd is None:
        return Bill(_ENDLESS_GBIT, 0.0, usd_per_gb_to_usd_per_gbit(ceiling_usd))
    waiting_usd = problem.time_usd_per_s * best.wait_s
    most = request.usd_per_gbit(ceiling_usd - waiting_usd)
    least_s = request.object_bound().seconds
    return Bill(request.volume_gbit, best.wait_s, most, least_s=least_s)
