"""Laws on random grids, against a second full model."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from tests.planner.random_laws import grids, law, tenths, thousandths

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    NO_LIMITS,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
)
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import direct, plan, violations


def optimum_usd_per_gb(grid: Grid, goal_gbps: float, limits: Limits = NO_LIMITS) -> float | None:
    """4a to 4j as one dense integer program, rows one by one; None when infeasible.

    With a number of instances for each type of each region, and one type per region.
    """
    edges = [
        (u, v)
        for u in range(len(grid.tags))
        for v in range(len(grid.tags))
        if grid.throughput_gbps[u, v] > 0
    ]
    options = [
        (region, kind)
        for region in range(len(grid.tags))
        for kind in grid.types
        if kind.cloud == grid.regions[region].cloud
    ]
    s, t = grid.index["aws:s"], grid.index["gcp:t"]
    e, n = len(edges), len(options)
    width = 2 * e + 2 * n
    rows: list[np.ndarray] = []
    low: list[float] = []
    high: list[float] = []

    def row(entries: dict[int, float], lower: float, upper: float) -> None:
        line = np.zeros(width)
        for column, value in entries.items():
            line[column] = value
        rows.append(line)
        low.append(lower)
        high.append(upper)

    for k, (u, v) in enumerate(edges):
        rate = grid.throughput_gbps[u, v] * (1 - limits.safety_margin)
        row({k: 1.0, e + n + k: -rate / 64}, -np.inf, 0)
    for region in range(len(grid.tags)):
        out = [k for k, edge in enumerate(edges) if edge[0] == region]
        into = [k for k, edge in enumerate(edges) if edge[1] == region]
        balance = {s: goal_gbps, t: -goal_gbps}.get(region, 0.0)
        row({**dict.fromkeys(out, 1.0), **dict.fromkeys(into, -1.0)}, balance, balance)
        here = [(e + o, kind) for o, (place, kind) in enumerate(options) if place == region]
        ingress = {column: -kind.ingress_gbps for column, kind in here}
        egress = {column: -kind.egress_gbps for column, kind in here}
        row({**dict.fromkeys(into, 1.0), **ingress}, -np.inf, 0)
        row({**dict.fromkeys(out, 1.0), **egress}, -np.inf, 0)
        for side in (out, into):
            columns = dict.fromkeys([e + n + k for k in side], 1.0)
            row({**columns, **{c: -float(k.connection_limit) for c, k in here}}, -np.inf, 0)
        for column, kind in here:
            row({column: 1.0, column + n + e: -float(kind.instance_limit)}, -np.inf, 0)
            vcpus = limits.vcpu_quota.get(kind.cloud, 10**6)
            row({column: float(kind.vcpus)}, -np.inf, float(vcpus))
        row({column + n + e: 1.0 for column, _ in here}, -np.inf, 1)
    cost = np.zeros(width)
    cost[:e] = [grid.usd_per_gb[edge] / 8 for edge in edges]
    cost[e : e + n] = [kind.usd_per_hour / 3600 for _, kind in options]
    scale = 1000 / max(cost.sum() * goal_gbps, 1e-9)
    upper = np.full(width, np.inf)
    upper[2 * e + n :] = 1.0
    whole = np.ones(width, dtype=np.int64)
    whole[:e] = 0
    answer = milp(
        cost * scale,
        constraints=LinearConstraint(np.array(rows), low, high),
        bounds=Bounds(0, upper),
        integrality=whole,
        options={"mip_rel_gap": 1e-7},
    )
    return None if answer.x is None else float(answer.fun) / scale / goal_gbps * 8


def planned(
    grid: Grid, objective: Objective, limits: Limits = NO_LIMITS
) -> TransferPlan | PlanInfeasible:
    try:
        answer = plan(grid, "aws:s", "gcp:t", objective, limits=limits)
    except PlanInfeasible as error:
        return error
    assert violations(answer, grid, limits) == []
    return answer


@law(
    15,
    grid=grids(3, 5),
    goal=tenths(1, 120),
    vcpus=st.sampled_from([None, 2, 4, 8, 16, 32]),
    margin=st.sampled_from([0.0, 0.1, 0.5]),
)
def test_the_plan_at_a_goal_is_the_optimum_of_the_full_model(
    grid: Grid, goal: float, vcpus: int | None, margin: float
) -> None:
    quota = {} if vcpus is None else {"aws": vcpus, "azure": vcpus}
    limits = Limits(vcpu_quota=quota, safety_margin=margin)
    best = optimum_usd_per_gb(grid, goal, limits)
    answer = planned(grid, MinimizeCost(goal, exactly=True), limits)
    if best is None:
        assert isinstance(answer, PlanInfeasible)
        assert answer.most_gbps is not None
        assert answer.most_gbps <= goal
        return
    assert isinstance(answer, TransferPlan)
    assert answer.throughput_gbps == pytest.approx(goal)
    assert answer.cost.usd_per_gb == pytest.approx(best, rel=1e-5, abs=1e-7)
    assert answer.solver.bound <= best * (1 + 1e-6) + 1e-9
    assert answer.solver.gap <= 1e-4


@law(12, grid=grids(3, 5), goal=tenths(1, 60))
def test_no_rate_from_the_floor_up_is_cheaper_than_the_default_plan(
    grid: Grid, goal: float
) -> None:
    answer = planned(grid, MinimizeCost(goal))
    if isinstance(answer, PlanInfeasible):
        assert optimum_usd_per_gb(grid, goal) is None
        return
    assert answer.throughput_gbps >= goal * (1 - 1e-9)
    for rate in {goal, goal * 1.1, goal * 1.7, answer.throughput_gbps, 5.0, 10.0}:
        other = optimum_usd_per_gb(grid, rate) if rate >= goal else None
        assert other is None or answer.cost.usd_per_gb <= other * (1 + 1e-5) + 1e-7


@law(12, grid=grids(3, 5, direct=True), instances=st.integers(1, 3))
def test_the_optimum_is_never_dearer_than_the_direct_path_at_the_same_rate(
    grid: Grid, instances: int
) -> None:
    baseline = direct(grid, "aws:s", "gcp:t", instances)
    assert violations(baseline, grid) == []
    answer = planned(grid, MinimizeCost(baseline.throughput_gbps, exactly=True))
    assert isinstance(answer, TransferPlan)
    assert answer.cost.usd_per_gb <= baseline.cost.usd_per_gb * (1 + 1e-6)


@law(12, grid=grids(3, 5))
def test_what_an_infeasible_plan_offers_as_the_most_is_feasible(grid: Grid) -> None:
    refused = planned(grid, MinimizeCost(1000.0))
    assert isinstance(refused, PlanInfeasible)
    assert refused.binding
    if refused.most_gbps:
        most = MinimizeCost(refused.most_gbps, exactly=True)
        assert isinstance(planned(grid, most), TransferPlan)
        more = MinimizeCost(refused.most_gbps * 1.001 + 0.001)
        assert isinstance(planned(grid, more), PlanInfeasible)


@law(12, grid=grids(3, 5), ceiling=thousandths(1, 400))
def test_nothing_faster_is_as_cheap_as_the_ceiling(grid: Grid, ceiling: float) -> None:
    answer = planned(grid, MaximizeThroughput(max_usd_per_gb=ceiling))
    if isinstance(answer, PlanInfeasible):
        cheapest = optimum_usd_per_gb(grid, 2.0)
        assert cheapest is None or cheapest > ceiling * (1 - 1e-6)
        return
    assert answer.cost.usd_per_gb <= ceiling * (1 + 1e-6)
    faster = optimum_usd_per_gb(grid, answer.solver.bound * 1.001)
    assert faster is None or faster > ceiling * (1 - 1e-6)
