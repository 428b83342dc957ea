"""Laws on random grids: against a second full model, and on three regions without a solver."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from tests.planner.random_laws import grids, law, tenths, thousandths

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.model.job import (
    NO_LIMITS,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
)
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import direct, plan, violations
from skyplane_orchestration.planner.instance_options import quota_of


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
        # Time enough for a proof on a busy machine.
        answer = plan(grid, "aws:s", "gcp:t", objective, limits=limits, proof_s=20.0)
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
    # The plan gives up thin paths, each at most a hundredth of the rate; the bound does not.
    assert answer.solver.gap <= 0.02
    faster = optimum_usd_per_gb(grid, answer.solver.bound * 1.001)
    assert faster is None or faster > ceiling * (1 - 1e-6)


# ---------------------------------------------------------------- three regions, without a solver


@dataclass(frozen=True)
class TwoPaths:
    """Arrays over every choice of N, types and M: what the paths carry and cost.

    Attributes:
        first: Gbit/s of the cheaper path.
        most: Gbit/s of both together.
        usd_first, usd_second: per Gbit.
        usd_per_s: of the instances.
    """

    first: np.ndarray
    most: np.ndarray
    usd_first: float
    usd_second: float
    usd_per_s: np.ndarray

    def usd_at(self, rate: np.ndarray | float) -> np.ndarray:
        """USD per second at a rate; infinite where it does not fit."""
        cheap = np.minimum(self.first, rate)
        usd: np.ndarray = cheap * self.usd_first + (rate - cheap) * self.usd_second + self.usd_per_s
        return np.where(rate <= self.most + 1e-9, usd, np.inf)

    def cheapest_at(self, rate: float) -> float:
        """USD per Gbit at exactly this rate."""
        return float(self.usd_at(rate).min()) / rate

    def cheapest_from(self, rate: float) -> float:
        """USD per Gbit at any rate from this one up: monotone on each path's part."""
        every = [np.full_like(self.most, rate), self.most, np.clip(self.first, rate, None)]
        fits = [np.where((one >= rate) & (one <= self.most + 1e-9), one, np.nan) for one in every]
        prices = [np.divide(self.usd_at(one), one) for one in fits]
        return float(np.nanmin([*(np.nanmin(one, initial=np.inf) for one in prices)]))

    def most_under(self, usd_per_gbit: float) -> float:
        """Gbit/s under a price: the upper end of where usd_at(T) <= price x T."""
        knee = np.minimum(self.first, self.most)
        at_knee = self.usd_at(knee) - usd_per_gbit * knee
        at_most = self.usd_at(self.most) - usd_per_gbit * self.most
        steeper = max(self.usd_second - usd_per_gbit, 1e-300)
        between = knee - at_knee / steeper
        rate = np.where(at_most <= 1e-12, self.most, np.where(at_knee <= 1e-12, between, 0.0))
        return float(rate.max())


def choices(grid: Grid, tag: str, limits: Limits) -> list[tuple[InstanceType, int]]:
    """Every type and number of instances of a region."""
    return [
        (kind, count)
        for kind in grid.types
        if kind.cloud == tag.partition(":")[0]
        for count in range(1, quota_of(grid, tag, kind, limits).instances + 1)
    ]


def two_paths(grid: Grid, limits: Limits) -> TwoPaths:
    """Every choice of N, types and M on three regions: a direct path and one relay."""
    s, t, a = "aws:s", "gcp:t", "azure:u"
    hops = ((s, t), (s, a), (a, t))
    place = [(grid.index[tail], grid.index[head]) for tail, head in hops]
    straight_gbps, first_hop, second_hop = (
        float(grid.throughput_gbps[edge]) * (1 - limits.safety_margin) / 64 for edge in place
    )
    usd_direct, usd_in, usd_out = (float(grid.usd_per_gb[edge]) / 8 for edge in place)
    relays = [(grid.instance_type("azure"), 0), *choices(grid, a, limits)]
    rows: list[tuple[np.ndarray, ...]] = []
    for (s_kind, n_s), (t_kind, n_t), (a_kind, n_a) in product(
        choices(grid, s, limits), choices(grid, t, limits), relays
    ):
        out, into = s_kind.connection_limit * n_s, t_kind.connection_limit * n_t
        through = a_kind.connection_limit * n_a
        straight = np.arange(min(out, into) + 1)
        # More connections never carry less, so the relay gets all that are left.
        relayed = np.minimum(
            np.minimum(out - straight, through) * first_hop,
            np.minimum(into - straight, through) * second_hop,
        ).clip(max=n_a * min(a_kind.ingress_gbps, a_kind.egress_gbps))
        ends = min(n_s * s_kind.egress_gbps, n_t * t_kind.ingress_gbps)
        used = ((s_kind, n_s), (t_kind, n_t), (a_kind, n_a))
        usd = sum(kind.usd_per_hour / 3600 * count for kind, count in used)
        each = np.ones(len(straight))
        rows.append((straight * straight_gbps, relayed, ends * each, usd * each))
    straight, relayed, both, usd_per_s = (np.concatenate(part) for part in zip(*rows, strict=True))
    usd_relayed = usd_in + usd_out
    cheaper = straight if usd_direct <= usd_relayed else relayed
    return TwoPaths(
        first=np.minimum(cheaper, both),
        most=np.minimum(straight + relayed, both),
        usd_first=min(usd_direct, usd_relayed),
        usd_second=max(usd_direct, usd_relayed),
        usd_per_s=usd_per_s,
    )


@law(
    12,
    grid=grids(3, 3, least_tenths=5),
    margin=st.sampled_from([0.0, 0.25]),
    share=st.sampled_from([0.3, 0.6, 0.9, 0.999]),
)
def test_plans_over_three_regions_are_the_counted_optimum(
    grid: Grid, margin: float, share: float
) -> None:
    limits = Limits(safety_margin=margin)
    paths = two_paths(grid, limits)
    most = float(paths.most.max())
    fastest = planned(grid, MaximizeThroughput(max_usd_per_gb=1e4), limits)
    assert isinstance(fastest, TransferPlan)
    # A plan gives up thin paths.
    assert most * 0.98 <= fastest.throughput_gbps <= most * (1 + 1e-6)
    assert isinstance(planned(grid, MinimizeCost(most * 1.001), limits), PlanInfeasible)
    goal = share * most
    exactly = planned(grid, MinimizeCost(goal, exactly=True), limits)
    or_more = planned(grid, MinimizeCost(goal), limits)
    assert isinstance(exactly, TransferPlan)
    assert isinstance(or_more, TransferPlan)
    least = paths.cheapest_at(goal) * 8
    assert exactly.cost.usd_per_gb == pytest.approx(least, rel=2e-4)
    assert exactly.solver.bound <= min(exactly.cost.usd_per_gb * (1 + 1e-9), least * (1 + 1e-6))
    assert or_more.cost.usd_per_gb / 8 == pytest.approx(paths.cheapest_from(goal), rel=2e-4)
    ceiling = or_more.cost.usd_per_gb * 1.05
    if ceiling > 0:
        under = planned(grid, MaximizeThroughput(max_usd_per_gb=ceiling), limits)
        assert isinstance(under, TransferPlan)
        rate = paths.most_under(ceiling / 8)
        assert rate * 0.98 <= under.throughput_gbps <= rate * (1 + 1e-3)
        assert under.solver.bound >= rate * (1 - 1e-3)
