"""One job over the edges of a grid: which search answers which objective, and what is refused."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from skyplane_orchestration.errors import ConfigurationInvalid, PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
)
from skyplane_orchestration.planner import infeasibility, job_cost
from skyplane_orchestration.planner.constraint_names import (
    COST_CEILING,
    DEADLINE,
    POLICY_MAX_JOB_USD,
    THROUGHPUT_FLOOR,
)
from skyplane_orchestration.planner.cost_ceiling import most_gbps_for_usd
from skyplane_orchestration.planner.job_cost import Answer, Bill, Candidate, is_within
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.optimum import cheapest, largest_throughput
from skyplane_orchestration.units import (
    gb_to_gbit,
    usd_per_gb_to_usd_per_gbit,
    usd_per_gbit_to_usd_per_gb,
)

#: Nothing slower is planned: below this, flows drown in the tolerances of the solver.
LEAST_GBPS: Final = 1e-3
#: The rate from which the cheapest price of any plan at all is looked for.
_ANY_RATE_GBPS: Final = 0.1
#: A rate that a deadline needs, made larger than the rounding of its seconds.
_IN_TIME: Final = 1 + 1e-9
#: By how much a deadline that can be met stays below the largest rate.
_NOT_QUITE: Final = 1 + 1e-6


def least_gbps(objective: Objective) -> float:
    """The least rate of a plan, whatever its clouds."""
    if isinstance(objective, MinimizeCost):
        return max(objective.min_throughput_gbps, LEAST_GBPS)
    return _ANY_RATE_GBPS if isinstance(objective, MaximizeThroughput) else LEAST_GBPS


def least_gbps_after(objective: Objective, volume_gb: float, wait_s: float) -> float:
    """The least rate of a plan that waits so long; infinite when that is too long."""
    if not isinstance(objective, Deadline):
        return least_gbps(objective)
    left_s = objective.seconds - wait_s
    if left_s <= 0:
        return math.inf
    return max(gb_to_gbit(volume_gb) / left_s * _IN_TIME, LEAST_GBPS)


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """One job over the edges of a grid.

    Attributes:
        problem: its goal is the least rate whatever the clouds (`least_gbps`).
        bill: None without a volume.
        max_job_usd: the policy's; None for no bound.
    """

    grid: Grid
    problem: PlanProblem
    bill: Bill | None
    limits: Limits
    max_job_usd: float | None
    proof_s: float

    @property
    def ends(self) -> tuple[str, str]:
        return self.problem.tags[self.problem.src], self.problem.tags[self.problem.dst]

    def answer(self, objective: Objective) -> Answer:
        """The best plan that was found; its bound is in the unit of `value_of`.

        Raises PlanInfeasible.
        """
        if isinstance(objective, MaximizeThroughput):
            return self._fastest(objective)
        if isinstance(objective, MinimizeCost) and (objective.exactly or self.bill is None):
            return self._cheapest_per_gb(objective.exactly)
        least = self._least_usd(objective)
        self._require_may_cost(least.candidate)
        return least

    def value_of(self, objective: Objective, candidate: Candidate) -> float:
        """What the objective counts: Gbit/s, USD per GB (4a), or USD of the job."""
        if isinstance(objective, MaximizeThroughput):
            return candidate.gbps
        if isinstance(objective, MinimizeCost) and (objective.exactly or self.bill is None):
            return candidate.usd_per_gb
        return candidate.usd

    def binding(self, objective: Objective, candidate: Candidate) -> tuple[str, ...]:
        """Names of what stops the plan from being better."""
        names = infeasibility.binding_limits(candidate.overlay, self.limits, self.ends, self.grid)
        if isinstance(objective, MaximizeThroughput):
            return names or (self._ceiling_that_binds(objective, candidate),)
        volume_gb = self.bill.volume_gb if self.bill else 0.0
        least = least_gbps_after(objective, volume_gb, candidate.wait_s)
        if candidate.gbps > least * (1 + job_cost.SAME_RATE):
            return names
        what = DEADLINE if isinstance(objective, Deadline) else THROUGHPUT_FLOOR
        return (what, *names)

    def _ceiling_that_binds(self, objective: MaximizeThroughput, candidate: Candidate) -> str:
        """The policy's ceiling where less of it is left than of the objective's."""
        if self.max_job_usd is None:
            return COST_CEILING
        if objective.max_cost_usd is not None:
            used = candidate.usd / objective.max_cost_usd
        else:
            used = candidate.usd_per_gb / (objective.max_usd_per_gb or math.inf)
        return POLICY_MAX_JOB_USD if candidate.usd / self.max_job_usd > used else COST_CEILING

    def may_cost(self, candidate: Candidate) -> bool:
        """Whether the policy's most per job allows it."""
        return self.max_job_usd is None or is_within(candidate.usd, self.max_job_usd)

    def _require_may_cost(self, candidate: Candidate) -> None:
        """Raises PlanInfeasible."""
        if self.max_job_usd is not None and not self.may_cost(candidate):
            raise infeasibility.too_dear(self.ends, self.max_job_usd, candidate.usd, is_policy=True)

    # -- the least cost

    def _cheapest_per_gb(self, exactly: bool) -> Answer:
        """By (4a), without boot; a plan that the policy finds too dear by its total."""
        found = cheapest(self.problem, exactly=exactly, proof_s=self.proof_s)
        if found is None:
            raise infeasibility.infeasible(self.problem, self.limits, self.grid)
        candidate = job_cost.candidate_of(self.grid, found, self.bill)
        bound = usd_per_gbit_to_usd_per_gb(found.bound)
        if self.bill and not self.may_cost(candidate):
            candidate = self._least_total_at_goal(self.bill, candidate)
            self._require_may_cost(candidate)
        return Answer(candidate, bound)

    def _least_total_at_goal(self, bill: Bill, otherwise: Candidate) -> Candidate:
        def solve(problem: PlanProblem, wait_s: float) -> Answer | None:
            dearer = bill.dearer(problem, problem.goal_gbps, wait_s)
            found = cheapest(dearer, exactly=True, proof_s=self.proof_s)
            if found is None:
                return None
            candidate = job_cost.candidate_of(self.grid, found, bill, wait_s)
            return Answer(candidate, bill.usd(found.bound))

        least = job_cost.over_waits(self.problem, solve, larger_is_better=False)
        return least.candidate if least and least.candidate.usd < otherwise.usd else otherwise

    def _least_usd(self, objective: MinimizeCost | Deadline) -> Answer:
        bill = self._priced()

        def solve(problem: PlanProblem, wait_s: float) -> Answer | None:
            goal = least_gbps_after(objective, bill.volume_gb, wait_s)
            if not math.isfinite(goal):
                return None
            at_goal = problem.with_goal(goal, max(goal, problem.most_gbps))
            return job_cost.least_usd(at_goal, bill, wait_s, self.proof_s)

        least = job_cost.over_waits(self.problem, solve, larger_is_better=False)
        if least is None:
            raise self._unreachable(objective)
        return least

    def _priced(self) -> Bill:
        if self.bill is None:  # `require_volume` has seen to it
            raise ConfigurationInvalid("what counts USD of the job needs a volume")
        return self.bill

    def _unreachable(self, objective: MinimizeCost | Deadline) -> PlanInfeasible:
        if isinstance(objective, MinimizeCost):
            return infeasibility.infeasible(self.problem, self.limits, self.grid)
        bill = self._priced()
        best: tuple[float, PlanProblem] | None = None
        for wait_s in job_cost.waits_of(self.problem):
            problem = job_cost.within_wait(self.problem, wait_s)
            largest = largest_throughput(problem)
            # At the most itself, a hair more for the rounding of seconds would be too much.
            most = (
                infeasibility.rounded_down(largest[0].throughput_gbps / _NOT_QUITE)
                if largest
                else 0.0
            )
            if most > 0 and (best is None or wait_s + bill.volume_gbit / most < best[0]):
                best = wait_s + bill.volume_gbit / most, problem
        if best is None:
            return infeasibility.infeasible(self.problem, self.limits, self.grid)
        names = infeasibility.infeasible(best[1], self.limits, self.grid).binding
        return infeasibility.too_late(self.ends, objective.seconds, best[0], names)

    # -- the most throughput

    def _fastest(self, objective: MaximizeThroughput) -> Answer:
        """Under the objective's ceiling and the policy's, whichever are given."""
        per_gb = objective.max_usd_per_gb
        totals = [most for most in (objective.max_cost_usd, self.max_job_usd) if most is not None]
        usd = min(totals, default=None)
        by_price = None
        if per_gb is not None:
            by_price = job_cost.most_gbps_for_price(
                self.problem, self.grid, per_gb, self.bill, self.proof_s
            )
            if by_price is None:
                raise self._dearer_than_price(per_gb)
            if usd is None or is_within(by_price.candidate.usd, usd):
                return by_price
        by_total = self._most_gbps_for_usd(usd or math.inf)
        if by_price is None or is_within(by_total.candidate.usd_per_gb, per_gb or math.inf):
            return by_total
        return self._under_both(by_price, by_total, per_gb or math.inf, usd or math.inf)

    def _most_gbps_for_usd(self, usd: float) -> Answer:
        bill = self._priced()

        def solve(problem: PlanProblem, wait_s: float) -> Answer | None:
            return most_gbps_for_usd(problem, bill, usd, wait_s, self.proof_s)

        found = job_cost.over_waits(self.problem, solve, larger_is_better=True)
        if found is not None:
            return found
        # The solver stays a little below a ceiling: at the smallest total it finds nothing.
        least = self._least_usd(MinimizeCost(_ANY_RATE_GBPS))
        if is_within(least.candidate.usd, usd):
            return Answer(least.candidate, self.problem.most_gbps)
        raise infeasibility.too_dear(
            self.ends, usd, least.candidate.usd, is_policy=usd == self.max_job_usd
        )

    def _under_both(
        self, by_price: Answer, by_total: Answer, usd_per_gb: float, usd: float
    ) -> Answer:
        """Where the fastest plan under either ceiling breaks the other one.

        A total that per GB stays under both keeps both; what it gives away to the bound is
        reported as the gap.
        """
        bill = self._priced()
        bound = min(by_price.bound, by_total.bound)
        narrow = min(usd, bill.usd(usd_per_gb_to_usd_per_gbit(usd_per_gb)))
        try:
            found = self._most_gbps_for_usd(narrow)
        except PlanInfeasible:
            least = self._least_usd(MinimizeCost(_ANY_RATE_GBPS))
            if not is_within(least.candidate.usd, usd):
                raise
            if not is_within(least.candidate.usd_per_gb, usd_per_gb):
                raise
            found = least
        return Answer(found.candidate, max(bound, found.candidate.gbps))

    def _dearer_than_price(self, usd_per_gb: float) -> PlanInfeasible:
        least = cheapest(self.problem, exactly=False, proof_s=0.0)
        if least is None:
            return infeasibility.infeasible(self.problem, self.limits, self.grid)
        candidate = job_cost.candidate_of(self.grid, least, self.bill)
        return infeasibility.too_dear_per_gb(self.ends, usd_per_gb, candidate.usd_per_gb)
