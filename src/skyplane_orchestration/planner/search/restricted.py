"""The integer model on few regions: its best integers, quickly, and what bounds them.

First with M real, which takes milliseconds and says which regions are needed; where rounding
M up breaks no limit that is the answer, else the model as stated is solved on those regions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.planner.formulation import (
    RowBlock,
    columns_of,
    cost_ceiling,
    cost_per_second,
    policy_rows,
    relay_limit,
    relay_switch,
)
from skyplane_orchestration.planner.problem import Floats, PlanProblem
from skyplane_orchestration.planner.search.rounding import with_whole_connections
from skyplane_orchestration.planner.solution import Found, Integers
from skyplane_orchestration.planner.solve import HOP_WEIGHT, solve_integers

#: How much of the objective a tie may give away for one relay less.
TIE: Final = 1e-6
#: The same where only the regions are wanted: too small to loosen a bound.
_SLIGHT_TIE: Final = 1e-7
#: Relative gaps for the solver: where the answer is final, and where it is a step.
EXACTLY, NEARLY = 1e-6, 3e-5
#: What costs are scaled to: far above the absolute tolerances of the solver.
SCALE: Final = 1000.0
#: What a solution under a ceiling leaves of it: twice the solver's tolerance.
SPARE_GBPS: Final = 2e-6
#: Up to this many edges the model as stated is solved at once.
FEW_EDGES: Final = 31
#: Seconds after which the best integers so far will do, if they are NEAR their bound.
GOOD_TIME_S: Final = 0.15
NEAR: Final = 0.001
#: Seconds after which a search is given up.
PATIENCE_S: Final = 20.0
#: Dinkelbach's method roughly squares its error at each step.
RATIO_STEPS: Final = 8

#: Solves a problem for a cost vector.
Solve = Callable[[PlanProblem, Floats], Integers | None]


def cheapest_on(problem: PlanProblem, bound: float) -> Found | None:
    """The cheapest integers per Gbit on all regions of the problem; None if infeasible.

    The bound in the answer is for these regions. Raises SolverFailed after PATIENCE_S.

    Args:
        bound: USD per Gbit that no plan beats, from the relaxation.
    """
    is_at_goal = problem.goal_gbps == problem.most_gbps
    search = _at_goal if is_at_goal else _from_goal_up
    if problem.edge_count <= FEW_EDGES:
        return search(problem, bound, as_stated)
    rough = search(problem, bound, with_real_connections)
    if rough is None:
        return None
    rounded = with_whole_connections(rough.integers)
    if rounded is not None:
        return Found(rounded, rough.bound)
    price, unit = rough.integers.usd_per_gbit, unit_of(problem, rough.integers.usd_per_gbit)
    used = problem.with_regions(rough.integers.used_regions | ~problem.relays)
    best = as_stated(used, margin(used, price, unit) + _ties(used, TIE), NEARLY)
    if best is None:
        best = as_stated(problem, margin(problem, price, unit) + _ties(problem, TIE))
    return None if best is None else Found(best, rough.bound)


def fastest_on(problem: PlanProblem, usd_per_gbit: float | None) -> Integers | None:
    """The most throughput on all regions of the problem, under a ceiling if there is one.

    None if infeasible. Its `bound`, negated, is a bound on Gbit/s for these regions.
    """
    rows = [] if usd_per_gbit is None else [cost_ceiling(problem, usd_per_gbit, SPARE_GBPS)]
    if problem.edge_count <= FEW_EDGES:
        return _patiently(problem, shortest_largest(problem), [*rows, *_relay_rows(problem)])
    rough = solve_integers(
        problem,
        shortest_largest(problem),
        extra=[*rows, *policy_rows(problem)],
        counted=_no_edge(problem),
        relative_gap=NEARLY,
    )
    if rough is None:
        return None
    rounded = with_whole_connections(rough)
    if rounded is not None:
        return rounded
    used = problem.with_regions(rough.used_regions | ~problem.relays)
    rows = [] if usd_per_gbit is None else [cost_ceiling(used, usd_per_gbit, SPARE_GBPS)]
    return _patiently(used, shortest_largest(used), [*rows, *_relay_rows(used)], NEARLY)


def cheaper_at_its_rate(most: Integers) -> Integers:
    """Cheaper integers on the same regions at the same rate, if good time finds any."""
    rate = most.throughput_gbps * (1 - TIE)
    problem = most.problem.with_goal(rate, rate)
    price, unit = most.usd_per_gbit, unit_of(problem, most.usd_per_gbit)
    try:
        cheaper = solve_integers(
            problem,
            margin(problem, price, unit) + _ties(problem, TIE),
            extra=_relay_rows(problem),
            relative_gap=NEARLY,
            time_limit_s=GOOD_TIME_S,
        )
    except SolverFailed:
        return most
    if cheaper is None or cheaper.usd_per_gbit >= most.usd_per_gbit:
        return most
    return cheaper


def as_stated(problem: PlanProblem, cost: Floats, gap: float = EXACTLY) -> Integers | None:
    """The model as the paper states it: N and M integer."""
    return _patiently(problem, cost, _relay_rows(problem), gap)


def with_real_connections(
    problem: PlanProblem, cost: Floats, *, time_limit_s: float = PATIENCE_S
) -> Integers | None:
    """N integer, M real: a bound, quick to have, and the regions that are worth a look."""
    return solve_integers(
        problem,
        cost,
        extra=policy_rows(problem),
        counted=_no_edge(problem),
        relative_gap=NEARLY,
        time_limit_s=time_limit_s,
    )


def margin(problem: PlanProblem, usd_per_gbit: float, unit: float) -> Floats:
    """Cost - price * G in units, plus SCALE: below SCALE for a plan that is cheaper."""
    columns = columns_of(problem)
    found = cost_per_second(problem) * unit
    found[columns.throughput] = -usd_per_gbit * unit
    found[columns.constant] = SCALE
    return found


def bound_of(answer: Integers, ties: float, usd_per_gbit: float, unit: float) -> float:
    """USD per Gbit that no plan beats when `margin` at this price was minimised.

    cost - price * G >= least, so cost / G >= price + least / G, which is least at the goal
    where `least` is negative and at the largest rate where it is positive.
    """
    least = (answer.bound - SCALE - ties) / unit
    problem = answer.problem
    return usd_per_gbit + least / (problem.goal_gbps if least < 0 else problem.most_gbps)


def unit_of(problem: PlanProblem, usd_per_gbit: float) -> float:
    """What USD per second are multiplied by, so that the cost of the goal is SCALE."""
    cost = usd_per_gbit * problem.goal_gbps
    return SCALE / cost if cost > 0 else SCALE


def shortest_largest(problem: PlanProblem, hop_weight: float = HOP_WEIGHT) -> Floats:
    """The objective of the most throughput; a small weight on flow prefers short paths."""
    columns = columns_of(problem)
    cost = np.zeros(columns.count)
    cost[columns.flow] = hop_weight
    cost[columns.throughput] = -1.0
    return cost


# ---------------------------------------------------------------- at a goal, and from it up


def _at_goal(problem: PlanProblem, bound: float, solve: Solve) -> Found | None:
    unit = unit_of(problem, bound)
    weight = TIE if solve is as_stated else _SLIGHT_TIE
    ties = _ties(problem, weight)
    best = solve(problem, margin(problem, bound, unit) + ties)
    if best is None:
        return None
    return Found(best, max(bound_of(best, _most_ties(problem, weight), bound, unit), bound))


def _from_goal_up(problem: PlanProblem, bound: float, solve: Solve) -> Found | None:
    """Dinkelbach's method (1967): the least cost / G.

    Minimises cost - price * G; the minimum is negative as long as some plan is cheaper than
    the price. Starting from the bound, the first answer is often already as good as it.
    """
    unit = unit_of(problem, bound)
    weight = TIE if solve is as_stated else _SLIGHT_TIE
    enough = TIE if solve is as_stated else NEARLY
    ties, most_ties = _ties(problem, weight), _most_ties(problem, weight)
    best: Found | None = None
    price = bound
    for _ in range(RATIO_STEPS):
        answer = solve(problem, margin(problem, price, unit) + ties)
        if answer is None:
            return best
        proven = max(bound_of(answer, most_ties, price, unit), bound)
        if best is not None and answer.usd_per_gbit >= best.integers.usd_per_gbit * (1 - enough):
            better = min(answer, best.integers, key=lambda one: one.usd_per_gbit)
            return Found(better, max(proven, best.bound))
        best = Found(answer, proven)
        if best.gap <= enough:
            return best
        price = answer.usd_per_gbit
    return best


def _patiently(
    problem: PlanProblem, cost: Floats, rows: list[RowBlock], gap: float = EXACTLY
) -> Integers | None:
    """The model as stated: what good time gives if that is near its bound, else more time."""
    try:
        answer = solve_integers(
            problem, cost, extra=rows, relative_gap=gap, time_limit_s=GOOD_TIME_S
        )
    except SolverFailed:
        answer = None
    else:
        if answer is None or answer.objective - answer.bound <= NEAR * abs(answer.objective):
            return answer
    return solve_integers(problem, cost, extra=rows, relative_gap=NEAR / 2, time_limit_s=PATIENCE_S)


def _ties(problem: PlanProblem, weight: float) -> Floats:
    """Next to scaled costs: weights too small to matter, which break ties.

    A relay weighs `weight` of the cost, and all instances of a region a hundredth of that.
    Without the rows of `_relay_rows`, a relay weighs as much with all of its instances.
    """
    columns = columns_of(problem)
    found = np.zeros(columns.count)
    relays = problem.relays.astype(np.float64)
    found[columns.relaying] = SCALE * weight * relays
    share = 0.01 if weight == TIE else relays[problem.option_region] + 0.01
    found[columns.instances] = SCALE * weight * share / np.maximum(problem.quota, 1.0)
    return found


def _most_ties(problem: PlanProblem, weight: float) -> float:
    """The largest value that the weights of `_ties` can add up to."""
    return SCALE * weight * 1.01 * problem.region_count


def _relay_rows(problem: PlanProblem) -> list[RowBlock]:
    """What counting relays takes, and their limit where there is one."""
    most = problem.region_count if problem.max_relays is None else problem.max_relays
    return [relay_switch(problem), relay_limit(problem, most)]


def _no_edge(problem: PlanProblem) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.zeros(problem.edge_count, dtype=bool)
