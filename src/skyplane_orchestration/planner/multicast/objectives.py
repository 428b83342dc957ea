"""Maps each objective to a search over distribution trees, and refuses what is infeasible."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.model.job import (
    Deadline,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
)
from skyplane_orchestration.planner.build_plan import LEAST_GBPS, PlanRequest
from skyplane_orchestration.planner.candidate import Candidate, priced
from skyplane_orchestration.planner.constraint_names import (
    COST_CEILING,
    DEADLINE,
    POLICY_MAX_JOB_USD,
    REGION_LIMITS,
)
from skyplane_orchestration.planner.infeasibility import (
    advice,
    limits_reached,
    no_route,
    price_ceiling_infeasible,
    rounded_down,
)
from skyplane_orchestration.planner.least_total_cost import BoundedCandidate, provision_waits
from skyplane_orchestration.planner.multicast.decode import decode_trees
from skyplane_orchestration.planner.multicast.search import (
    TreeIncumbent,
    cheapest,
    fastest,
    largest_throughput,
)
from skyplane_orchestration.planner.objectives import ANY_RATE_GBPS, least_gbps
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.total_bounds import priced_at
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit, usd_per_gbit_to_usd_per_gb

#: For a ceiling on the total: bisection steps, and the relative tolerance of the rate.
_BISECTIONS, _RATE_TOLERANCE = 10, 1e-3
_POLICY_TOLERANCE: Final = 1e-6


@dataclass(frozen=True, slots=True)
class MulticastSearch:
    """Searches one problem for the best plan of an objective."""

    request: PlanRequest
    problem: PlanProblem

    def floor_gbps(self, objective: Objective) -> float:
        """The lowest rate that meets the objective."""
        if not isinstance(objective, Deadline):
            return least_gbps(objective)
        # A relay may be in any cloud, so the plan waits for the slowest cloud.
        wait_s = float(self.problem.provision_s.max())
        if objective.seconds <= wait_s:
            raise PlanInfeasible(
                f"gateways take about {wait_s:g} s to start, which leaves nothing of the"
                f" deadline of {objective.seconds:g} s; allow more time",
                binding=(DEADLINE,),
            )
        left_s = (objective.seconds - wait_s) * self.request.share
        return max(self.request.volume_gbit / left_s, LEAST_GBPS)

    def best(self, objective: Objective) -> BoundedCandidate:
        """The best plan found; its bound has the unit of `objective_value`.

        Raises PlanInfeasible.
        """
        if isinstance(objective, MaximizeThroughput):
            return self._fastest(objective)
        exactly = isinstance(objective, MinimizeCost) and objective.exactly
        problem = self.problem.with_goal(self.floor_gbps(objective), self.problem.most_gbps)
        if not exactly and self.request.volume_gb:
            return self._least_total(problem)
        best = cheapest(problem, exactly=exactly)
        if best is None:
            raise self._goal_infeasible(problem)
        found = self._decoded(best)
        return BoundedCandidate(
            found, min(usd_per_gbit_to_usd_per_gb(best.bound), found.usd_per_gb)
        )

    # -- least cost

    def _least_total(self, problem: PlanProblem) -> BoundedCandidate:
        """The least total found: at the floor, or at a rate above it.

        Overhead grows with the rate, so the relaxation at the floor bounds every plan.
        """
        at_price = priced_at(self.request, problem, problem.goal_gbps, self._least_wait_s)
        solved = [
            one
            for exactly in (False, True)
            if (one := cheapest(at_price, exactly=exactly)) is not None
        ]
        if not solved:
            raise self._goal_infeasible(problem)
        best = min((self._decoded(one) for one in solved), key=lambda one: one.usd)
        return BoundedCandidate(best, min(self.request.total_usd(solved[0].bound), best.usd))

    # -- most throughput

    def _fastest(self, objective: MaximizeThroughput) -> BoundedCandidate:
        per_gb = objective.max_usd_per_gb
        if per_gb is None:
            return self._fastest_under_total(objective.max_cost_usd or 0.0)
        best = fastest(self.problem, usd_per_gb_to_usd_per_gbit(per_gb))
        if best is None:
            most_gbps = self.problem.most_gbps
            anyhow = self.problem.with_goal(min(ANY_RATE_GBPS, most_gbps), most_gbps)
            found = cheapest(anyhow, exactly=False)
            if found is None:
                raise self._goal_infeasible(anyhow)
            least = usd_per_gbit_to_usd_per_gb(found.solution.usd_per_gbit)
            raise price_ceiling_infeasible(self.request.route, per_gb, least)
        return self._bounded(best, best.bound)

    def _fastest_under_total(self, max_usd: float) -> BoundedCandidate:
        """The fastest plan with a total of at most `max_usd`, by bisection on the rate.

        With the overhead of one rate, a plan up to that rate keeps the ceiling; if none reaches it,
        no plan above keeps the ceiling. A proof only if the ends are as slow as the slowest cloud.
        """
        ceiling = self.request.usd_per_gbit(max_usd)
        free = fastest(self.problem, ceiling)
        slowest_s = float(self.problem.provision_s.max())
        high = bound = 0.0 if free is None else free.bound
        best: TreeIncumbent | None = None
        at = high
        for _ in range(_BISECTIONS if free is not None else 0):
            at_price = priced_at(self.request, self.problem, at, slowest_s)
            found = fastest(at_price.with_goal(self.problem.goal_gbps, at), ceiling)
            rate = 0.0 if found is None else found.solution.throughput_gbps
            if best is None or rate > best.solution.throughput_gbps:
                best = found
            if rate < at * (1 - _RATE_TOLERANCE):
                high = at
                if self._least_wait_s == slowest_s and (found is None or found.bound < at):
                    bound = min(bound, at)
            low = 0.0 if best is None else best.solution.throughput_gbps
            if high - low <= _RATE_TOLERANCE * high:
                break
            at = (low + high) / 2
        if best is None:
            raise PlanInfeasible(
                f"no plan from {self.request.route} was found for {max_usd:g} USD with boot,"
                " minimum billing and requests. Raise the ceiling or move less",
                binding=(COST_CEILING,),
            )
        return self._bounded(best, bound)

    def _bounded(self, best: TreeIncumbent, bound_gbps: float) -> BoundedCandidate:
        found = self._decoded(best)
        return BoundedCandidate(found, max(bound_gbps, found.gbps))

    # -- limits and errors

    def require_policy(self, found: Candidate, policy: Policy) -> None:
        """Raises PlanInfeasible for a plan above the policy's maximum cost."""
        if policy.max_job_usd is None:
            return
        if found.usd > policy.max_job_usd * (1 + _POLICY_TOLERANCE):
            raise PlanInfeasible(
                f"the best plan from {self.request.route} costs {found.usd:.2f} USD with"
                f" boot, minimum billing and requests; {POLICY_MAX_JOB_USD} is"
                f" {policy.max_job_usd:g}. Raise the policy, ask for less or move less",
                binding=(POLICY_MAX_JOB_USD,),
            )

    @property
    def _least_wait_s(self) -> float:
        """The wait of a plan without relays."""
        return provision_waits(self.problem)[0]

    def _decoded(self, best: TreeIncumbent) -> Candidate:
        return priced(self.request, decode_trees(self.problem, best.solution))

    def _goal_infeasible(self, problem: PlanProblem) -> PlanInfeasible:
        """The error for a goal that no plan reaches: the binding limits and the largest rate."""
        largest = largest_throughput(problem)
        if largest is None:
            return no_route(self.request.grid, self.request.src, self.request.destinations)
        most = rounded_down(largest.solution.throughput_gbps)
        overlay = decode_trees(problem, largest.solution)
        price = dict(zip(REGION_LIMITS, largest.relaxed.price, strict=True))
        names = limits_reached(self.request, overlay, problem.tags, price)
        goal = f"{problem.goal_gbps:g} Gbit/s from {self.request.route}"
        is_proven = problem.goal_gbps > largest.bound_gbps
        words = f"no plan moves {goal}" if is_proven else f"no plan that moves {goal} was found"
        return PlanInfeasible(
            f"{words}; the most that was found is {most:g} Gbit/s, and"
            f" {largest.bound_gbps:.5g} Gbit/s cannot be exceeded. Binding limits:"
            f" {', '.join(names)}. {advice(names, self.request)}",
            binding=names,
            most_gbps=most,
        )
