"""Objectives in USD for the whole job: what is billed beyond (4a) depends on the rate.

An instance at rate G is paid for `max(wait + VOL / G, minimum)` seconds. Per Gbit that is
its price times `overhead(G) / G`, and the overhead never falls as G rises. So on an interval
of rates the overhead at the lower end makes every plan look as cheap as it is or cheaper:
a bound. The overhead at the upper end makes it as dear as it is or dearer: what keeps a
ceiling then keeps it in truth. Intervals are cut until both agree (branch and bound on the
rate); every solve is one of `search`, and what is left between the two is reported.

`wait` is the slowest cloud of the plan. The problem is solved once as if every plan waited
only for its ends; when the answer uses a slower cloud, once for each distinct wait, with the
clouds that are at most that slow.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Final

import numpy as np

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.planner.decode import Overlay, decode
from skyplane_orchestration.planner.pricing import billing, costs
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.optimum import OPTIMAL_GAP, Found, cheapest, fastest
from skyplane_orchestration.planner.search.variable_fixing import least_instances
from skyplane_orchestration.units import gb_to_gbit, usd_per_gb_to_usd_per_gbit

#: Rounds per wait, and as many more as fit into the time of so many proofs: what is open then
#: is reported as the gap.
ROUNDS: Final = 4
#: After so many seconds no further round is begun; the gap that is left is stated.
PATIENCE_S: Final = 3.0
_PROOFS: Final = 4
#: A gap that is this many times what the solver itself left open is its own: no cut mends it.
_ITS_OWN: Final = 1.25
#: What a search goes no further for; the gap is reported as it is.
_SMALL_CHANGE_USD: Final = 0.005
#: Rates nearer than this (relative) are one.
SAME_RATE: Final = 1e-4
#: By what shares a ceiling is raised where the solver, which stays below it, may miss a plan
#: whose price is the ceiling itself.
_STRETCH: Final = (1e-6, 1e-4)
#: A fastest plan is looked for no further when its bound is as near as this.
_NEAR: Final = 1e-3
#: Share of a ceiling that counts as rounding: one that a plan has printed holds for that plan.
_ROUNDING: Final = 1e-12
#: Shares by which a ceiling is lowered when the solver's tolerance oversteps it.
SHRINK: Final = (0.0, 1e-6, 1e-5, 1e-4)


@dataclass(frozen=True, slots=True)
class Bill:
    """What a job is charged for.

    Attributes:
        volume_gb: GB (1e9 bytes) to move, above zero.
        requests_usd: price of all requests.
    """

    grid: Grid
    volume_gb: float
    requests_usd: float = 0.0

    @property
    def volume_gbit(self) -> float:
        return gb_to_gbit(self.volume_gb)

    def usd(self, usd_per_gbit: float) -> float:
        """USD for the job from USD per Gbit of egress and instances."""
        return usd_per_gbit * self.volume_gbit + self.requests_usd

    def usd_per_gbit(self, usd: float) -> float:
        """What is left per Gbit for egress and instances when the requests are paid."""
        return (usd - self.requests_usd) / self.volume_gbit

    def dearer(self, problem: PlanProblem, gbps: float, wait_s: float) -> PlanProblem:
        """The problem with instances at the price that they have at this rate."""
        transfer_s = self.volume_gbit / gbps if gbps > 0 else math.inf
        factor = billing.overhead(problem.tags, transfer_s, wait_s)
        return problem.with_overhead(factor[problem.option_region])


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A plan as it would be built.

    Attributes:
        usd_per_gb: (4a).
        total_usd: all items for the job, at the wait that it was priced for; None without a
            volume.
    """

    overlay: Overlay
    usd_per_gb: float
    total_usd: float | None

    @property
    def gbps(self) -> float:
        return self.overlay.throughput_gbps

    @property
    def usd(self) -> float:
        """The total; for candidates of a search that has a bill."""
        return math.inf if self.total_usd is None else self.total_usd

    @property
    def wait_s(self) -> float:
        return billing.provision_s(self.overlay.instances)


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A candidate, and the proven bound on its objective (see `SolverReport.bound`)."""

    candidate: Candidate
    bound: float


#: Solves a problem for plans that wait so many seconds.
Solve = Callable[[PlanProblem, float], Answer | None]


def is_within(usd: float, ceiling_usd: float) -> bool:
    """Whether a price keeps a ceiling."""
    return usd <= ceiling_usd * (1 + _ROUNDING)


def candidate_of(
    grid: Grid, found: Found, bill: Bill | None, wait_s: float | None = None
) -> Candidate:
    """What the integers are once they are decoded, and what that costs.

    Args:
        wait_s: what it is taken to wait for its gateways; None for what it does wait.
    """
    return priced(grid, decode(found.integers), bill, wait_s)


def priced(
    grid: Grid, overlay: Overlay, bill: Bill | None, wait_s: float | None = None
) -> Candidate:
    """An overlay and what it costs; see `candidate_of`."""
    cost = costs.itemised(
        costs.egress_usd_per_gb(grid, overlay),
        overlay,
        overlay.types,
        bill.volume_gb if bill else None,
        bill.requests_usd if bill else None,
        wait_s=wait_s,
    )
    return Candidate(overlay, cost.usd_per_gb, cost.total_usd)


def waits_of(problem: PlanProblem) -> list[float]:
    """The distinct seconds that a plan may have to wait for its gateways, ascending."""
    least = billing.provision_s((problem.tags[problem.src], problem.tags[problem.dst]))
    return sorted({max(least, billing.provision_s((tag,))) for tag in problem.tags})


def within_wait(problem: PlanProblem, wait_s: float) -> PlanProblem:
    """The problem with only the clouds that are up in `wait_s`."""
    quick = np.array([billing.provision_s((tag,)) <= wait_s for tag in problem.tags])
    return problem if quick.all() else problem.with_regions(quick)


def over_waits(problem: PlanProblem, solve: Solve, *, larger_is_better: bool) -> Answer | None:
    """The best over all waits; None when there is no plan."""
    waits = waits_of(problem)
    free = solve(problem, waits[0])
    if free is None or free.candidate.wait_s <= waits[0]:
        return free
    answers = [solve(within_wait(problem, wait_s), wait_s) for wait_s in waits]
    there = [answer for answer in answers if answer is not None]
    if not there:
        return None
    if larger_is_better:
        best = max(there, key=lambda one: one.candidate.gbps)
        return Answer(best.candidate, min(free.bound, max(one.bound for one in there)))
    best = min(there, key=lambda one: one.candidate.usd)
    return Answer(best.candidate, max(free.bound, min(one.bound for one in there)))


def rounds(proof_s: float) -> Iterator[int]:
    """Rounds of a search: one, a few while there is patience, and more while they are quick."""
    started = time.monotonic()
    for number in count():
        taken_s = time.monotonic() - started
        if number >= ROUNDS and taken_s > _PROOFS * proof_s:
            return
        if number >= 1 and taken_s > max(PATIENCE_S, proof_s):
            return
        yield number


# ---------------------------------------------------------------- the least cost


def least_usd(problem: PlanProblem, bill: Bill, wait_s: float, proof_s: float) -> Answer | None:
    """The plan with the least total at any rate from the goal up; None without one.

    Every plan is taken to wait `wait_s`. The bound in the answer is in USD.
    """
    best: Candidate | None = None
    open_intervals = [(0.0, problem.goal_gbps, problem.most_gbps)]
    closed: list[float] = []
    for _ in rounds(proof_s):
        if not open_intervals or _is_near(best, open_intervals[0][0], OPTIMAL_GAP):
            break
        known, low, high = heappop(open_intervals)
        part = problem.with_goal(low, high)
        found = cheapest(bill.dearer(part, low, wait_s), exactly=False, proof_s=proof_s)
        if found is None:
            continue
        candidate = candidate_of(bill.grid, found, bill, wait_s)
        best = _cheaper(candidate, best)
        enough = max(
            OPTIMAL_GAP, _ITS_OWN * found.gap, _SMALL_CHANGE_USD / max(best.usd, _SMALL_CHANGE_USD)
        )
        bound = max(known, bill.usd(found.bound))
        if not _is_near(best, bound, enough):
            best = _cheaper(best, _at_goal(part, bill, wait_s, proof_s))
            bound = max(bound, _bound_by_ends(part, bill, wait_s, proof_s))
        cut = _cut(candidate, bill, wait_s, low, best.usd)
        if cut is None or _is_near(best, bound, enough):
            closed.append(bound)
        else:
            heappush(open_intervals, (bound, low, cut))
            heappush(open_intervals, (bound, cut, high))
    if best is None:
        return None
    return Answer(best, min(best.usd, *closed, *(known for known, _, _ in open_intervals)))


def _cheaper(one: Candidate, other: Candidate | None) -> Candidate:
    return one if other is None or one.usd <= other.usd else other


def _at_goal(problem: PlanProblem, bill: Bill, wait_s: float, proof_s: float) -> Candidate | None:
    """The cheapest at the least rate itself: the fewest instances, which a short job likes."""
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    dearer = bill.dearer(at_goal, problem.goal_gbps, wait_s)
    found = cheapest(dearer, exactly=True, proof_s=proof_s)
    return None if found is None else candidate_of(bill.grid, found, bill, wait_s)


def _is_near(best: Candidate | None, bound_usd: float, gap: float) -> bool:
    return best is not None and bound_usd >= best.usd * (1 - gap)


def _bound_by_ends(problem: PlanProblem, bill: Bill, wait_s: float, proof_s: float) -> float:
    """Another bound in USD: (4a) at its least, and the wait of what the ends need at least.

    For a job of a minute or two the wait is most of what instances cost, and it does not
    fall with the rate: here it is counted whole, though for the ends alone.
    """
    found = cheapest(problem, exactly=False, proof_s=proof_s)
    if found is None:
        return 0.0
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    usd_per_s = float(least_instances(at_goal) @ problem.cheapest_usd_per_s)
    return bill.usd(found.bound) + usd_per_s * wait_s


def _cut(
    candidate: Candidate, bill: Bill, wait_s: float, low_gbps: float, best_usd: float
) -> float | None:
    """Where to cut an interval: just where its upper part should be closed by its bound.

    These instances at any rate from the cut up then look no cheaper than the best plan does.
    None when the answer already is at the lower end, where the bound is the truth.
    """
    rate = candidate.gbps
    if rate <= low_gbps * (1 + SAME_RATE):
        return None
    egress = costs.egress_usd_per_gb(bill.grid, candidate.overlay) * bill.volume_gb
    moving = candidate.usd_per_gb * bill.volume_gb - egress
    if moving <= 0 or wait_s <= 0:
        return None
    factor = (best_usd * (1 - OPTIMAL_GAP / 2) - bill.requests_usd - egress) / moving
    cut = (factor - 1) * bill.volume_gbit / wait_s
    if not low_gbps * (1 + SAME_RATE) < cut < rate:
        cut = math.sqrt(low_gbps * rate)
    return cut


# ---------------------------------------------------------------- the most throughput


def most_gbps_for_price(
    problem: PlanProblem, grid: Grid, usd_per_gb: float, bill: Bill | None, proof_s: float
) -> Answer | None:
    """The fastest plan whose price (4a) is at most `usd_per_gb`, then the cheapest such.

    One integer program, since cost <= price x G is linear when G is a variable. The bound in
    the answer is in Gbit/s.
    """
    look = _UnderPrice(problem, grid, usd_per_gb, bill, proof_s)
    if not look.at(0.0):
        for shrink in SHRINK[1:]:
            if not look.has_overstepped or look.at(-shrink):
                break
    for stretch in _STRETCH:
        if look.is_proven:
            break
        look.beside(stretch)
    if look.best is None:
        look.from_rate(problem.goal_gbps)
    return None if look.best is None else Answer(look.best, max(look.bound, look.best.gbps))


class _UnderPrice:
    """Looks for the fastest plan under a price, each keeping the fastest so far."""

    def __init__(
        self,
        problem: PlanProblem,
        grid: Grid,
        usd_per_gb: float,
        bill: Bill | None,
        proof_s: float,
    ) -> None:
        self._problem = problem
        self._grid = grid
        self._usd_per_gb = usd_per_gb
        self._bill = bill
        self._proof_s = proof_s
        self.best: Candidate | None = None
        self.bound = problem.most_gbps
        self.has_overstepped = False

    @property
    def is_proven(self) -> bool:
        return self.best is not None and self.bound <= self.best.gbps * (1 + _NEAR)

    def at(self, stretch: float) -> bool:
        """With the ceiling raised by a share; whether what was found keeps it as it is."""
        found = self._fastest(stretch)
        return found is not None and self._consider(found)

    def beside(self, stretch: float) -> None:
        """As `at`; where that oversteps the ceiling, the cheapest plan that is as fast."""
        found = self._fastest(stretch)
        if found is not None and not self._consider(found):
            self.from_rate(found.integers.throughput_gbps * (1 - SAME_RATE / 100))

    def from_rate(self, gbps: float) -> None:
        """The cheapest plan at any rate from this one up."""
        if self.best is not None and gbps <= self.best.gbps:
            return
        upwards = self._problem.with_goal(gbps, self._problem.most_gbps)
        found = cheapest(upwards, exactly=False, proof_s=0.0)
        if found is not None:
            self._consider(found)

    def _fastest(self, stretch: float) -> Found | None:
        price = usd_per_gb_to_usd_per_gbit(self._usd_per_gb) * (1 + stretch)
        found = fastest(self._problem, price, proof_s=self._proof_s)
        if found is not None and stretch >= 0:
            self.bound = min(self.bound, found.bound)
        self.has_overstepped = found is not None
        return found

    def _consider(self, found: Found) -> bool:
        """Keep it if it is under the ceiling and faster; whether it is under the ceiling."""
        candidate = candidate_of(self._grid, found, self._bill)
        if not is_within(candidate.usd_per_gb, self._usd_per_gb):
            return False
        if self.best is None or candidate.gbps > self.best.gbps:
            self.best = candidate
        return True
