"""The search: from a problem to integers that are as good as can be, and how good.

1. The relaxation over all regions (tens of milliseconds) gives a bound and a price for
   every edge.
2. The full integer model is solved on the regions that the relaxation uses and the few
   that would cost least to use (`bound.most_promising`).
3. What is left between the two is closed by `bound.prove`: either no plan over any regions
   is cheaper, or the regions that a cheaper plan may need join and step 2 is repeated.

Ties are broken towards fewer relays, then fewer instances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skyplane_orchestration.planner.bound import (
    least_instances,
    margin_of,
    most_promising,
    prove,
)
from skyplane_orchestration.planner.formulation import (
    columns_of,
    cost_ceiling,
    cost_per_second,
    policy_rows,
    relay_limit,
    relay_switch,
)
from skyplane_orchestration.planner.problem import Floats, Mask, PlanProblem
from skyplane_orchestration.planner.solve import (
    HOP_WEIGHT,
    Integers,
    Relaxation,
    relax,
    solve_integers,
)

#: A plan whose price is proven within this of the bound counts as optimal.
OPTIMAL_GAP = 1e-4
#: How much of the objective a tie may give away.
TIE = 1e-6
#: Dinkelbach's method roughly squares its error at each step.
RATIO_STEPS = 8
#: Times that a proof may send the search back with more regions.
PROOF_ROUNDS = 3
#: A relay weighs more than any number of instances when ties are broken.
RELAY_WEIGHT = 1000.0


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Integers, and a proven bound on the objective: USD per Gbit, or Gbit/s at a ceiling."""

    integers: Integers
    bound: float

    @property
    def gap(self) -> float:
        """Proven relative distance to the best plan there can be."""
        return relative_gap(self.integers.usd_per_gbit, self.bound)


def relative_gap(value: float, bound: float) -> float:
    return max(0.0, (value - bound) / value) if value > 0 else 0.0


#: Solves one problem on few regions: integers and the bound for those regions, or None.
Attempt = Callable[[PlanProblem], Found | None]


def cheapest(problem: PlanProblem, *, exactly: bool, proof_s: float) -> Found | None:
    """The cheapest plan per Gbit at the goal (`exactly`, 4a) or at any rate from it up.

    The relaxed price per Gbit never falls as the rate rises, so the relaxation at the goal
    bounds every rate. None when no plan reaches the goal.

    Args:
        proof_s: most seconds for each attempt to close the gap; 0 reports it as it is.
    """
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    least = least_instances(at_goal) if exactly else None
    relaxed = relax(at_goal, cost_per_second(at_goal), instances_at_least=least)
    if relaxed is None:
        return None
    bound = max(relaxed.objective, 0.0) / problem.goal_gbps
    target = at_goal if exactly else problem

    def attempt(keep: Mask) -> Found | None:
        small = target.with_regions(keep)
        return _at_goal(small, bound) if exactly else _from_goal(small, bound)

    keep = most_promising(problem, relaxed)
    found = attempt(keep)
    if found is None and not keep.all():
        keep = keep | _regions_of_largest(problem)
        found = attempt(keep)
    if found is None:
        return None
    best = found
    for _ in range(PROOF_ROUNDS):
        if keep.all():
            bound = max(bound, best.bound)
            break
        price = best.integers.usd_per_gbit
        if relative_gap(price, bound) <= OPTIMAL_GAP or proof_s <= 0:
            break
        claim = price * (1 - OPTIMAL_GAP)
        proof = prove(target, claim, keep, time_limit_s=proof_s)
        if proof is None or not (proof.holds or proof.missing.any()):
            break
        if proof.holds:
            bound = claim
            break
        keep = keep | proof.missing
        wider = attempt(keep)
        if wider is not None and wider.integers.usd_per_gbit < price:
            best = wider
    tidy = fewest_relays(best.integers, free_rate=not exactly)
    return Found(tidy, min(bound, tidy.usd_per_gbit))


