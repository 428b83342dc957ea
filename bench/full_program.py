"""Plans against the full program: random questions on few regions, each solved to its optimum.

    python -m bench.full_program [--json] [--grid DIRECTORY] [--count N]

The program has every connection and instance as an integer, over all regions of the question. A
total in USD depends on the rate, so its optimum is found by halving the range of rates: the
overhead at the lower end of a part prices each plan in it at its cost or below.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bench.planner_grids import measured_grid
from bench.report import Case, finish
from skyplane_orchestration.errors import PlanInfeasible, SolverFailed
from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
)
from skyplane_orchestration.planner import build_problem, plan, violations
from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.formulation import (
    columns_of,
    cost_ceiling,
    cost_per_second,
    policy_rows,
)
from skyplane_orchestration.planner.least_total_cost import (
    candidate_from,
    is_within,
    provision_waits,
    within_wait,
)
from skyplane_orchestration.planner.objectives import least_gbps_after
from skyplane_orchestration.planner.problem import PlanProblem
from skyplane_orchestration.planner.search.restricted import throughput_objective
from skyplane_orchestration.planner.solution import IntegerSolution
from skyplane_orchestration.planner.solve import solve_integers
from skyplane_orchestration.planner.total_bounds import priced_at
from skyplane_orchestration.planner.value_of_time import ROOM
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit, usd_per_gbit_to_usd_per_gb

SEED: Final = 20221127
REGIONS: Final = 8
KINDS: Final = ("floor", "exact floor", "price", "total", "deadline", "time")
#: The most that a plan may lose to the full program, and the largest gap that it may state for a
#: total or a deadline.
MOST_LOSS, MOST_GAP = 0.0035, 0.01
#: What the inaccuracy of an optimum may be.
MOST_BEYOND: Final = 1e-4
#: Accuracy of the optima, relative, and the largest value of a cost vector.
_ACCURACY: Final = 2e-5
_SCALE: Final = 1000.0
_LIMIT_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Question:
    """One job and its objective."""

    kind: str
    request: PlanRequest
    objective: Objective
    policy: Policy

    def problem(self) -> PlanProblem:
        request = self.request
        ends, limits = (request.src, request.dst), request.limits
        return build_problem(request.grid, *ends, goal_gbps=1e-3, limits=limits, policy=self.policy)


@dataclass(frozen=True, slots=True)
class Answer:
    """A plan beside the optimum; negative losses are the inaccuracy of the optimum.

    Attributes:
        loss: by how much the plan is worse, as a share of the optimum; infinite when only one of
            them exists or the plan breaks its constraints; 0 when neither exists.
        gap: the gap that the plan states.
        beyond: by how much the optimum is better than the plan's bound, as a share.
    """

    question: Question
    loss: float
    gap: float
    beyond: float
    seconds: float


def questions(grid: Grid, count: int) -> Iterator[Question]:
    """`count` random questions, the kinds in turn."""
    chooser = random.Random(SEED)
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        src, dst, *others = chooser.sample(grid.tags, REGIONS)
        limits = Limits(
            instance_limit=chooser.choice([1, 2, 4]),
            max_relays=chooser.choice([None, None, 1, 2]),
        )
        volume = round(10 ** chooser.uniform(0.3, 3.5), 1)
        request = PlanRequest(grid, src, (dst,), volume, None, limits)
        policy = Policy(allow_regions=tuple(others))
        most = build_problem(grid, src, dst, goal_gbps=0.0, limits=limits, policy=policy).most_gbps
        share, more = chooser.uniform(0.1, 0.8), chooser.uniform(1.01, 1.8)
        hourly = 10 ** chooser.uniform(-1, 2)
        try:
            if kind == "time":
                objective: Objective = MinimizeCost(most * share / 4, False, hourly)
            else:
                objective = _objective(kind, request, policy, most * share, more)
        except PlanInfeasible:
            objective = MinimizeCost(most * share)
        yield Question(kind, request, objective, policy)


def _objective(
    kind: str, request: PlanRequest, policy: Policy, gbps: float, more: float
) -> Objective:
    """The objective of one kind at a rate, or at `more` times the cost of the cheapest plan."""
    if kind == "deadline":
        return Deadline(120.0 + request.volume_gbit / gbps)
    if kind in ("floor", "exact floor"):
        return MinimizeCost(gbps, exactly=kind == "exact floor")
    cheapest = plan(
        request.grid,
        request.src,
        request.dst,
        MinimizeCost(0.1),
        volume_gb=request.volume_gb,
        limits=request.limits,
        policy=policy,
    )
    if kind == "price":
        return MaximizeThroughput(max_usd_per_gb=cheapest.cost.usd_per_gb * more)
    return MaximizeThroughput(max_cost_usd=(cheapest.cost.total_usd or 0.0) * more)


# ---------------------------------------------------------------- the optimum


def optimum(question: Question) -> float | None:
    """The best value of the objective (see `objectives.objective_value`); None when infeasible."""
    request, objective, problem = question.request, question.objective, question.problem()
    if isinstance(objective, MaximizeThroughput):
        if objective.max_usd_per_gb is not None:
            price = usd_per_gb_to_usd_per_gbit(objective.max_usd_per_gb)
            found = _fastest(problem, price)
            return None if found is None else found.throughput_gbps
        values = [
            _fastest_for_total(request, within_wait(problem, wait_s), objective, wait_s)
            for wait_s in provision_waits(problem)
        ]
        return max(values) or None
    if isinstance(objective, MinimizeCost) and objective.exactly:
        goal = objective.floor_gbps
        least = _least_price(problem.with_goal(goal, goal))
        return None if least is None else usd_per_gbit_to_usd_per_gb(least[0].usd_per_gbit)
    best = math.inf
    for wait_s in provision_waits(problem):
        goal = least_gbps_after(objective, request, wait_s)
        if math.isfinite(goal):
            most = max(goal, problem.most_gbps)
            part = within_wait(problem.with_goal(goal, most), wait_s)
            part = replace(part, time_usd_per_s=_time_usd_per_s(objective))
            best = min(best, _least_total(request, part, wait_s, best))
    return best if math.isfinite(best) else None


def _time_usd_per_s(objective: Objective) -> float:
    return objective.time_usd_per_s if isinstance(objective, MinimizeCost) else 0.0


def _fastest(problem: PlanProblem, usd_per_gbit: float) -> IntegerSolution | None:
    if usd_per_gbit <= 0:
        return None
    rows = [cost_ceiling(problem, usd_per_gbit), *policy_rows(problem)]
    return solve_integers(
        problem,
        throughput_objective(problem, 0.0),
        extra=rows,
        relative_gap=_ACCURACY,
        time_limit_s=_LIMIT_S,
    )


def _least_price(problem: PlanProblem) -> tuple[IntegerSolution, float] | None:
    """The least cost per Gbit from the goal up, and its bound, by Dinkelbach's method (1967)."""
    columns = columns_of(problem)
    at_goal = problem.with_goal(problem.goal_gbps, problem.goal_gbps)
    price, best, part = 0.0, None, at_goal
    scale = _SCALE / (problem.goal_gbps * max(float(problem.usd_per_gbit.max()), 1e-3))
    while True:
        cost = cost_per_second(part) * scale
        cost[columns.throughput] = -price * scale
        cost[columns.constant] = _SCALE + part.time_usd_per_s * scale
        found = solve_integers(
            part, cost, extra=policy_rows(part), relative_gap=_ACCURACY, time_limit_s=_LIMIT_S
        )
        if found is None:
            return None
        bound = price + (found.bound - _SCALE) / scale / problem.goal_gbps
        if best is not None and found.usd_per_gbit >= best.usd_per_gbit * (1 - _ACCURACY):
            return best, min(bound, best.usd_per_gbit)
        best, price = found, found.usd_per_gbit
        if problem.most_gbps == problem.goal_gbps:
            return best, min(bound, price)
        part = problem


