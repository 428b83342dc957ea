"""The search over distribution trees: from a problem to integers, and how good they are.

1. The relaxation over all trees gives a proven bound, and the trees that are worth having.
2. The model as stated, N and M integer, is solved over those.
3. With the instances of that answer fixed, the relaxation finds the trees that suit them,
   and step 2 is repeated while that helps.

With few regions every tree is there, and the solver's own bound is the proof; else the
bound is the relaxation's, and what is left between the two is reported as the gap.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

import numpy as np

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.planner.multicast.integer_program import Integers, solve_integers
from skyplane_orchestration.planner.multicast.problem import MulticastProblem
from skyplane_orchestration.planner.multicast.relaxation import (
    SCALE,
    Aim,
    Pool,
    Relaxed,
    priced_trees,
    relax,
)
from skyplane_orchestration.planner.multicast.steiner_trees import Tree, all_trees, cheapest_trees
from skyplane_orchestration.planner.problem import Floats, Ints
from skyplane_orchestration.planner.solution import FLOW_TOLERANCE

#: A plan whose price is proven within this of the bound counts as optimal.
OPTIMAL_GAP = 1e-4
#: Trees that the integer program may choose from, as the relaxation finds them worth most.
MOST_TREES = 100
#: Seconds that an integer program may take where the best so far will do, and where not.
GOOD_TIME_S, PATIENCE_S = 1.0, 8.0
#: Relative gap at which the solver may stop: all trees there, or the chosen ones.
EXACTLY, NEARLY = 1e-6, 1e-4
#: Times that the trees may be made to suit the instances, and what makes a better answer.
ROUNDS, BETTER = 4, 1e-5
#: Regions among which all trees may join a round.
A_HANDFUL = 5
#: Trees of each kind that go through few regions.
FRUGAL_TREES = 12
#: A gap at which another round is not worth its second or two.
GOOD = 3e-4
#: A new round begins until so many times the seconds for a proof have passed.
SUITED = 10.0
#: Dinkelbach's method roughly squares its error at each step.
RATIO_STEPS = 8
TIE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Integers, and a proven bound: USD per Gbit from below, or Gbit/s from above."""

    integers: Integers
    bound: float


def cheapest(problem: MulticastProblem, *, exactly: bool, proof_s: float) -> Found | None:
    """The cheapest plan per Gbit at the goal (`exactly`) or at any rate from it up.

    The relaxed price per Gbit never falls as the rate rises, so the relaxation at the goal
    bounds every rate. None when no plan reaches the goal.

    Args:
        proof_s: a tenth of the seconds in which another round to improve the plan may begin.

    Raises SolverFailed when HiGHS has no answer in time.
    """
    if problem.most_gbps < problem.goal_gbps:
        return None
    pool = Pool.of(problem)
    if not _reaches(problem, pool):
        return None
    unit = _unit(problem)
    goal = problem.goal_gbps
    aim = Aim(unit, 0.0, goal, goal, at_least=_least_instances(problem) if exactly else None)
    relaxed = relax(problem, pool, aim)
    if relaxed is None:
        return None
    bound = max(relaxed.bound, 0.0) / unit / goal
    target = problem.with_goal(goal, goal) if exactly else problem
    best = None
    with suppress(SolverFailed):
        best = _cheapest_over(target, pool, _best_trees(pool, relaxed), unit, bound)
    if best is None and not pool.is_complete:
        # What carries the most carries the goal, if anything that was found does.
        largest = largest_throughput(problem)
        if largest is None or largest.integers.throughput_gbps < goal:
            return None
        pool.add(list(largest.integers.trees))
        everything = np.arange(len(pool.trees))
        best = _cheapest_over(target, pool, everything, unit, bound, seconds=PATIENCE_S)
    if best is None:
        return None
    best = _suited(target, pool, relaxed, unit, best, bound, proof_s)
    proven = best.bound if pool.is_complete else bound
    return Found(best.integers, min(max(proven, bound), best.integers.usd_per_gbit))


def fastest(problem: MulticastProblem, usd_per_gbit: float) -> Found | None:
    """The most throughput at no more than `usd_per_gbit`, then the cheapest such plan.

    None when no plan is that cheap. The bound in the answer is on the throughput, Gbit/s.
    """
    found = largest_throughput(problem, usd_per_gbit)
    if found is None:
        return None
    most = found.integers
    rate = most.throughput_gbps * (1 - TIE)
    with suppress(SolverFailed):
        cheaper = cheapest(problem.with_goal(rate, rate), exactly=True, proof_s=0.0)
        if cheaper is not None and cheaper.integers.usd_per_gbit < most.usd_per_gbit:
            most = cheaper.integers
    return Found(most, max(found.bound_gbps, most.throughput_gbps))


@dataclass(frozen=True, slots=True, eq=False)
class Largest:
    """The most throughput in integers, the relaxation, and the proven bound in Gbit/s."""

    integers: Integers
    relaxed: Relaxed
    bound_gbps: float


