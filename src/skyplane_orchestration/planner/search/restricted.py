"""The integer model on the regions of a restricted problem, and the bound on those regions.

The model with M real takes milliseconds and shows the regions that matter. If rounding M up
breaks no limit, that is the solution. Otherwise the full model is solved on those regions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.grids.arrays import Floats
from skyplane_orchestration.planner.formulation import (
    RowBlock,
    columns_of,
    cost_ceiling,
    cost_per_second,
    policy_rows,
    relay_limit,
    relay_switch,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.solution import FLOW_TOLERANCE, Incumbent, IntegerSolution
from skyplane_orchestration.planner.solve import HOP_WEIGHT, solve_integers

#: Share of the objective that breaking a tie in favour of one relay less may cost.
TIE_WEIGHT: Final = 1e-6
#: The same with M real, where the bound counts: too small to loosen it.
_ROUGH_TIE: Final = 1e-7
#: Relative gaps for the solver: for a final solution, and for an intermediate one.
FINAL_GAP, ROUGH_GAP = 1e-6, 3e-5
#: Costs are scaled to this, far above the solver's absolute tolerances.
SCALE: Final = 1000.0
#: Slack that a solution leaves below a ceiling: twice the solver's tolerance.
CEILING_SLACK_GBPS: Final = 2e-6
#: Up to this many edges the full model is solved directly.
SMALL_PROBLEM_EDGES: Final = 31
#: Time limit of the first attempt; its solution is accepted if it is within ACCEPTED_GAP.
FIRST_LIMIT_S: Final = 0.15
ACCEPTED_GAP: Final = 0.001
#: Time limit of the last attempt.
LAST_LIMIT_S: Final = 20.0
#: Dinkelbach's method roughly squares its error at each step.
DINKELBACH_STEPS: Final = 8

#: Share of one connection that counts as rounding.
_ROUNDING: Final = 1e-6

#: Solves a problem for a cost vector.
Solve = Callable[[PlanProblem, Floats], IntegerSolution | None]


def cheapest_restricted(problem: PlanProblem, bound: float) -> Incumbent | None:
    """The least cost per Gbit on all regions of the problem; None when infeasible.

    The bound is for these regions. Raises SolverFailed after LAST_LIMIT_S.

    Args:
        bound: lower bound in USD per Gbit, from the relaxation.
    """
    if problem.edge_count <= SMALL_PROBLEM_EDGES:
        return _dinkelbach(problem, bound, solve_full)
    rough = _dinkelbach(problem, bound, solve_real_connections)
    if rough is None:
        return None
    rounded = round_connections_up(rough.solution)
    if rounded is not None:
        return Incumbent(rounded, rough.bound)
    price, scale = rough.solution.usd_per_gbit, cost_scale(problem, rough.solution.usd_per_gbit)
    used = problem.with_regions(rough.solution.used_regions | ~problem.relays)
    best = solve_full(used, cost_margin(used, price, scale) + _ties(used, TIE_WEIGHT), ROUGH_GAP)
    if best is None:
        cost = cost_margin(problem, price, scale) + _ties(problem, TIE_WEIGHT)
        best = solve_full(problem, cost)
    return None if best is None else Incumbent(best, rough.bound)


def fastest_restricted(problem: PlanProblem, usd_per_gbit: float | None) -> IntegerSolution | None:
    """The most throughput on all regions of the problem, under a ceiling if there is one.

    None when infeasible. Its `bound`, negated, bounds Gbit/s on these regions.
    """
    if problem.edge_count <= SMALL_PROBLEM_EDGES:
        rows = [*_ceiling_rows(problem, usd_per_gbit), *_relay_rows(problem)]
        return _solve_in_time(problem, throughput_objective(problem), rows)
    ceiling = _ceiling_rows(problem, usd_per_gbit)
    rough = solve_real_connections(problem, throughput_objective(problem), extra=ceiling)
    if rough is None:
        return None
    rounded = round_connections_up(rough)
    if rounded is not None:
        return rounded
    used = problem.with_regions(rough.used_regions | ~problem.relays)
    rows = [*_ceiling_rows(used, usd_per_gbit), *_relay_rows(used)]
    return _solve_in_time(used, throughput_objective(used), rows, ROUGH_GAP)


def solve_full(
    problem: PlanProblem, cost: Floats, gap: float = FINAL_GAP
) -> IntegerSolution | None:
    """The full model of the paper: N and M integer."""
    return _solve_in_time(problem, cost, _relay_rows(problem), gap)


def solve_real_connections(
    problem: PlanProblem,
    cost: Floats,
    *,
    extra: Sequence[RowBlock] = (),
    time_limit_s: float = LAST_LIMIT_S,
) -> IntegerSolution | None:
    """N integer, M real: a bound, and the regions that matter."""
    return solve_integers(
        problem,
        cost,
        extra=[*extra, *policy_rows(problem)],
        integer_edges=np.zeros(problem.edge_count, dtype=bool),
        relative_gap=ROUGH_GAP,
        time_limit_s=time_limit_s,
    )


def cost_margin(problem: PlanProblem, usd_per_gbit: float, scale: float) -> Floats:
    """The objective scale * (cost - price * G) + SCALE: below SCALE for a cheaper plan."""
    columns = columns_of(problem)
    margin = cost_per_second(problem) * scale
    margin[columns.throughput] = -usd_per_gbit * scale
    margin[columns.constant] = SCALE
    return margin


def price_bound(solution: IntegerSolution, ties: float, usd_per_gbit: float, scale: float) -> float:
    """The lower bound in USD per Gbit that the minimum of `cost_margin` proves.

    cost - price * G >= least, so cost / G >= price + least / G. That is smallest at the goal for a
    negative `least`, and at the largest rate for a positive one.
    """
    least = (solution.bound - SCALE - ties) / scale
    problem = solution.problem
    return usd_per_gbit + least / (problem.goal_gbps if least < 0 else problem.most_gbps)


def cost_scale(problem: PlanProblem, usd_per_gbit: float) -> float:
    """The factor for USD per second that makes the cost at the goal equal SCALE."""
    cost = usd_per_gbit * problem.goal_gbps
    return SCALE / cost if cost > 0 else SCALE


def throughput_objective(problem: PlanProblem, hop_weight: float = HOP_WEIGHT) -> Floats:
    """The objective of the most throughput; a small weight on flow prefers short paths."""
    columns = columns_of(problem)
    cost = np.zeros(columns.count)
    cost[columns.flow] = hop_weight
    cost[columns.throughput] = -1.0
    return cost


def _dinkelbach(problem: PlanProblem, bound: float, solve: Solve) -> Incumbent | None:
    """The least cost / G from the goal up, by Dinkelbach's method (1967).

    The minimum of cost - price * G is negative while some plan is cheaper than the price. The
    first price is the bound, so the first solution is often optimal; it is where G is fixed.
    """
    scale = cost_scale(problem, bound)
    weight = TIE_WEIGHT if solve is solve_full else _ROUGH_TIE
    tolerance = TIE_WEIGHT if solve is solve_full else ROUGH_GAP
    ties, max_ties = _ties(problem, weight), _max_ties(problem, weight)
    best: Incumbent | None = None
    price = bound
    for _ in range(1 if problem.goal_gbps == problem.most_gbps else DINKELBACH_STEPS):
        found = solve(problem, cost_margin(problem, price, scale) + ties)
        if found is None:
            return best
        proven = max(price_bound(found, max_ties, price, scale), bound)
        if best is not None and found.usd_per_gbit >= best.solution.usd_per_gbit * (1 - tolerance):
            cheaper = min(found, best.solution, key=lambda one: one.usd_per_gbit)
            return Incumbent(cheaper, max(proven, best.bound))
        best = Incumbent(found, proven)
        if best.gap <= tolerance:
            return best
        price = found.usd_per_gbit
    return best


def _solve_in_time(
    problem: PlanProblem, cost: Floats, rows: list[RowBlock], gap: float = FINAL_GAP
) -> IntegerSolution | None:
    """The full model: the first attempt if its gap is accepted, else one with more time."""
    try:
        found = solve_integers(
            problem, cost, extra=rows, relative_gap=gap, time_limit_s=FIRST_LIMIT_S
        )
    except SolverFailed:
        found = None
    else:
        if found is None or found.objective - found.bound <= ACCEPTED_GAP * abs(found.objective):
            return found
    return solve_integers(
        problem, cost, extra=rows, relative_gap=ACCEPTED_GAP / 2, time_limit_s=LAST_LIMIT_S
    )


def _ties(problem: PlanProblem, weight: float) -> Floats:
    """Small weights that break ties: `weight` per relay, a hundredth of it per region's instances.

    With M real there is no relay variable, so the instances of a relay carry its weight.
    """
    columns = columns_of(problem)
    ties = np.zeros(columns.count)
    relays = problem.relays.astype(np.float64)
    ties[columns.relaying] = SCALE * weight * relays
    share = 0.01 if weight == TIE_WEIGHT else relays[problem.option_region] + 0.01
    ties[columns.instances] = SCALE * weight * share / np.maximum(problem.quota, 1.0)
    return ties


def _max_ties(problem: PlanProblem, weight: float) -> float:
    """The largest sum of the weights of `_ties`."""
    return SCALE * weight * 1.01 * problem.region_count


def _ceiling_rows(problem: PlanProblem, usd_per_gbit: float | None) -> list[RowBlock]:
    if usd_per_gbit is None:
        return []
    return [cost_ceiling(problem, usd_per_gbit, CEILING_SLACK_GBPS)]


def _relay_rows(problem: PlanProblem) -> list[RowBlock]:
    """Rows that count relays, with the job's limit if it has one."""
    most = problem.region_count if problem.max_relays is None else problem.max_relays
    return [relay_switch(problem), relay_limit(problem, most)]


def round_connections_up(solution: IntegerSolution) -> IntegerSolution | None:
    """The solution (N integer, M real) with every M rounded up; None when that breaks a limit."""
    problem = solution.problem
    flows = np.where(solution.flow_gbps > FLOW_TOLERANCE, solution.flow_gbps, 0.0)
    whole = np.ceil(flows / problem.gbps_per_connection - _ROUNDING)
    limit = np.zeros(problem.region_count)
    np.add.at(limit, problem.option_region, solution.instances * problem.connection_limit)
    for ends in (problem.tail, problem.head):
        used = np.bincount(ends, weights=whole, minlength=problem.region_count)
        if (used > limit + _ROUNDING).any():
            return None
    return replace(solution, connections=whole)
