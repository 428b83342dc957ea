"""The Pareto frontier: what each further Gbit/s costs (paper section 5.2).

The relaxed frontier (`breakpoints`) is had first. It bounds the price of a plan at any rate,
and between two of its breakpoints the relaxed optimum mixes the same few edges at every rate:
on those the integer model is small, and one such model per point is all that is solved.
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
from skyplane_orchestration.model.job import (
    ANY_REGION,
    NO_LIMITS,
    Limits,
    MinimizeCost,
    Policy,
    objective_to_dict,
)
from skyplane_orchestration.model.plan import SolverReport, TransferPlan
from skyplane_orchestration.planner.build_plan import Request, assemble
from skyplane_orchestration.planner.check import violations
from skyplane_orchestration.planner.constraint_names import THROUGHPUT_FLOOR
from skyplane_orchestration.planner.decode import decode
from skyplane_orchestration.planner.formulation import cost_per_second, policy_rows
from skyplane_orchestration.planner.infeasibility import binding_limits, infeasible, too_dear
from skyplane_orchestration.planner.objectives import LEAST_GBPS
from skyplane_orchestration.planner.optimize import PROOF_S, plan, require_volume
from skyplane_orchestration.planner.problem import PlanProblem, build_problem
from skyplane_orchestration.planner.relaxed_frontier import RelaxedFrontier, relaxed_frontier
from skyplane_orchestration.planner.search.optimum import (
    OPTIMAL_GAP,
    SCALE,
    cheapest,
    fastest,
    relative_gap,
)
from skyplane_orchestration.planner.single_region import crosses_no_edge
from skyplane_orchestration.planner.solution import Integers
from skyplane_orchestration.planner.solve import solve_integers

logger = logging.getLogger(__name__)

#: A price that no plan has: the ceiling under which throughput alone counts.
_ANY_USD_PER_GBIT: Final = 1e6
#: Prices and rates nearer than this are the same.
_SAME: Final = 1e-6
#: Relative gap at which the solver may stop on a point's few edges.
_NEAR: Final = 2e-4
#: Seconds for the integers on a point's few edges.
_POINT_S: Final = 0.5
#: Farther than this (relative) from the relaxed frontier, a point is looked for on more regions.
_FAR: Final = 0.004


@dataclass(frozen=True, slots=True, eq=False)
class Frontier(Sequence[TransferPlan]):
    """Plans from the cheapest per GB to the fastest: each is faster and dearer than the last.

    A sequence of its plans. Each plan's `solver.bound` is the relaxed price (USD per GB) at
    its rate, below which no plan at that rate or a higher one can lie.

    Attributes:
        relaxed: the least price at every rate if everything were divisible; without
            breakpoints where no edge is crossed.
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

    Its ends are the fastest of the cheapest plans per GB (4a) and the cheapest of the fastest
    plans; between them the cheapest found at each of `points` - 2 evenly spaced rates: one that
    is at most 0.4 % above the relaxed frontier is not looked for any further. Plans that
    another one beats in both are left out, and so are those above the policy's
    `max_job_usd`.

    Args:
        proof_s: seconds from its start in which the search for an end may prove that nothing is
            better.

    Raises UnknownRegion, PlanInfeasible (no way through, or none at the policy's price),
    SolverFailed, and ConfigurationInvalid for fewer than two points or a `max_job_usd`
    without a volume.
    """
    if points < 2:
        raise ConfigurationInvalid(f"a frontier has two ends: {points} points are too few")
    require_volume(MinimizeCost(LEAST_GBPS), policy, volume_gb)
    if crosses_no_edge(grid, src, dst):
        alone = plan(
            grid,
            src,
            dst,
            MinimizeCost(LEAST_GBPS),
            volume_gb=volume_gb,
            objects=objects,
            limits=limits,
            policy=policy,
        )
        return Frontier((alone,), RelaxedFrontier(()))
    problem = build_problem(grid, src, dst, goal_gbps=LEAST_GBPS, limits=limits, policy=policy)
    started = time.perf_counter()
    relaxed = relaxed_frontier(problem)
    least = cheapest(problem, exactly=False, proof_s=proof_s) if relaxed.points else None
    if least is None:
        raise infeasible(problem, limits, grid)
    found = _Search(problem, relaxed, proof_s).along(least.integers, points)
    seconds = (time.perf_counter() - started) / len(found)
    finish = _Finish(grid, src, dst, volume_gb, objects, limits, relaxed, seconds)
    plans = _affordable(_not_beaten([finish.plan_of(one) for one in found]), policy.max_job_usd)
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


def _not_beaten(found: Sequence[TransferPlan]) -> tuple[TransferPlan, ...]:
    """In order of rate, without those that are neither faster nor cheaper than another."""
    kept: list[TransferPlan] = []
    for one in sorted(found, key=lambda one: (-one.throughput_gbps, one.cost.usd_per_gb)):
        if not kept or one.cost.usd_per_gb < kept[-1].cost.usd_per_gb * (1 - _SAME):
            kept.append(one)
    return tuple(reversed(kept))


def _affordable(
    plans: tuple[TransferPlan, ...], max_job_usd: float | None
) -> tuple[TransferPlan, ...]:
    """The plans whose total the policy allows. Raises PlanInfeasible when there is none."""
    if max_job_usd is None:
        return plans
    totals = [one.cost.total_usd or 0.0 for one in plans]
    if min(totals) > max_job_usd:
        raise too_dear((plans[0].src, plans[0].dst), max_job_usd, min(totals), is_policy=True)
    return tuple(one for one, total in zip(plans, totals, strict=True) if total <= max_job_usd)


class _Search:
    """Integers at many rates of one problem."""

    def __init__(self, problem: PlanProblem, relaxed: RelaxedFrontier, proof_s: float) -> None:
        self._problem = problem
        self._relaxed = relaxed
        self._proof_s = proof_s

    def along(self, least: Integers, points: int) -> list[Integers]:
        """Both ends, and what lies at evenly spaced rates between them.

        Args:
            least: a plan at the lowest price of all.
        """
        slow = self._fastest(least.usd_per_gbit * (1 + _SAME)) or least
        if slow.throughput_gbps <= least.throughput_gbps:
            slow = least
        fast = self._cheapest_as_fast(self._fastest(_ANY_USD_PER_GBIT) or slow)
        if fast.throughput_gbps <= slow.throughput_gbps * (1 + _SAME):
            return [slow]
        rates = np.linspace(slow.throughput_gbps, fast.throughput_gbps, points).tolist()
        return [slow, *self._between(rates, slow, fast), fast]

    def _fastest(self, usd_per_gbit: float) -> Integers | None:
        found = fastest(self._problem, usd_per_gbit, proof_s=self._proof_s)
        return found.integers if found else None

    def _cheapest_as_fast(self, one: Integers) -> Integers:
        """The cheapest at the rate of this one: that was looked for on its few regions alone."""
        rate = one.throughput_gbps
        at_rate = self._problem.with_goal(rate, rate)
        found = cheapest(at_rate, exactly=True, proof_s=self._proof_s)
        if found is None or found.integers.usd_per_s >= one.usd_per_s:
            return one
        return found.integers

    def _between(
        self, rates: Sequence[float], left: Integers, right: Integers
    ) -> Iterator[Integers]:
        """Plans at the rates strictly inside, from the middle on.

        A middle rate whose neighbours on both sides have equal instances is tried with these
        alone. One that a faster plan serves at its bound needs no plan of its own.
        """
        if len(rates) < 3:
            return
        middle = len(rates) // 2
        gbps = float(rates[middle])
        bound = self._relaxed.usd_per_s_at(gbps) / gbps
        if right.usd_per_gbit <= bound * (1 + OPTIMAL_GAP):
            yield from self._between(rates[: middle + 1], left, right)
            return
        found = self._at(gbps, left, right)
        yield from self._between(rates[: middle + 1], left, found or right)
        if found is not None:
            yield found
        yield from self._between(rates[middle:], found or left, right)

    def _at(self, gbps: float, left: Integers, right: Integers) -> Integers | None:
        """The cheapest found at one rate; None when the solver finds none."""
        if _are_alike(left, right):
            fixed = replace(left.problem.with_goal(gbps, gbps), quota=left.instances)
            found = self._solved(fixed)
            farthest = max(self._gap(left), self._gap(right))
            if found is not None and self._gap(found) <= farthest + _NEAR:
                return found
        found = self._solved(self._network_at(gbps))
        if found is not None and self._gap(found) <= _FAR:
            return found
        wide = cheapest(self._problem.with_goal(gbps, gbps), exactly=True, proof_s=0.0)
        if wide is None or (found is not None and found.usd_per_s <= wide.integers.usd_per_s):
            return found
        return wide.integers

    def _network_at(self, gbps: float) -> PlanProblem:
        """The edges that relaxed optima at this rate use, and their regions."""
        few = self._problem.with_goal(gbps, gbps).with_edges(self._relaxed.edges_at(gbps))
        regions = ~few.relays
        regions[few.tail] = regions[few.head] = True
        return few.with_regions(regions)

    def _solved(self, problem: PlanProblem) -> Integers | None:
        cost = cost_per_second(problem)
        least = self._relaxed.usd_per_s_at(problem.goal_gbps)
        try:
            return solve_integers(
                problem,
                cost * (SCALE / least if least > 0 else 1.0),
                extra=policy_rows(problem),
                relative_gap=_NEAR,
                time_limit_s=_POINT_S,
            )
        except SolverFailed:
            return None

    def _gap(self, found: Integers) -> float:
        """Relative distance to the relaxed frontier."""
        return relative_gap(found.usd_per_s, self._relaxed.usd_per_s_at(found.throughput_gbps))


def _are_alike(one: Integers, other: Integers) -> bool:
    """True for equal instances in the same regions."""
    return one.problem.tags == other.problem.tags and np.array_equal(one.instances, other.instances)


@dataclass(frozen=True, slots=True, eq=False)
class _Finish:
    """Makes plans of integers, with their distance to the relaxed frontier.

    Attributes:
        seconds: what finding one took, on average.
    """

    grid: Grid
    src: str
    dst: str
    volume_gb: float | None
    objects: int | None
    limits: Limits
    relaxed: RelaxedFrontier
    seconds: float

    def plan_of(self, integers: Integers) -> TransferPlan:
        """Raises SolverFailed when the plan breaks (4b) to (4j)."""
        overlay = decode(integers)
        binding = binding_limits(overlay, self.limits, (self.src, self.dst), self.grid)
        rate = overlay.throughput_gbps
        made = assemble(
            self.grid,
            Request(
                self.src,
                self.dst,
                objective_to_dict(MinimizeCost(rate, exactly=True)),
                self.volume_gb,
                self.objects,
                self.limits.chunk_mib,
            ),
            overlay,
            overlay.types,
            binding=(THROUGHPUT_FLOOR, *binding),
            solver=SolverReport("feasible", 0.0, self._bound_at(rate), self.seconds),
        )
        broken = violations(made, self.grid, self.limits)
        if broken:
            raise SolverFailed(f"a plan of the frontier does not hold: {'; '.join(broken)}")
        price = made.cost.usd_per_gb
        bound = min(made.solver.bound, price)
        gap = relative_gap(price, bound)
        status = "optimal" if gap <= OPTIMAL_GAP else "feasible"
        return replace(made, solver=SolverReport(status, gap, bound, self.seconds))

    def _bound_at(self, gbps: float) -> float:
        """The relaxed price; the solver's tolerance may put the fastest plan beyond the end."""
        return self.relaxed.usd_per_gb_at(min(gbps, self.relaxed.most_gbps))