def _least_total(request: PlanRequest, problem: PlanProblem, wait_s: float, best: float) -> float:
    """The least total in USD, with the value of its time."""
    parts = [(problem.goal_gbps, problem.most_gbps)]
    waiting_usd = problem.time_usd_per_s * wait_s
    while parts:
        low, high = parts.pop()
        found = _least_price(priced_at(request, problem.with_goal(low, high), low, wait_s))
        if found is None:
            continue
        bound = request.total_usd(found[1]) + waiting_usd
        if bound >= best * (1 - _ACCURACY * 5):
            continue
        made = candidate_from(request, found[0])
        best = min(best, made.usd_with_time(problem.time_usd_per_s))
        if high > low * 1.001 and bound < best * (1 - _ACCURACY * 5):
            middle = math.sqrt(low * high)
            parts += [(middle, high), (low, middle)]
    return best


def _fastest_for_total(
    request: PlanRequest, problem: PlanProblem, objective: MaximizeThroughput, wait_s: float
) -> float:
    """The most Gbit/s for a total; 0 when infeasible."""
    usd, best = objective.max_cost_usd or 0.0, 0.0
    parts = [(0.1, problem.most_gbps)]
    while parts:
        low, high = parts.pop()
        if high <= best * (1 + _ACCURACY):
            continue
        part = priced_at(request, problem.with_goal(low, high), low, wait_s)
        found = _fastest(part, request.usd_per_gbit(usd))
        if found is None:
            continue
        if is_within(candidate_from(request, found).usd, usd * (1 + _ACCURACY / 10)):
            best = max(best, found.throughput_gbps)
        elif high > low * (1 + _ACCURACY * 5):
            high = min(high, found.throughput_gbps * (1 + _ACCURACY))
            middle = max(math.sqrt(low * high), high * 0.8)
            parts += [(low, middle), (middle, high)]
    return best


