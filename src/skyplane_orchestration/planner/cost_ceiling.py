"""The most throughput under ceilings: a price per GB (4a), a total in USD, or both.

A price needs one integer program, because cost <= price * G is linear in G. A total needs several,
because the overhead depends on the rate (see `job_cost`). Such a program stays below its ceiling by
the solver's tolerance. So the rates between its plan and its bound are bisected: the least cost at
a rate or above never falls as the rate rises.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Final

from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.job_cost import (
    BoundedCandidate,
    Candidate,
    candidate_from,
    is_within,
    least_total,
    priced_at,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.optimum import cheapest, fastest
from skyplane_orchestration.planner.total_bounds import largest_rate_bound
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit

#: The search stops when the bound is within this share of the best rate.
_RATE_GAP: Final = 1e-3
#: Most pairs of programs for a total, and most steps of the bisection.
_ROUNDS: Final = 4
_HALVINGS: Final = 16
#: No further step of the bisection starts after this many seconds.
PATIENCE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The most that a plan may cost: (4a) and the total; infinite for no limit."""

    usd_per_gb: float
    usd: float

    def allow(self, candidate: Candidate) -> bool:
        return is_within(candidate.usd_per_gb, self.usd_per_gb) and (
            math.isinf(self.usd) or is_within(candidate.usd, self.usd)
        )


def fastest_under(
    request: PlanRequest, problem: PlanProblem, ceilings: Ceilings, wait_s: float
) -> BoundedCandidate | None:
    """The fastest plan within the ceilings; None when no plan is that cheap.

    Every plan is billed for `wait_s`. The bound is in Gbit/s.
    """
    search = _CeilingSearch(request, problem, ceilings, wait_s, problem.most_gbps)
    search.by_price()
    search.by_total()
    search.bisect()
    search.by_total()
    if search.best is None:
        return None
    bound = search.bound
    if math.isfinite(ceilings.usd):
        rates = search.best.gbps, max(bound, search.best.gbps)
        bound = largest_rate_bound(request, problem, wait_s, ceilings.usd, rates)
    return BoundedCandidate(search.best, max(bound, search.best.gbps))


@dataclass(slots=True)
class _CeilingSearch:
    """Keeps the fastest plan within the ceilings, over several attempts.

    Attributes:
        bound: in Gbit/s; no plan within the ceilings is faster.
    """

    request: PlanRequest
    problem: PlanProblem
    ceilings: Ceilings
    wait_s: float
    bound: float
    best: Candidate | None = None

    @property
    def _best_gbps(self) -> float:
        return 0.0 if self.best is None else self.best.gbps

    def _is_open(self, high_gbps: float) -> bool:
        return high_gbps > self._best_gbps * (1 + _RATE_GAP)

    def by_price(self) -> None:
        """One program for the price per GB."""
        if math.isfinite(self.ceilings.usd_per_gb):
            price = usd_per_gb_to_usd_per_gbit(self.ceilings.usd_per_gb)
            self._solve(self.problem, price, beyond_gbps=0.0)

    def by_total(self) -> None:
        """Pairs of programs for the total, until the bound is near or the rate stays.

        With the overhead of the best rate so far, no faster plan is priced above its cost: a bound.
        With the overhead of the rate that this gives, no slower plan is priced below its cost.
        """
        if math.isinf(self.ceilings.usd):
            return
        gbps = max(self._best_gbps, self.problem.goal_gbps)
        for _ in range(_ROUNDS):
            most = self._solve_total(self.problem, gbps, beyond_gbps=gbps)
            if most is None or not self._is_open(self.bound):
                return
            up_to = self.problem.with_goal(min(self.problem.goal_gbps, most), most)
            self._solve_total(up_to, most, beyond_gbps=math.inf)
            if not self._best_gbps > gbps * (1 + _RATE_GAP):
                return
            gbps = self._best_gbps

    def bisect(self) -> None:
        """Bisect the rates between the best plan and the bound."""
        if self.best is None and not self._try_from(self.problem.goal_gbps):
            return
        high, until_s = self.bound, time.monotonic() + PATIENCE_S
        for _ in range(_HALVINGS):
            if not self._is_open(high) or time.monotonic() > until_s:
                break
            middle = math.sqrt(self._best_gbps * high)
            if not self._try_from(middle):
                high = middle

    def _solve_total(
        self, problem: PlanProblem, gbps: float, *, beyond_gbps: float
    ) -> float | None:
        """As `_solve`, with the overhead of the rate `gbps`."""
        price = self.request.usd_per_gbit(self.ceilings.usd)
        at_price = priced_at(self.request, problem, gbps, self.wait_s)
        return self._solve(at_price, price, beyond_gbps=beyond_gbps)

    def _solve(
        self, problem: PlanProblem, usd_per_gbit: float, *, beyond_gbps: float
    ) -> float | None:
        """The rate of the fastest plan of one program; None without a plan.

        Its bound holds for plans faster than `beyond_gbps`.
        """
        if usd_per_gbit <= 0:
            return None
        found = fastest(problem, usd_per_gbit)
        if found is None:
            return None
        self.bound = min(self.bound, max(found.bound, beyond_gbps))
        self._keep(candidate_from(self.request, found.solution, self.wait_s))
        return found.solution.throughput_gbps

    def _try_from(self, gbps: float) -> bool:
        """Keep the cheapest plans at this rate or above; whether the ceilings allow one."""
        upwards = self.problem.with_goal(gbps, max(gbps, self.bound))
        if math.isfinite(self.ceilings.usd_per_gb):
            found = cheapest(upwards, exactly=False)
            if found and self._keep(candidate_from(self.request, found.solution, self.wait_s)):
                return True
        if math.isfinite(self.ceilings.usd):
            least = least_total(self.request, upwards, self.wait_s)
            return least is not None and self._keep(least.candidate)
        return False

    def _keep(self, candidate: Candidate) -> bool:
        """Keep the plan if the ceilings allow it and it is faster; whether they allow it."""
        if not self.ceilings.allow(candidate):
            return False
        if candidate.gbps > self._best_gbps:
            self.best = candidate
        return True