def largest_throughput(
    problem: MulticastProblem, usd_per_gbit: float | None = None
) -> Largest | None:
    """The most throughput of any plan, under a ceiling if any; None when there is none."""
    if problem.most_gbps <= 0 or (usd_per_gbit is not None and usd_per_gbit <= 0):
        return None
    pool = Pool.of(problem)
    if not pool.trees:
        return None
    unit = SCALE / problem.most_gbps
    aim = Aim(0.0, unit, 0.0, problem.most_gbps, ceiling_usd_per_gbit=usd_per_gbit)
    relaxed = relax(problem, pool, aim)
    if relaxed is None or relaxed.throughput_gbps <= TIE:
        return None
    chosen = _best_trees(pool, relaxed)
    rough = None if pool.is_complete else _solved(problem, pool, aim, chosen, counted=False)
    integers = _as_stated(problem, pool, aim, chosen, rough)
    if integers is None or integers.throughput_gbps <= TIE:
        return None
    proven = max(relaxed.bound, integers.bound if pool.is_complete else -np.inf)
    return Largest(integers, relaxed, max(-proven / unit, integers.throughput_gbps))


# ---------------------------------------------------------------- steps


def _reaches(problem: MulticastProblem, pool: Pool) -> bool:
    """True when trees that reach the goal, N and M real, are in the pool now.

    Raises SolverFailed when neither that nor the contrary is known in time.
    """
    if not pool.trees:
        return False
    goal = problem.goal_gbps
    unit = SCALE / goal
    relaxed = relax(problem, pool, Aim(0.0, unit, 0.0, goal))
    if relaxed is not None and relaxed.throughput_gbps >= goal * (1 - TIE / 10):
        return True
    if relaxed is not None and -relaxed.bound / unit >= goal * (1 - TIE / 10):
        raise SolverFailed(f"no trees for {goal:g} Gbit/s were found in time; lower the goal")
    return False


def _least_instances(problem: MulticastProblem) -> Floats:
    """(V,) instances that any plan at the goal needs at the source and the destinations."""
    goal, least = problem.goal_gbps, np.zeros(problem.region_count)
    nearest = problem.connections_per_gbps[problem.src].min()
    per_instance = min(
        problem.egress_gbps[problem.src], problem.connection_limit[problem.src] / nearest
    )
    least[problem.src] = goal / per_instance
    for end in problem.destinations:
        nearest = problem.connections_per_gbps[:, end].min()
        per_instance = min(problem.ingress_gbps[end], problem.connection_limit[end] / nearest)
        least[end] = goal / per_instance
    return np.minimum(np.ceil(least - TIE), problem.quota)


def _unit(problem: MulticastProblem) -> float:
    """What USD per second are multiplied by, so that the cost of the goal is about SCALE."""
    per_gbps = problem.usd_per_gbit + (problem.usd_per_s / problem.egress_gbps)[:, None]
    cost = np.where(problem.usable, per_gbps, np.inf)
    least = cheapest_trees(cost, problem.src, [int(v) for v in problem.destinations]).least
    return SCALE / (least * problem.goal_gbps) if 0 < least < np.inf else SCALE


