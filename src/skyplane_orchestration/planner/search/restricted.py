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
from skyplane_orchestration.planner.distance_to_bound import OPTIMAL_GAP
from skyplane_orchestration.planner.formulation import (
    RowBlock,
    columns_of,
    cost_per_second,
    policy_rows,
)
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.solution import FLOW_TOLERANCE, Incumbent, IntegerSolution
from skyplane_orchestration.planner.solve import HOP_WEIGHT, solve_integers

#: Rates within this share of each other are equal.
SAME_RATE: Final = 1e-6
#: Share of the objective that breaking a tie in favour of one relay less may cost: too small to
#: loosen the bound.
_TIE_WEIGHT: Final = 1e-7
#: Relative gap for the solver.
_GAP: Final = 3e-5
#: Costs are scaled to this, far above the solver's absolute tolerances.
SCALE: Final = 1000.0
#: Slack that a solution leaves below a ceiling: twice the solver's tolerance.
CEILING_SLACK_GBPS: Final = 2e-6
#: Nodes of the first attempt; its solution is accepted if it is within _ACCEPTED_GAP.
_FIRST_NODES: Final = 200
_ACCEPTED_GAP: Final = 0.001
#: Nodes of the last attempt, and of the model with M real.
_LAST_NODES: Final = 10_000
_ROUGH_NODES: Final = 1000
#: Dinkelbach's method roughly squares its error at each step.
DINKELBACH_STEPS: Final = 8

#: Share of one connection that counts as rounding.
_ROUNDING: Final = 1e-6

#: A cost vector, and rows beyond those of the model, of a problem.
CostOf = Callable[[PlanProblem], Floats]
RowsOf = Callable[[PlanProblem], Sequence[RowBlock]]


def cheapest_restricted(
    problem: PlanProblem, bound: float, *, is_whole: bool = False
) -> Incumbent | None:
    """The least cost per Gbit on all regions of the problem; None when infeasible.

    The bound is for these regions. Raises SolverFailed.

    Args:
        bound: lower bound in USD per Gbit, from the relaxation.
        is_whole: whether the problem has all regions of the question. Then the full model bounds
            the cost where the model with M real does not prove the optimum.
    """
    rough = _dinkelbach(problem, bound)
    if rough is None:
        return None
    price, scale = rough.solution.usd_per_gbit, cost_scale(problem, rough.solution.usd_per_gbit)

    def cost_of(part: PlanProblem) -> Floats:
        return cost_margin(part, price, scale) + _ties(part)

    best = _with_whole_connections(rough.solution, cost_of, policy_rows)
    if best is None:
        return None
    found = Incumbent(best, rough.bound, problem)
    if not is_whole or found.gap <= OPTIMAL_GAP:
        return found
    full = _solve_whole_connections(problem, cost_of(problem), policy_rows(problem))
    if full is None:
        return found
    proven = price_bound(full, _most_ties(problem), price, scale)
    cheaper = min(best, full, key=lambda one: one.usd_per_gbit)
    return Incumbent(cheaper, max(rough.bound, proven), problem)


def fastest_restricted(problem: PlanProblem, rows_of: RowsOf) -> IntegerSolution | None:
    """The most throughput on all regions of the problem under the given rows.

    None when infeasible. Its `bound`, negated, bounds Gbit/s on these regions.
    """
    rough = _solve_real_connections(problem, throughput_objective(problem), rows_of(problem))
    return rough and _with_whole_connections(rough, throughput_objective, rows_of)


def _with_whole_connections(
    rough: IntegerSolution, cost_of: CostOf, rows_of: RowsOf
) -> IntegerSolution | None:
    """A solution of the full model from one with M real, with its bound; None when infeasible."""
    rounded = round_connections_up(rough)
    if rounded is not None:
        return rounded
    problem = rough.problem
    for part in (problem.with_regions(rough.used_regions | ~problem.relays), problem):
        found = _solve_whole_connections(part, cost_of(part), rows_of(part))
        if found is not None:
            return replace(found, bound=rough.bound)
    return None


def _solve_real_connections(
    problem: PlanProblem, cost: Floats, rows: Sequence[RowBlock]
) -> IntegerSolution | None:
    """N integer, M real: a bound, and the regions that matter."""
    return solve_integers(
        problem,
        cost,
        extra=rows,
        integer_edges=np.zeros(problem.edge_count, dtype=bool),
        relative_gap=_GAP,
        node_limit=_ROUGH_NODES,
    )


def cost_margin(problem: PlanProblem, usd_per_gbit: float, scale: float) -> Floats:
    """The objective scale * (cost + time - price * G) + SCALE: below SCALE for a cheaper plan."""
    columns = columns_of(problem)
    margin = cost_per_second(problem) * scale
    margin[columns.throughput] = -usd_per_gbit * scale
    margin[columns.constant] = SCALE + problem.time_usd_per_s * scale
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


def _dinkelbach(problem: PlanProblem, bound: float) -> Incumbent | None:
    """The least cost / G from the goal up with M real, by Dinkelbach's method (1967).

    The minimum of cost - price * G is negative while some plan is cheaper than the price. The
    first price is the bound, so the first solution is often optimal; it is where G is fixed.
    """
    scale = cost_scale(problem, bound)
    ties, max_ties = _ties(problem), _most_ties(problem)
    best: Incumbent | None = None
    price = bound
    for _ in range(1 if problem.goal_gbps == problem.most_gbps else DINKELBACH_STEPS):
        cost = cost_margin(problem, price, scale) + ties
        found = _solve_real_connections(problem, cost, policy_rows(problem))
        if found is None:
            return best
        proven = max(price_bound(found, max_ties, price, scale), bound)
        if best is not None and found.usd_per_gbit >= best.solution.usd_per_gbit * (1 - _GAP):
            cheaper = min(found, best.solution, key=lambda one: one.usd_per_gbit)
            return Incumbent(cheaper, max(proven, best.bound), problem)
        best = Incumbent(found, proven, problem)
        if best.gap <= _GAP:
            return best
        price = found.usd_per_gbit
    return best


def _solve_whole_connections(
    problem: PlanProblem, cost: Floats, rows: Sequence[RowBlock]
) -> IntegerSolution | None:
    """The full model: the first attempt if its gap is accepted, else one with more nodes."""
    try:
        found = solve_integers(
            problem, cost, extra=rows, relative_gap=_GAP, node_limit=_FIRST_NODES
        )
    except SolverFailed:
        found = None
    else:
        if found is None or found.objective - found.bound <= _ACCEPTED_GAP * abs(found.objective):
            return found
    return solve_integers(
        problem, cost, extra=rows, relative_gap=_ACCEPTED_GAP / 2, node_limit=_LAST_NODES
    )


def _ties(problem: PlanProblem) -> Floats:
    """Small weights that break ties: the most instances of a relay weigh `_TIE_WEIGHT`.

    Those of any region weigh a hundredth of it in addition.
    """
    ties = np.zeros(columns_of(problem).count)
    share = problem.relays[problem.option_region] + 0.01
    ties[columns_of(problem).instances] = SCALE * _TIE_WEIGHT * share / problem.quota
    return ties


def _most_ties(problem: PlanProblem) -> float:
    """The largest sum of the weights."""
    return SCALE * _TIE_WEIGHT * 1.01 * problem.region_count


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
