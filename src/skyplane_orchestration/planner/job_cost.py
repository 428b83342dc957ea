"""The total cost of a job in USD, which depends on the rate, and the search for the least total.

An instance at rate G is billed for `max(wait + VOL / G, minimum)` seconds. Per Gbit that is its
price times `overhead(G) / G`, and the overhead never falls as G rises. On an interval of rates:

- the overhead at the lower end prices every plan at its cost or below: a bound;
- the overhead at the upper end prices every plan at its cost or above: plans that meet a
  ceiling at these prices meet it in fact.

Branch and bound on the rate cuts intervals until both agree. The difference that remains is the
reported gap.

`wait` is the provisioning time of the slowest cloud in the plan. The search first assumes that
every plan waits for its ends only. If the result uses a slower cloud, the search runs once per
distinct wait, on the clouds that are up by then.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import count
from typing import Final

import numpy as np

from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.decode import decode
from skyplane_orchestration.planner.gap import OPTIMAL_GAP
from skyplane_orchestration.planner.overlay import Overlay
from skyplane_orchestration.planner.pricing import billing, costs
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.optimum import cheapest
from skyplane_orchestration.planner.search.regions import least_instances
from skyplane_orchestration.planner.solution import IntegerSolution

#: Rounds per wait. More rounds run while they fit into the time of _PROOFS proofs.
ROUNDS: Final = 4
#: No further round starts after this many seconds.
PATIENCE_S: Final = 3.0
_PROOFS: Final = 4
#: An interval is closed when its gap is at most this factor of the solver's own gap.
_SOLVER_GAP_FACTOR: Final = 1.25
#: The search does not continue for a smaller gain than this.
_SMALL_GAIN_USD: Final = 0.005
#: Rates that differ by less than this share are equal.
SAME_RATE: Final = 1e-4
#: Rounding as a share of a ceiling: a plan keeps the ceiling that its own price sets.
_ROUNDING: Final = 1e-12


def priced_at(
    request: PlanRequest, problem: PlanProblem, gbps: float, wait_s: float
) -> PlanProblem:
    """The problem with the instance prices that billing gives at this rate."""
    transfer_s = request.volume_gbit / gbps if gbps > 0 else math.inf
    factor = overhead(problem.tags, transfer_s, wait_s)
    return problem.with_overhead(factor[problem.option_region])


def overhead(tags: Sequence[str], transfer_s: float, wait_s: float) -> Floats:
    """(V,) billed seconds over seconds of transfer, at least 1; larger for short transfers."""
    if not np.isfinite(transfer_s):
        return np.ones(len(tags))
    return np.array([billing.billed_s(tag, transfer_s, wait_s) / transfer_s for tag in tags])


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A decoded overlay with its price.

    Attributes:
        usd_per_gb: (4a).
        total_usd: all cost items of the job; None without a volume.
        wait_s: seconds until its gateways respond.
    """

    overlay: Overlay
    usd_per_gb: float
    total_usd: float | None
    wait_s: float

    @property
    def gbps(self) -> float:
        return self.overlay.throughput_gbps

    @property
    def usd(self) -> float:
        """The total; infinite without a volume."""
        return math.inf if self.total_usd is None else self.total_usd


@dataclass(frozen=True, slots=True, eq=False)
class BoundedCandidate:
    """A candidate, and the proven bound on its objective (see `SolverReport.bound`)."""

    candidate: Candidate
    bound: float


#: Solves a problem for plans that wait the given seconds.
Solve = Callable[[PlanProblem, float], BoundedCandidate | None]


def is_within(usd: float, ceiling_usd: float) -> bool:
    """Whether a price keeps a ceiling."""
    return usd <= ceiling_usd * (1 + _ROUNDING)


def candidate_from(
    request: PlanRequest, solution: IntegerSolution, wait_s: float | None = None
) -> Candidate:
    """The decoded solution with its price; `wait_s` None: the wait of the overlay's own clouds."""
    return priced(request, decode(solution), wait_s)


def priced(request: PlanRequest, overlay: Overlay, wait_s: float | None = None) -> Candidate:
    """An overlay with its price; arguments as for `candidate_from`."""
    own_wait_s = request.wait_s(overlay.instances)
    cost = costs.itemised(
        costs.egress_usd_per_gb(request.grid, overlay),
        overlay,
        request.volume_gb or None,
        request.requests_usd,
        own_wait_s if wait_s is None else wait_s,
    )
    return Candidate(overlay, cost.usd_per_gb, cost.total_usd, own_wait_s)


def provision_waits(problem: PlanProblem) -> list[float]:
    """The distinct waits that a plan of this problem may have, ascending."""
    least_s = problem.provision_s[list(problem.ends)].max()
    return sorted(set(np.maximum(least_s, problem.provision_s).tolist()))


def within_wait(problem: PlanProblem, wait_s: float) -> PlanProblem:
    """The problem restricted to clouds that are up after `wait_s`."""
    quick: Mask = problem.provision_s <= wait_s
    return problem if quick.all() else problem.with_regions(quick)