def fastest(problem: PlanProblem, usd_per_gbit: float) -> Found | None:
    """The most throughput at no more than `usd_per_gbit`, then the cheapest such plan.

    One integer program: cost <= price * G is linear when G is a variable. None when no plan
    is that cheap. The bound in the answer is on the throughput, Gbit/s.
    """
    free = problem.with_goal(0.0, problem.most_gbps)
    relaxed = relax(free, _shortest_largest(free), extra=[cost_ceiling(free, usd_per_gbit)])
    if relaxed is None or relaxed.throughput_gbps <= TIE:
        return None
    small = free.with_regions(most_promising(free, relaxed))
    ceiling = cost_ceiling(small, usd_per_gbit)
    most = solve_integers(small, _shortest_largest(small), extra=[ceiling, *policy_rows(small)])
    if most is None or most.throughput_gbps <= TIE:
        return None
    rate = most.throughput_gbps * (1 - TIE)
    cheaper = _at_goal(small.with_goal(rate, rate), usd_per_gbit)
    best = cheaper.integers if cheaper is not None else most
    return Found(fewest_relays(best, free_rate=False), relaxed.throughput_gbps)


def largest_throughput(problem: PlanProblem) -> tuple[Integers, Relaxation] | None:
    """The most throughput of any plan, whatever it costs; None without a way through.

    Many plans reach the same rate; a small weight on flow prefers short paths.
    """
    free = problem.with_goal(0.0, problem.most_gbps)
    relaxed = relax(free, _shortest_largest(free))
    if relaxed is None or relaxed.throughput_gbps <= TIE:
        return None
    small = free.with_regions(most_promising(free, relaxed))
    best = solve_integers(
        small,
        _shortest_largest(small),
        extra=policy_rows(small),
        relative_gap=OPTIMAL_GAP,
    )
    return None if best is None else (best, relaxed)


def fewest_relays(best: Integers, *, free_rate: bool) -> Integers:
    """The same price with the fewest relays, then the fewest instances."""
    problem = best.problem
    relays = int((best.instances[problem.relays] > 0).sum())
    if relays == 0 and not free_rate:
        return best
    columns = columns_of(problem)
    weight = np.zeros(columns.count)
    weight[columns.instances] = 1.0
    weight[columns.relaying] = RELAY_WEIGHT * problem.relays
    ceiling = cost_ceiling(problem, best.usd_per_gbit * (1 + TIE))
    tidy = solve_integers(
        problem,
        weight,
        extra=[ceiling, relay_switch(problem), relay_limit(problem, relays)],
    )
    return best if tidy is None else tidy


def _at_goal(problem: PlanProblem, bound: float) -> Found | None:
    """The cheapest integers at the goal."""
    unit = _unit(problem, bound)
    best = solve_integers(
        problem,
        cost_per_second(problem) * unit,
        extra=policy_rows(problem),
    )
    if best is None:
        return None
    return Found(best, best.bound / unit / problem.goal_gbps)


def _from_goal(problem: PlanProblem, bound: float) -> Found | None:
    """The cheapest integers per Gbit at any rate from the goal up (Dinkelbach 1967).

    Minimises cost - price * G; the minimum is negative as long as some plan is cheaper than
    the price. Starting from the bound, the first answer is often already as good as it.
    """
    unit = _unit(problem, bound)
    best: Found | None = None
    price = bound
    for _ in range(RATIO_STEPS):
        answer = solve_integers(
            problem, margin_of(problem, price) * unit, extra=policy_rows(problem)
        )
        if answer is None:
            return best
        proven = price + min(answer.bound / unit, 0.0) / problem.goal_gbps
        if best is not None and answer.usd_per_gbit >= best.integers.usd_per_gbit:
            return Found(best.integers, proven)
        best = Found(answer, proven)
        if best.gap <= TIE:
            return best
        price = answer.usd_per_gbit
    return best


def _unit(problem: PlanProblem, usd_per_gbit: float) -> float:
    """Scales costs to about 1, so that the solver's absolute tolerances are relative ones."""
    scale = usd_per_gbit * problem.goal_gbps
    return 1.0 / scale if scale > 0 else 1.0


def _shortest_largest(problem: PlanProblem) -> Floats:
    columns = columns_of(problem)
    cost = np.zeros(columns.count)
    cost[columns.flow] = HOP_WEIGHT
    cost[columns.throughput] = -1.0
    return cost


def _regions_of_largest(problem: PlanProblem) -> Mask:
    """(V,) regions of a plan with the most throughput: there the goal is feasible, if at all."""
    largest = largest_throughput(problem)
    if largest is None:
        return np.zeros(problem.region_count, dtype=bool)
    small, used = largest[0].problem, largest[0].used_regions
    tags = {tag for tag, is_used in zip(small.tags, used, strict=True) if is_used}
    return np.array([tag in tags for tag in problem.tags])
