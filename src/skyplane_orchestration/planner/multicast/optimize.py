"""From an objective to a `MulticastPlan`: one source, several destinations."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from skyplane_orchestration.errors import PlanInfeasible, SolverFailed
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    ANY_REGION,
    NO_LIMITS,
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
    objective_to_dict,
)
from skyplane_orchestration.model.multicast_plan import MulticastPlan, SeparateTransfers
from skyplane_orchestration.model.plan import SolverReport
from skyplane_orchestration.planner.baselines import direct
from skyplane_orchestration.planner.constraint_names import COST_CEILING, DEADLINE, THROUGHPUT_FLOOR
from skyplane_orchestration.planner.infeasibility import rounded_down
from skyplane_orchestration.planner.multicast.build_plan import Order, Shared, assembled, binding_of
from skyplane_orchestration.planner.multicast.check import multicast_violations
from skyplane_orchestration.planner.multicast.objectives import Question
from skyplane_orchestration.planner.multicast.problem import (
    MulticastProblem,
    build_multicast_problem,
    require_ends,
)
from skyplane_orchestration.planner.multicast.search import OPTIMAL_GAP
from skyplane_orchestration.planner.objectives import LEAST_GBPS
from skyplane_orchestration.planner.optimize import PROOF_S, plan, require_volume

__all__ = ["default_multicast_objective", "multicast_plan"]

logger = logging.getLogger(__name__)


def multicast_plan(
    grid: Grid,
    src: str,
    destinations: Sequence[str],
    objective: Objective,
    *,
    volume_gb: float | None = None,
    objects: int | None = None,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
    proof_s: float = PROOF_S,
) -> MulticastPlan:
    """The best plan found that brings every byte from `src` to all of `destinations`.

    Bytes are replicated on the way, so egress is paid once per edge that several
    destinations share. `MinimizeCost` is the cheapest at any rate of at least the floor: per
    GB (4a), or in all for the job when the volume is given; `exactly` is 4a at the floor
    itself. `Deadline` is the cheapest in all that is done in time. `MaximizeThroughput` is
    the fastest under a ceiling per GB (4a), or for the job. A GB is one of source data that
    has reached every destination. The bound in the report is proven over all distribution
    trees. Every plan is checked before it is returned.

    Args:
        destinations: 1 to 8 region tags.
        volume_gb: GB (1e9 bytes) of source data; needed for whatever counts USD or seconds.
        objects: number of objects, for the price of requests.
        limits: what may be used; each cloud has one type, the named one or `chosen_type`.
        policy: regions that may relay, and the most a job may cost.
        proof_s: a tenth of the seconds in which another round to improve the plan may begin;
            0 takes the first.

    Raises UnknownRegion, ConfigurationInvalid (bad destinations, no volume where one is
    needed), PlanInfeasible (what binds, and what would do), SolverFailed.
    """
    started = time.perf_counter()
    order = Order(grid, src, tuple(destinations), volume_gb, objects, limits)
    require_volume(objective, policy, volume_gb)
    problem = build_multicast_problem(
        grid, src, order.destinations, goal_gbps=LEAST_GBPS, limits=limits, policy=policy
    )
    question = Question(order, problem, proof_s)
    if isinstance(objective, MaximizeThroughput):
        answer = question.fastest(objective)
        gap = max(0.0, answer.bound / answer.value - 1.0)
    else:
        answer = question.cheapest(objective)
        gap = max(0.0, 1.0 - answer.bound / answer.value) if answer.value > 0 else 0.0
    shared = answer.shared
    question.check_policy(shared, policy)
    status = "optimal" if gap <= OPTIMAL_GAP else "feasible"
    report = SolverReport(status, gap, answer.bound, time.perf_counter() - started)
    made = assembled(
        order,
        problem,
        shared,
        objective=objective_to_dict(objective),
        binding=_binding(objective, problem, question.floor_gbps(objective), shared),
        solver=report,
        separate=_separately(order, problem, shared, policy, proof_s),
    )
    broken = multicast_violations(made, grid, limits)
    if broken:
        raise SolverFailed(f"the plan does not hold: {'; '.join(broken)}")
    made = replace(made, solver=replace(report, solve_s=time.perf_counter() - started))
    _log(made)
    return made


def _log(made: MulticastPlan) -> None:
    logger.info(
        "planned %s -> %s: %.3f Gbit/s, %.5f USD per GB, %d trees, gap %.2g, %.3f s",
        made.src,
        ", ".join(made.destinations),
        made.throughput_gbps,
        made.cost.usd_per_gb,
        len(made.trees),
        made.solver.gap,
        made.solver.solve_s,
    )


def default_multicast_objective(
    grid: Grid, src: str, destinations: Sequence[str], limits: Limits = NO_LIMITS
) -> MinimizeCost:
    """At least the rate of the slowest direct path, with one instance at each end.

    Raises UnknownRegion, ConfigurationInvalid for bad destinations, and PlanInfeasible where
    there is no such path.
    """
    require_ends(grid, src, destinations)
    rates = (direct(grid, src, tag, limits=limits).throughput_gbps for tag in destinations)
    return MinimizeCost(min(rates))


def _binding(
    objective: Objective, problem: MulticastProblem, floor_gbps: float, shared: Shared
) -> tuple[str, ...]:
    names = binding_of(problem, shared)
    if isinstance(objective, MaximizeThroughput):
        return names or (COST_CEILING,)
    if shared.overlay.throughput_gbps <= floor_gbps * (1 + OPTIMAL_GAP):
        return (DEADLINE if isinstance(objective, Deadline) else THROUGHPUT_FLOOR, *names)
    return names


def _separately(
    order: Order, problem: MulticastProblem, shared: Shared, policy: Policy, proof_s: float
) -> SeparateTransfers:
    """What one plan per destination costs at the same rate, with the same instance types."""
    rate = rounded_down(shared.overlay.throughput_gbps)
    types = {kind.cloud: kind.name for kind in problem.types}
    limits = replace(order.limits, instance_types=types)
    alone = replace(policy, max_job_usd=None)
    prices: dict[str, float | None] = {}
    needed: Counter[str] = Counter()
    for tag in order.destinations:
        floor = MinimizeCost(rate, exactly=True)
        try:
            one = plan(
                order.grid, order.src, tag, floor, limits=limits, policy=alone, proof_s=proof_s
            )
        except PlanInfeasible:
            prices[tag] = None
        else:
            prices[tag] = one.cost.usd_per_gb
            needed.update({region: group.count for region, group in one.instances.items()})
    known = [price for price in prices.values() if price is not None]
    if len(known) < len(prices):
        return SeparateTransfers(prices, None, None, fits_quotas=False)
    quota = dict(zip(problem.tags, problem.quota, strict=True))
    fits = all(count <= quota[region] for region, count in needed.items())
    total = sum(known)
    return SeparateTransfers(prices, total, total - shared.usd_per_gb(order), fits_quotas=fits)