def best_over_waits(
    problem: PlanProblem, solve: Solve, *, maximize: bool
) -> BoundedCandidate | None:
    """The best plan over all waits; None when there is no plan."""
    waits = provision_waits(problem)
    free = solve(problem, waits[0])
    if free is None or free.candidate.wait_s <= waits[0]:
        return free
    tried = [solve(within_wait(problem, wait_s), wait_s) for wait_s in waits]
    found = [one for one in tried if one is not None]
    if not found:
        return None
    if maximize:
        best = max(found, key=lambda one: one.candidate.gbps)
        return BoundedCandidate(best.candidate, min(free.bound, max(one.bound for one in found)))
    best = min(found, key=lambda one: one.candidate.usd)
    return BoundedCandidate(best.candidate, max(free.bound, min(one.bound for one in found)))


def search_rounds(proof_s: float) -> Iterator[int]:
    """Numbers of the rounds: at least one, then as many as count and time allow."""
    started = time.monotonic()
    for number in count():
        taken_s = time.monotonic() - started
        if number >= ROUNDS and taken_s > _PROOFS * proof_s:
            return
        if number >= 1 and taken_s > max(PATIENCE_S, proof_s):
            return
        yield number


# ---------------------------------------------------------------- the least total


def least_total(
    request: PlanRequest, problem: PlanProblem, wait_s: float, proof_s: float
) -> BoundedCandidate | None:
    """The plan with the least total at any rate from the goal up; None when infeasible.

    Every plan is billed for `wait_s`. The bound is in USD.
    """
    best: Candidate | None = None
    open_intervals = [(0.0, problem.goal_gbps, problem.most_gbps)]
    closed: list[float] = []
    for _ in search_rounds(proof_s):
        if not open_intervals or _is_near(best, open_intervals[0][0], OPTIMAL_GAP):
            break
        known, low, high = heappop(open_intervals)
        part = problem.with_goal(low, high)
        found = cheapest(priced_at(request, part, low, wait_s), exactly=False, proof_s=proof_s)
        if found is None:
            continue
        candidate = candidate_from(request, found.solution, wait_s)
        best = _cheaper(candidate, best)
        gain = _SMALL_GAIN_USD / max(best.usd, _SMALL_GAIN_USD)
        tolerance = max(OPTIMAL_GAP, _SOLVER_GAP_FACTOR * found.gap, gain)
        bound = max(known, request.total_usd(found.bound))
        if not _is_near(best, bound, OPTIMAL_GAP):
            best = _cheaper(best, _at_goal(request, part, wait_s, proof_s))
        if not _is_near(best, bound, tolerance):
            bound = max(bound, _bound_by_ends(request, part, wait_s, proof_s))
        cut = _cut(request, candidate, wait_s, low, best.usd)
        if cut is None or _is_near(best, bound, tolerance):
            closed.append(bound)
        else:
            heappush(open_intervals, (bound, low, cut))
            heappush(open_intervals, (bound, cut, high))
    if best is None:
        return None
    bounds = [*closed, *(known for known, _, _ in open_intervals)]
    return BoundedCandidate(best, min(best.usd, *bounds))


def _cheaper(one: Candidate, other: Candidate | None) -> Candidate:
    return one if other is None or one.usd <= other.usd else other


def _at_goal(
    request: PlanRequest, problem: PlanProblem, wait_s: float, proof_s: float
) -> Candidate | None:
    """The cheapest plan at the goal: it has the fewest instances, which suits a short job."""
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    at_price = priced_at(request, at_goal, problem.goal_gbps, wait_s)
    found = cheapest(at_price, exactly=True, proof_s=proof_s)
    return None if found is None else candidate_from(request, found.solution, wait_s)


def _is_near(best: Candidate | None, bound_usd: float, gap: float) -> bool:
    return best is not None and bound_usd >= best.usd * (1 - gap)


def _bound_by_ends(
    request: PlanRequest, problem: PlanProblem, wait_s: float, proof_s: float
) -> float:
    """Another bound in USD: the least (4a) plus the wait of the fewest instances at the ends.

    The wait is most of the instance cost of a job of a minute or two.
    """
    found = cheapest(problem, exactly=False, proof_s=proof_s)
    if found is None:
        return 0.0
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    usd_per_s = float(least_instances(at_goal) @ problem.cheapest_usd_per_s)
    return request.total_usd(found.bound) + usd_per_s * wait_s


def _cut(
    request: PlanRequest, candidate: Candidate, wait_s: float, low_gbps: float, best_usd: float
) -> float | None:
    """The rate at which to cut an interval, so that its bound closes the upper part.

    From there these instances cost no less than the best plan. None at the lower end.
    """
    rate = candidate.gbps
    if rate <= low_gbps * (1 + SAME_RATE):
        return None
    volume_gb = request.volume_gb or 0.0
    egress = costs.egress_usd_per_gb(request.grid, candidate.overlay) * volume_gb
    moving = candidate.usd_per_gb * volume_gb - egress
    if moving <= 0 or wait_s <= 0:
        return None
    factor = (best_usd * (1 - OPTIMAL_GAP / 2) - (request.requests_usd or 0.0) - egress) / moving
    cut = (factor - 1) * request.volume_gbit / wait_s
    if not low_gbps * (1 + SAME_RATE) < cut < rate:
        cut = math.sqrt(low_gbps * rate)
    return cut
