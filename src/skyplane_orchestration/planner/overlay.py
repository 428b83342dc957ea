"""Plans over the edges of a grid: the part of `answer` that needs the solver."""

from __future__ import annotations

import time

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, Objective, Policy
from skyplane_orchestration.model.plan import SolverReport, TransferPlan
from skyplane_orchestration.planner.build_plan import Request, assemble, requests_usd
from skyplane_orchestration.planner.check import violations
from skyplane_orchestration.planner.job_cost import Bill
from skyplane_orchestration.planner.objectives import Question, least_gbps
from skyplane_orchestration.planner.problem import build_problem
from skyplane_orchestration.planner.search.optimum import OPTIMAL_GAP, relative_gap
from skyplane_orchestration.planner.thin_paths import without_thin_paths


def plan_over_edges(
    grid: Grid,
    request: Request,
    objective: Objective,
    limits: Limits,
    policy: Policy,
    proof_s: float,
) -> TransferPlan:
    """The best plan between two regions; arguments and errors as of `answer.plan`."""
    started = time.perf_counter()
    volume_gb = request.volume_gb
    bill = Bill(grid, volume_gb, requests_usd(grid, request) or 0.0) if volume_gb else None
    problem = build_problem(
        grid,
        request.src,
        request.dst,
        goal_gbps=least_gbps(objective),
        limits=limits,
        policy=policy,
    )
    question = Question(grid, problem, bill, limits, policy.max_job_usd, proof_s)
    answer = question.answer(objective)
    candidate = without_thin_paths(question, objective, answer.candidate)
    value = question.value_of(objective, candidate)
    is_rate = isinstance(objective, MaximizeThroughput)
    gap = max(0.0, answer.bound / value - 1) if is_rate else relative_gap(value, answer.bound)
    made = assemble(
        grid,
        request,
        candidate.overlay,
        candidate.overlay.types,
        binding=question.binding(objective, candidate),
        solver=SolverReport(
            status="optimal" if gap <= OPTIMAL_GAP else "feasible",
            gap=gap,
            bound=answer.bound,
            solve_s=time.perf_counter() - started,
        ),
    )
    broken = violations(made, grid, limits)
    if broken:
        raise SolverFailed(f"the plan does not hold: {'; '.join(broken)}")
    return made
