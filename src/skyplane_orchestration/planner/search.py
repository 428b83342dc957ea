"""The search: from a problem to integers that are as good as can be, and how good.

1. The relaxation over all regions (about 0.1 s on 135) gives a bound and a price per edge.
2. The integer model is solved on the regions that the relaxation uses and the few that
   would cost least to use (`bound.most_promising`): first with M real, which is quick and
   says which of them are needed, then as stated on those, then polished on all of them.
3. What is left between the two is closed by `bound.prove`: either no plan over any regions
   is cheaper, or the regions that a cheaper plan may need join and step 2 is repeated.

Ties are broken towards fewer relays, then fewer instances.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.planner.bound import (
    least_instances,
    margin_of,
    most_promising,
    prove,
)
from skyplane_orchestration.planner.formulation import (
    RowBlock,
    columns_of,
    cost_ceiling,
    cost_per_second,
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
#: How much of the objective a tie may give away for one relay less.
TIE = 1e-6
#: Relative gaps for the solver: where the answer is final, and where it is polished later.
EXACTLY, NEARLY = 1e-6, 3e-5
#: What costs are scaled to: far above the absolute tolerances of the solver.
SCALE = 1000.0
#: Up to this many edges the model as stated is solved at once.
FEW_EDGES = 31
#: Seconds after which the best integers so far will do, if they are NEAR their bound.
GOOD_TIME_S = 0.6
NEAR = 0.003
#: Seconds after which a search is given up.
PATIENCE_S = 20.0
#: Dinkelbach's method roughly squares its error at each step.
RATIO_STEPS = 8
#: Times that a proof may send the search back with more regions.
PROOF_ROUNDS = 3

#: Solves a problem for a cost vector.
Solve = Callable[[PlanProblem, Floats], Integers | None]


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


def cheapest(problem: PlanProblem, *, exactly: bool, proof_s: float) -> Found | None:
    """The cheapest plan per Gbit at the goal (`exactly`, 4a) or at any rate from it up.

    The relaxed price per Gbit never falls as the rate rises, so the relaxation at the goal
    bounds every rate. None when no plan reaches the goal.

    Args:
        proof_s: most seconds for each attempt to improve the plan or to prove that nothing is
            better; 0 takes what there is.
    """
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    least = least_instances(at_goal) if exactly else None
    relaxed = relax(at_goal, cost_per_second(at_goal), instances_at_least=least)
    if relaxed is None:
        return None
    bound = max(relaxed.objective, 0.0) / problem.goal_gbps
    target = at_goal if exactly else problem
    keep = most_promising(problem, relaxed)
    best = _cheapest_on(target.with_regions(keep), bound, proof_s)
    if best is None and not keep.all():
        keep = keep | _regions_of_largest(problem)
        best = _cheapest_on(target.with_regions(keep), bound, proof_s)
    if best is None:
        return None
    for _ in range(PROOF_ROUNDS):
        if keep.all():
            bound = max(bound, best.bound)
            break
        price = best.integers.usd_per_gbit
        if relative_gap(price, bound) <= OPTIMAL_GAP or proof_s <= 0:
            break
        claim = price * (1 - OPTIMAL_GAP / 2)
        proof = prove(target, relaxed, claim, keep, time_limit_s=proof_s)
        if proof is None or not (proof.holds or proof.missing.any()):
            break
        if proof.holds:
            bound = claim
            break
        keep = keep | proof.missing
        wider = _cheapest_on(target.with_regions(keep), bound, proof_s)
        if wider is not None and wider.integers.usd_per_gbit < price:
            best = wider
    return Found(best.integers, min(bound, best.integers.usd_per_gbit))


def largest_throughput(problem: PlanProblem) -> tuple[Integers, Relaxation] | None:
    """The most throughput of any plan, whatever it costs; None without a way through.

    Many plans reach the same rate; a small weight on flow prefers short paths.
    """
    free = problem.with_goal(0.0, problem.most_gbps)
    relaxed = relax(free, _shortest_largest(free))
    if relaxed is None or relaxed.throughput_gbps <= TIE:
        return None
    best = _fastest_on(free.with_regions(most_promising(free, relaxed)), None, 0.0)
    return None if best is None else (best, relaxed)


def fastest(problem: PlanProblem, usd_per_gbit: float, *, proof_s: float) -> Found | None:
    """The most throughput at no more than `usd_per_gbit`, then the cheapest such plan.

    One integer program: cost <= price * G is linear when G is a variable. None when no plan
    is that cheap. The bound in the answer is on the throughput, Gbit/s.
    """
    free = problem.with_goal(0.0, problem.most_gbps)
    relaxed = relax(free, _shortest_largest(free), extra=[cost_ceiling(free, usd_per_gbit)])
    if relaxed is None or relaxed.throughput_gbps <= TIE:
        return None
    small = free.with_regions(most_promising(free, relaxed))
    most = _fastest_on(small, usd_per_gbit, proof_s)
    if most is None or most.throughput_gbps <= TIE:
        return None
    rate = most.throughput_gbps * (1 - TIE)
    cheaper = cheapest(small.with_goal(rate, rate), exactly=True, proof_s=proof_s)
    if cheaper is not None and cheaper.integers.usd_per_gbit < most.usd_per_gbit:
        most = cheaper.integers
    return Found(most, relaxed.throughput_gbps)


# ---------------------------------------------------------------- on few regions


def _cheapest_on(problem: PlanProblem, bound: float, polish_s: float) -> Found | None:
    """The cheapest integers per Gbit on these regions, and the bound for these regions.

    Args:
        bound: USD per Gbit that no plan beats, from the relaxation.
        polish_s: most seconds for a look at what rounding M on fewer regions has missed.
    """
    if problem.goal_gbps == problem.most_gbps:
        found = _at_goal(problem, bound)
    else:
        found = _from_goal(problem, bound)
    if found is None or problem.edge_count <= FEW_EDGES or found.gap <= OPTIMAL_GAP:
        return found
    return _polished(problem, found, polish_s) if polish_s > 0 else found


def _at_goal(problem: PlanProblem, bound: float) -> Found | None:
    """The cheapest integers at the goal."""
    unit = _unit(problem, bound)

    def weigh(part: PlanProblem) -> Floats:
        cost: Floats = cost_per_second(part) * unit + _ties(part)
        return cost

    if problem.edge_count <= FEW_EDGES:
        best = least = _as_stated(problem, weigh(problem))
    else:
        least = _with_real_connections(problem, weigh(problem))
        if least is None:
            return None
        used = problem.with_regions(least.used_regions | ~problem.relays)
        best = _as_stated(used, weigh(used), NEARLY) or _as_stated(problem, weigh(problem))
    if best is None or least is None:
        return None
    proven = (least.bound - _most_ties(problem)) / unit / problem.goal_gbps
    return Found(best, max(proven, bound))


def _from_goal(problem: PlanProblem, bound: float) -> Found | None:
    """The cheapest integers per Gbit at any rate from the goal up."""
    if problem.edge_count <= FEW_EDGES:
        return _cheapest_ratio(problem, bound, _as_stated)
    rough = _cheapest_ratio(problem, bound, _with_real_connections)
    if rough is None:
        return None
    price, unit = rough.integers.usd_per_gbit, _unit(problem, rough.integers.usd_per_gbit)
    used = problem.with_regions(rough.integers.used_regions | ~problem.relays)
    best = _as_stated(used, _margin(used, price, unit) + _ties(used), NEARLY)
    if best is None:
        best = _as_stated(problem, _margin(problem, price, unit) + _ties(problem))
    return None if best is None else Found(best, rough.bound)


def _cheapest_ratio(problem: PlanProblem, bound: float, solve: Solve) -> Found | None:
    """Dinkelbach's method (1967): the least cost / G.

    Minimises cost - price * G; the minimum is negative as long as some plan is cheaper than
    the price. Starting from the bound, the first answer is often already as good as it.
    """
    unit = _unit(problem, bound)
    best: Found | None = None
    price = bound
    for _ in range(RATIO_STEPS):
        answer = solve(problem, _margin(problem, price, unit) + _ties(problem))
        if answer is None:
            return best
        least = min(answer.bound - SCALE - _most_ties(problem), 0.0)
        proven = max(price + least / unit / problem.goal_gbps, bound)
        if best is not None and answer.usd_per_gbit >= best.integers.usd_per_gbit * (1 - TIE):
            return Found(min(answer, best.integers, key=lambda i: i.usd_per_gbit), proven)
        best = Found(answer, proven)
        if best.gap <= TIE:
            return best
        price = answer.usd_per_gbit
    return best


def _as_stated(
    problem: PlanProblem, cost: Floats, relative_gap: float = EXACTLY
) -> Integers | None:
    """The model as the paper states it: N and M integer."""
    return _patiently(problem, cost, _rows(problem), relative_gap)


def _patiently(
    problem: PlanProblem, cost: Floats, rows: list[RowBlock], relative_gap: float
) -> Integers | None:
    """The model as stated: what good time gives if that is near its bound, else more time."""
    try:
        answer = solve_integers(
            problem, cost, extra=rows, relative_gap=relative_gap, time_limit_s=GOOD_TIME_S
        )
    except SolverFailed:
        answer = None
    else:
        if answer is None or answer.objective - answer.bound <= NEAR * abs(answer.objective):
            return answer
    return solve_integers(problem, cost, extra=rows, relative_gap=NEAR / 2, time_limit_s=PATIENCE_S)


def _with_real_connections(problem: PlanProblem, cost: Floats) -> Integers | None:
    """N integer, M real: a bound, quick to have, and the regions that are worth a look."""
    no_edge = np.zeros(problem.edge_count, dtype=bool)
    return solve_integers(problem, cost, extra=_rows(problem), counted=no_edge, relative_gap=NEARLY)


def _polished(problem: PlanProblem, found: Found, polish_s: float) -> Found:
    """A cheaper plan on these regions, if there is one and time allows; else the same."""
    claim = found.integers.usd_per_gbit * (1 - OPTIMAL_GAP / 2)
    unit = _unit(problem, claim)
    try:
        cheaper = solve_integers(
            problem,
            _margin(problem, claim, unit) + _ties(problem),
            extra=[cost_ceiling(problem, claim), *_rows(problem)],
            time_limit_s=polish_s,
        )
    except SolverFailed:
        return found
    if cheaper is None:
        return Found(found.integers, claim)
    least = min(cheaper.bound - SCALE - _most_ties(problem), 0.0)
    return Found(cheaper, max(found.bound, claim + least / unit / problem.goal_gbps))


def _fastest_on(
    problem: PlanProblem, usd_per_gbit: float | None, polish_s: float
) -> Integers | None:
    """The most throughput on these regions, under a ceiling if any: roughly, then polished."""

    def rows(part: PlanProblem) -> list[RowBlock]:
        ceiling = [] if usd_per_gbit is None else [cost_ceiling(part, usd_per_gbit)]
        return [*ceiling, *_rows(part)]

    if problem.edge_count <= FEW_EDGES:
        return _patiently(problem, _shortest_largest(problem), rows(problem), EXACTLY)
    no_edge = np.zeros(problem.edge_count, dtype=bool)
    rough = solve_integers(
        problem, _shortest_largest(problem), extra=rows(problem), counted=no_edge
    )
    if rough is None:
        return None
    used = problem.with_regions(rough.used_regions | ~problem.relays)
    best = _patiently(used, _shortest_largest(used), rows(used), NEARLY)
    if best is None:
        return None
    better = best.throughput_gbps * (1 + OPTIMAL_GAP / 2)
    if polish_s > 0 and better <= min(rough.throughput_gbps, problem.most_gbps):
        above = problem.with_goal(better, problem.most_gbps)
        try:
            polished = solve_integers(
                above, _shortest_largest(above), extra=rows(above), time_limit_s=polish_s
            )
        except SolverFailed:
            return best
        return polished or best
    return best


def _unit(problem: PlanProblem, usd_per_gbit: float) -> float:
    """What USD per second are multiplied by, so that the cost of the goal is SCALE."""
    cost = usd_per_gbit * problem.goal_gbps
    return SCALE / cost if cost > 0 else SCALE


def _margin(problem: PlanProblem, usd_per_gbit: float, unit: float) -> Floats:
    """Cost - price * G in units, plus SCALE: below SCALE for a plan that is cheaper."""
    margin = margin_of(problem, usd_per_gbit) * unit
    margin[columns_of(problem).constant] = SCALE
    return margin


def _ties(problem: PlanProblem) -> Floats:
    """Next to scaled costs: weights too small to matter, which break ties.

    A relay weighs TIE of the cost, an instance a hundredth of that.
    """
    columns = columns_of(problem)
    weight = np.zeros(columns.count)
    weight[columns.relaying] = SCALE * TIE * problem.relays
    weight[columns.instances] = SCALE * TIE / 100
    return weight


def _most_ties(problem: PlanProblem) -> float:
    """The largest value that the weights of `_ties` can add up to."""
    columns = columns_of(problem)
    weight = _ties(problem)
    return float(weight[columns.relaying].sum() + weight[columns.instances] @ problem.quota)


def _rows(problem: PlanProblem) -> list[RowBlock]:
    """What counting relays takes, and their limit where there is one."""
    most = problem.region_count if problem.max_relays is None else problem.max_relays
    return [relay_switch(problem), relay_limit(problem, most)]


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