def _best_trees(pool: Pool, *relaxed: Relaxed) -> Ints:
    """The trees of the pool that some relaxation finds worth most; all where all are known."""
    if pool.is_complete:
        return np.arange(len(pool.trees))
    chosen: set[int] = set()
    for one in relaxed:
        # Many trees tie at no reduced cost: those that the relaxation uses come first.
        carries = np.where(one.rate_gbps > FLOW_TOLERANCE, -1.0, 0.0)
        order = np.argsort(one.reduced_cost + carries, kind="stable")
        chosen.update(order[: MOST_TREES // len(relaxed)].tolist())
    return np.array(sorted(chosen))


def _as_stated(
    problem: MulticastProblem, pool: Pool, aim: Aim, chosen: Ints, rough: Integers | None
) -> Integers | None:
    """N and M integer: over trees along the edges of a rough answer, else over all chosen."""
    if pool.is_complete:
        return _solved(problem, pool, aim, chosen, counted=True, gap=EXACTLY)
    if rough is None:
        return None
    carrying = [tree for tree, rate in zip(rough.trees, rough.rate_gbps, strict=True) if rate > TIE]
    edges = {edge for tree in carrying for edge in tree}
    regions = {region for edge in edges for region in edge}
    inside = {(tail, head) for tail in regions for head in regions}
    best: Integers | None = None
    for allowed in (edges, inside):
        near = [one for one in chosen.tolist() if allowed.issuperset(pool.trees[one])]
        with suppress(SolverFailed):
            answer = _solved(problem, pool, aim, np.array(near), counted=True) if near else None
            if answer is not None and (best is None or answer.objective < best.objective):
                best = answer
        # Whole connections may need edges that real ones do without.
        if best is not None and best.objective - rough.objective <= GOOD * SCALE:
            break
    return best or _solved(problem, pool, aim, chosen, counted=True, seconds=PATIENCE_S)


def _solved(
    problem: MulticastProblem,
    pool: Pool,
    aim: Aim,
    chosen: Ints,
    *,
    counted: bool,
    gap: float = NEARLY,
    seconds: float = GOOD_TIME_S,
) -> Integers | None:
    return solve_integers(
        problem, pool, aim, chosen, counted=counted, relative_gap=gap, time_limit_s=seconds
    )


def _cheapest_over(
    problem: MulticastProblem,
    pool: Pool,
    chosen: Ints,
    unit: float,
    bound: float,
    seconds: float = GOOD_TIME_S,
) -> Found | None:
    """The cheapest integers per Gbit over the chosen trees, and the bound over these.

    At any rate from the goal up by Dinkelbach's method (1967): minimise cost - price * G,
    which is negative as long as some plan is cheaper than the price. First with M real.
    """
    low, high = problem.goal_gbps, problem.most_gbps
    counted = pool.is_complete
    gap = EXACTLY if counted else NEARLY
    rough: Integers | None = None
    price, proven = bound, bound
    for _ in range(1 if low == high else RATIO_STEPS):
        aim = Aim(unit, 0.0 if low == high else unit * price, low, high)
        answer = _solved(problem, pool, aim, chosen, counted=counted, gap=gap, seconds=seconds)
        if answer is None:
            break
        proven = answer.bound / unit / low
        if low < high:
            proven = price + min(answer.bound, 0.0) / unit / low
        if rough is not None and answer.usd_per_gbit >= rough.usd_per_gbit * (1 - BETTER):
            rough = min(answer, rough, key=lambda one: one.usd_per_gbit)
            break
        rough = answer
        if answer.usd_per_gbit <= price * (1 + TIE):
            break
        price = answer.usd_per_gbit
    if counted or rough is None:
        return None if rough is None else Found(rough, proven)
    aim = Aim(unit, 0.0 if low == high else unit * rough.usd_per_gbit, low, high)
    best = _as_stated(problem, pool, aim, chosen, rough)
    return None if best is None else Found(best, proven)


def _frugal_trees(problem: MulticastProblem, pool: Pool, relaxed: Relaxed, unit: float) -> Ints:
    """Numbers of trees through few regions, which the relaxation has no reason to like.

    It pays for a part of an instance where a plan pays for a whole one. A tree enters each
    region once, so the price of one instance stands on the edges into it; the limits' prices
    count in full, by half and not at all, and relays cost more in one half of the tries.
    """
    one_each = unit * problem.usd_per_s / problem.goal_gbps
    typical = SCALE / problem.goal_gbps
    found: list[Tree] = []
    for share, penalty in product((0.0, 0.5, 1.0), (0.0, typical)):
        price = share * relaxed.price
        price[0] += one_each + np.where(problem.relays, penalty, 0.0)
        found.extend(priced_trees(problem, price, unit).trees(np.inf, FRUGAL_TREES))
    pool.add(found)
    return pool.numbers(found)


def _trees_among(problem: MulticastProblem, pool: Pool, integers: Integers) -> Ints:
    """Numbers of all trees among the regions of an answer, where these are a handful."""
    used = integers.instances > 0
    if used.sum() > A_HANDFUL:
        return np.zeros(0, dtype=np.int64)
    usable = problem.usable & used[:, None] & used[None, :]
    found = all_trees(usable, problem.src, [int(v) for v in problem.destinations])
    pool.add(found)
    return pool.numbers(found)


def _suited(
    problem: MulticastProblem,
    pool: Pool,
    relaxed: Relaxed,
    unit: float,
    best: Found,
    bound: float,
    proof_s: float,
) -> Found:
    """The same or better: trees made to suit the instances, until that helps no more."""
    low, high = problem.goal_gbps, problem.most_gbps
    until = time.perf_counter() + SUITED * proof_s
    frugal: Ints | None = None
    for _ in range(ROUNDS):
        price = best.integers.usd_per_gbit
        is_good = pool.is_complete or price <= bound * (1 + GOOD)
        if is_good or time.perf_counter() >= until:
            break
        frugal = _frugal_trees(problem, pool, relaxed, unit) if frugal is None else frugal
        fixed = problem.with_instances(best.integers.instances)
        aim = Aim(unit, unit * price, low, high, at_least=best.integers.instances)
        again = relax(fixed, pool, aim, patience_s=SUITED / 2 * proof_s)
        if again is None:
            break
        among = _trees_among(problem, pool, best.integers)
        chosen = np.union1d(_best_trees(pool, again, relaxed), np.union1d(frugal, among))
        try:
            better = _cheapest_over(problem, pool, chosen, unit, bound)
        except SolverFailed:
            break
        if better is None or better.integers.usd_per_gbit >= price * (1 - BETTER):
            break
        best = better
    return best