# ---------------------------------------------------------------- the comparison


def answer(question: Question) -> Answer:
    """The plan of a question beside its optimum. Raises SolverFailed without an optimum in time."""
    request, objective = question.request, question.objective
    started = time.perf_counter()
    try:
        made = plan(
            request.grid,
            request.src,
            request.dst,
            objective,
            volume_gb=request.volume_gb,
            limits=request.limits,
            policy=question.policy,
        )
    except PlanInfeasible:
        made = None
    seconds = time.perf_counter() - started
    best = optimum(question)
    if made is None or best is None:
        loss = 0.0 if made is None and best is None else math.inf
        return Answer(question, loss, 0.0, 0.0, seconds)
    is_rate = isinstance(objective, MaximizeThroughput)
    value = made.throughput_gbps if is_rate else made.cost.total_usd or 0.0
    if isinstance(objective, MinimizeCost) and objective.exactly:
        value = made.cost.usd_per_gb
    elif time_usd_per_s := _time_usd_per_s(objective):
        time_usd = time_usd_per_s * (made.provision_s + (made.transfer_s or 0.0))
        value += time_usd
        # Fewer instances may cost so much.
        more = (made.cost.boot_usd or 0.0) + (made.cost.minimum_billing_usd or 0.0)
        value = max(min(value, best), value - ROOM * (time_usd + more))
    sign = -1 if is_rate else 1
    loss = sign * (value / best - 1)
    if violations(made, request.grid, request.limits):
        loss = math.inf
    return Answer(question, loss, made.solver.gap, sign * (made.solver.bound / best - 1), seconds)


def answers(grid: Grid, count: int) -> list[Answer]:
    """The answers to `count` questions, without those whose optimum takes too long."""
    found = []
    for question in questions(grid, count):
        try:
            found.append(answer(question))
        except SolverFailed as error:
            print(f"left out {question.request.route}: {error}", file=sys.stderr)
    return found


def full_program_cases(grid: Grid, count: int) -> list[Case]:
    """The losses and the gaps by kind of objective; each plan that loses too much, on stderr."""
    every = answers(grid, count)
    for one in every:
        if one.loss > MOST_LOSS or one.gap > MOST_GAP or one.beyond > MOST_BEYOND:
            asked = one.question
            print(
                f"{asked.request.route}, {asked.request.volume_gb:g} GB, {asked.objective}:"
                f" loss {one.loss:.4%}, gap {one.gap:.2%}, beyond the bound {one.beyond:.4%}",
                file=sys.stderr,
            )
    kinds = [(kind, [one for one in every if one.question.kind == kind]) for kind in KINDS]
    return [case for kind, some in kinds if some for case in _cases_of(kind, some)]


def _cases_of(kind: str, some: Sequence[Answer]) -> list[Case]:
    name = f"{kind}: {len(some)} plans on {REGIONS} regions"
    gaps = [100 * one.gap for one in some]
    far = sum(one.gap > MOST_GAP for one in some)
    seconds = [one.seconds for one in some]
    loss, beyond = max(one.loss for one in some), max(one.beyond for one in some)
    return [
        Case(f"{name}: worst loss", 100 * loss, "% error", floor=100 * MOST_LOSS),
        Case(f"{name}: median stated gap", statistics.median(gaps), "% error"),
        Case(f"{name}: worst stated gap, {far} above 1 %", max(gaps), "% error"),
        Case(f"{name}: optimum beyond the bound", 100 * beyond, "% error", floor=100 * MOST_BEYOND),
        Case(f"{name}: median time", statistics.median(seconds), "s"),
        Case(f"{name}: worst time", max(seconds), "s"),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--grid", help="a grid directory, or `shipped`; default: the measured one")
    parser.add_argument("--count", type=int, default=300)
    options = parser.parse_args(arguments)
    grid = load_grid(options.grid) if options.grid else measured_grid()
    if grid is None:
        parser.error("the measured grid is not here: give --grid")
    cases = full_program_cases(grid, options.count)
    return finish("full program", cases, runs=1, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
