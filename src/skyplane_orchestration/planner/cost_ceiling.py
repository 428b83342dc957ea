"""The most throughput for a total in USD: branch and bound on the rate (`objectives`)."""

from __future__ import annotations

import math
import time
from typing import Final

from skyplane_orchestration.planner.job_cost import (
    PATIENCE_S,
    SAME_RATE,
    SHRINK,
    Answer,
    Bill,
    Candidate,
    candidate_of,
    is_within,
    least_usd,
    rounds,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.optimum import OPTIMAL_GAP, Found, fastest

#: Where the bound is farther than this from the best rate, the interval between is halved, so
#: many times at most.
_OPEN: Final = 1e-3
_HALVINGS: Final = 12

#: A bound that is this many times the best rate is far: a start is looked for, in so many
#: steps at most, until the rates are as near as _STEEP.
_WIDE: Final = 1.1
_STEPS: Final = 16
_STEEP: Final = 1.02


def most_gbps_for_usd(
    problem: PlanProblem, bill: Bill, usd: float, wait_s: float, proof_s: float
) -> Answer | None:
    """The fastest plan whose total is at most `usd`; None when there is none.

    Every plan is taken to wait `wait_s`. The bound in the answer is in Gbit/s.
    """
    search = _UnderCeiling(problem, bill, usd, wait_s, proof_s)
    search.run()
    search.halve()
    if search.best is None and search.most_gbps > 0:
        any_rate = problem.with_goal(problem.goal_gbps, max(search.most_gbps, problem.goal_gbps))
        least = least_usd(any_rate, bill, wait_s, proof_s)
        if least is not None and is_within(least.candidate.usd, usd):
            search.best = least.candidate
    if search.best is None:
        return None
    return Answer(search.best, max(search.most_gbps, search.best.gbps))


class _UnderCeiling:
    """The fastest plan under a total: intervals of rates, from the top down.

    Which rates a total allows is no interval: a rate that just needs one more instance may be
    too dear although a higher one is not.
    """

    def __init__(
        self, problem: PlanProblem, bill: Bill, usd: float, wait_s: float, proof_s: float
    ) -> None:
        self._problem = problem
        self._bill = bill
        self._usd = usd
        self._wait_s = wait_s
        self._proof_s = proof_s
        self._open = [(0.0, problem.most_gbps)]
        self._closed: list[float] = []
        self.best: Candidate | None = None

    @property
    def most_gbps(self) -> float:
        """No plan under the ceiling is faster."""
        return max([self._least_gbps, *self._closed, *(high for _, high in self._open)])

    @property
    def _least_gbps(self) -> float:
        return 0.0 if self.best is None else self.best.gbps

    def run(self) -> None:
        for number in rounds(self._proof_s):
            if not self._open or self._is_reached(self._open[-1][1]):
                break
            self._look(*self._open.pop())
            if number == 0 and self._open and self.most_gbps > _WIDE * self._least_gbps:
                most = self.most_gbps
                cut = self._climb(most)
                self._open = [(self._least_gbps, cut), (cut, most)]

    def halve(self) -> None:
        """Ask for the least total from the middle of what is open upwards.

        That total never falls as the rate rises, and unlike a look under the ceiling it finds
        a plan whose total is the ceiling itself, such as one that was printed with it.
        """
        until_s = time.monotonic() + PATIENCE_S / 2
        high = self.most_gbps
        for _ in range(_HALVINGS):
            low = self._least_gbps
            if low <= 0 or high <= low * (1 + _OPEN) or time.monotonic() > until_s:
                break
            middle = math.sqrt(low * high)
            upwards = self._problem.with_goal(middle, max(middle, self.most_gbps))
            least = least_usd(upwards, self._bill, self._wait_s, 0.0)
            if least is None or not self._keep(least.candidate):
                high = middle

    def _is_reached(self, gbps: float) -> bool:
        return self.best is not None and gbps <= self.best.gbps * (1 + OPTIMAL_GAP)

    def _climb(self, high_gbps: float) -> float:
        """Towards the highest rate whose own overhead the ceiling bears: halved until one does,
        then by halves of what is left. A guess of the rate above which nothing is.

        A short job's overhead grows with the rate, so a bound from a low rate closes nothing:
        what is found here is where the intervals begin.
        """
        until_s = time.monotonic() + max(PATIENCE_S, self._proof_s)
        for _ in range(_STEPS):
            low = self._least_gbps
            if time.monotonic() > until_s or high_gbps <= max(
                low * _STEEP, self._problem.goal_gbps
            ):
                break
            top = math.sqrt(low * high_gbps) if low > 0 else high_gbps / 2
            found = self._fastest(top, top, 0.0, proof_s=0.0)
            if found is not None:
                self._consider(found)
            if self._least_gbps < top * (1 - SAME_RATE):
                high_gbps = top
        return high_gbps

    def _look(self, low_gbps: float, high_gbps: float) -> None:
        """Ask with the overhead of the lower end, which bounds the interval; then with that
        of the upper end, where what is found keeps the ceiling in truth; then cut."""
        low = max(low_gbps, self._least_gbps)
        found = self._fastest(low, high_gbps, 0.0)
        if found is None or found.bound < low:
            return
        high = min(high_gbps, found.bound)
        top = min(high, found.integers.throughput_gbps)
        if not self._consider(found):
            for shrink in SHRINK:
                below = self._fastest(top, top, shrink)
                if below is None or self._consider(below):
                    break
        low = max(low, self._least_gbps)
        if self._is_reached(high):
            return
        if top <= low * (1 + OPTIMAL_GAP):
            # The solver's best is no better; what is above is its bound alone.
            self._closed.append(high)
            return
        middle = math.sqrt(low * top) if low > 0 else top / 2
        self._open += [(low, middle), (middle, high)]

    def _fastest(
        self, gbps: float, most_gbps: float, shrink: float, proof_s: float | None = None
    ) -> Found | None:
        """With the overhead of one rate, the most up to another."""
        price = self._bill.usd_per_gbit(self._usd) * (1 - shrink)
        if price <= 0:
            return None
        part = self._problem.with_goal(min(self._problem.goal_gbps, most_gbps), most_gbps)
        proof_s = self._proof_s if proof_s is None else proof_s
        return fastest(self._bill.dearer(part, gbps, self._wait_s), price, proof_s=proof_s)

    def _consider(self, found: Found) -> bool:
        """Keep it if it is under the ceiling and faster; whether it is under the ceiling."""
        return self._keep(candidate_of(self._bill.grid, found, self._bill, self._wait_s))

    def _keep(self, candidate: Candidate) -> bool:
        """`_consider` for a candidate."""
        if not is_within(candidate.usd, self._usd):
            return False
        if candidate.gbps > self._least_gbps:
            self.best = candidate
        return True
