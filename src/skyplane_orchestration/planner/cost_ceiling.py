"""The most throughput under a ceiling: a price per GB (4a), or a total in USD.

A price per GB needs one integer program, because cost <= price * G is linear in G. A total
needs a search over the rate, because the overhead depends on it (see `job_cost`).
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Final

from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.gap import OPTIMAL_GAP
from skyplane_orchestration.planner.job_cost import (
    SAME_RATE,
    BoundedCandidate,
    Candidate,
    candidate_from,
    is_within,
    least_total,
    priced_at,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.optimum import cheapest, fastest
from skyplane_orchestration.planner.solution import Incumbent
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit

#: Shares by which a ceiling is lowered when the solver's tolerance exceeds it.
_SHRINK: Final = (0.0, 1e-6, 1e-5, 1e-4)
#: Shares by which a ceiling is raised. The solver stays below a ceiling, so it may miss a plan
#: whose price equals the ceiling.
_STRETCH: Final = (1e-6, 1e-4)
#: The search stops when the bound is within this share of the best rate.
_RATE_GAP: Final = 1e-3
_HALVINGS: Final = 12
#: No further step starts after this many seconds.
PATIENCE_S: Final = 3.0
#: Most steps of the bisection of the rate.
_STEPS: Final = 12


# ---------------------------------------------------------------- a price per GB


def fastest_under_price(
    request: PlanRequest, problem: PlanProblem, usd_per_gb: float, proof_s: float
) -> BoundedCandidate | None:
    """The fastest plan with (4a) of at most `usd_per_gb`, then the cheapest at that rate.

    None when no plan is that cheap. The bound is in Gbit/s.
    """
    search = _PriceCeilingSearch(request, problem, usd_per_gb, proof_s, bound=problem.most_gbps)
    if not search.try_ceiling(0.0):
        for shrink in _SHRINK[1:]:
            if not search.exceeded or search.try_ceiling(-shrink):
                break
    for stretch in _STRETCH:
        if search.is_proven:
            break
        search.try_raised_ceiling(stretch)
    if search.best is None:
        search.try_rate(problem.goal_gbps)
    if search.best is None:
        return None
    return BoundedCandidate(search.best, max(search.bound, search.best.gbps))


@dataclass(slots=True)
class _PriceCeilingSearch:
    """Keeps the fastest plan under a price, over several attempts.

    Attributes:
        bound: in Gbit/s.
        exceeded: whether the last plan was above the ceiling.
    """

    request: PlanRequest
    problem: PlanProblem
    usd_per_gb: float
    proof_s: float
    bound: float
    best: Candidate | None = None
    exceeded: bool = False

    @property
    def is_proven(self) -> bool:
        return self.best is not None and self.bound <= self.best.gbps * (1 + _RATE_GAP)

    def try_ceiling(self, stretch: float) -> bool:
        """Solve with the ceiling raised by a share; whether the plan keeps the true ceiling."""
        found = self._fastest(stretch)
        return found is not None and self._consider(found)

    def try_raised_ceiling(self, stretch: float) -> None:
        """As `try_ceiling`; if the plan exceeds the ceiling, the cheapest plan at its rate."""
        found = self._fastest(stretch)
        if found is not None and not self._consider(found):
            self.try_rate(found.solution.throughput_gbps * (1 - SAME_RATE / 100))

    def try_rate(self, gbps: float) -> None:
        """The cheapest plan at any rate from this one up."""
        if self.best is not None and gbps <= self.best.gbps:
            return
        upwards = self.problem.with_goal(gbps, self.problem.most_gbps)
        found = cheapest(upwards, exactly=False, proof_s=0.0)
        if found is not None:
            self._consider(found)

    def _fastest(self, stretch: float) -> Incumbent | None:
        price = usd_per_gb_to_usd_per_gbit(self.usd_per_gb) * (1 + stretch)
        found = fastest(self.problem, price, proof_s=self.proof_s)
        if found is not None and stretch >= 0:
            self.bound = min(self.bound, found.bound)
        self.exceeded = found is not None
        return found

    def _consider(self, found: Incumbent) -> bool:
        """Keep the plan if it is under the ceiling and faster; whether it is under it."""
        candidate = candidate_from(self.request, found.solution)
        if not is_within(candidate.usd_per_gb, self.usd_per_gb):
            return False
        if self.best is None or candidate.gbps > self.best.gbps:
            self.best = candidate
        return True


# ---------------------------------------------------------------- a total in USD


def fastest_under_total(
    request: PlanRequest, problem: PlanProblem, usd: float, wait_s: float, proof_s: float
) -> BoundedCandidate | None:
    """The fastest plan with a total of at most `usd`; None when no plan is that cheap.

    Every plan is billed for `wait_s`. The bound is in Gbit/s.
    """
    search = _TotalCeilingSearch(request, problem, usd, wait_s, proof_s, problem.most_gbps)
    search.run()
    search.bisect()
    if search.best is None and search.bound > 0:
        any_rate = problem.with_goal(problem.goal_gbps, max(search.bound, problem.goal_gbps))
        least = least_total(request, any_rate, wait_s, proof_s)
        if least is not None and is_within(least.candidate.usd, usd):
            search.best = least.candidate
    if search.best is None:
        return None
    return BoundedCandidate(search.best, max(search.bound, search.best.gbps))


@dataclass(slots=True)
class _TotalCeilingSearch:
    """Keeps the fastest plan under a total, over several attempts.

    Attributes:
        bound: in Gbit/s; no plan under the ceiling is faster.
    """

    request: PlanRequest
    problem: PlanProblem
    usd: float
    wait_s: float
    proof_s: float
    bound: float
    best: Candidate | None = None

    @property
    def _best_gbps(self) -> float:
        return 0.0 if self.best is None else self.best.gbps

    def run(self) -> None:
        """Bisect the rate up to which plans are priced with the overhead of that rate.

        The overhead of the best rate so far bounds all faster plans. A rate that needs one more
        instance may cost too much although a higher rate does not, so this is a heuristic.
        """
        until_s = time.monotonic() + max(PATIENCE_S, self.proof_s)
        self._lower_bound()
        high = self.bound
        top = high
        for _ in range(_STEPS):
            if high <= self._best_gbps * (1 + OPTIMAL_GAP) or time.monotonic() > until_s:
                break
            for shrink in _SHRINK:
                found = self._fastest(top, top, shrink)
                if found is None or self._keep_solution(found):
                    break
            if self._best_gbps < top * (1 - SAME_RATE):
                high = top
            low = self._best_gbps
            top = math.sqrt(low * high) if low > 0 else high / 2
        self._lower_bound()

    def bisect(self) -> None:
        """Bisect the open range by the least total, which never falls as the rate rises.

        Unlike `run`, this finds a plan whose total equals the ceiling.
        """
        until_s = time.monotonic() + PATIENCE_S / 2
        high = self.bound
        for _ in range(_HALVINGS):
            low = self._best_gbps
            if low <= 0 or high <= low * (1 + _RATE_GAP) or time.monotonic() > until_s:
                break
            middle = math.sqrt(low * high)
            upwards = self.problem.with_goal(middle, max(middle, self.bound))
            least = least_total(self.request, upwards, self.wait_s, 0.0)
            if least is None or not self._keep(least.candidate):
                high = middle

    def _lower_bound(self) -> None:
        """Bound the plans above the best rate, with the overhead of that rate; keep the plan."""
        if self._best_gbps >= self.bound:
            return
        found = self._fastest(self._best_gbps, self.bound, 0.0)
        self.bound = min(self.bound, found.bound if found else self._best_gbps)
        if found is not None:
            self._keep_solution(found)

    def _fastest(self, gbps: float, most_gbps: float, shrink: float) -> Incumbent | None:
        """The most throughput up to `most_gbps`, with the overhead of the rate `gbps`."""
        price = self.request.usd_per_gbit(self.usd) * (1 - shrink)
        if price <= 0:
            return None
        part = self.problem.with_goal(min(self.problem.goal_gbps, most_gbps), most_gbps)
        at_price = priced_at(self.request, part, gbps, self.wait_s)
        return fastest(at_price, price, proof_s=self.proof_s)

    def _keep_solution(self, found: Incumbent) -> bool:
        return self._keep(candidate_from(self.request, found.solution, self.wait_s))

    def _keep(self, candidate: Candidate) -> bool:
        """Keep the plan if it is under the ceiling and faster; whether it is under it."""
        if not is_within(candidate.usd, self.usd):
            return False
        if candidate.gbps > self._best_gbps:
            self.best = candidate
        return True
