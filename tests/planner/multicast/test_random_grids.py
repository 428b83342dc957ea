"""Laws on random grids, against a model over all trees written down once more here."""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st
from scipy.optimize import Bounds, LinearConstraint, milp
from tests.planner.conftest import grid_of
from tests.planner.random_laws import CLOUDS, TAGS, grids, law, tenths, thousandths

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import multicast_plan, multicast_violations, plan
from skyplane_orchestration.planner.multicast import relaxation

goals = tenths(1, 100)
several = st.integers(1, 2)
#: The largest number of regions of which every tree is generated; 0 is none.
all_trees_up_to = st.sampled_from([6, 0])


def small(most: int = 4, fewest: int = 3) -> st.SearchStrategy[Grid]:
    return grids(fewest, most, types=1)


def every_tree(grid: Grid, ends: list[int]) -> Iterator[list[tuple[int, int]]]:
    """All trees from region 0 that reach the ends: each region gets from one other, or not."""
    regions = range(len(grid.tags))
    source = grid.index["aws:s"]
    others = [v for v in regions if v != source]
    for choice in product([None, *regions], repeat=len(others)):
        parent = {v: u for v, u in zip(others, choice, strict=True) if u is not None}
        edges = [(u, v) for v, u in parent.items()]
        if any(u == v or grid.throughput_gbps[u, v] <= 0 for u, v in edges):
            continue
        reached = {source}
        for _ in others:
            reached |= {v for u, v in edges if u in reached}
        if reached == {source, *parent} and reached.issuperset(ends):
            yield edges


def optimum_usd_per_gb(
    grid: Grid, destinations: list[str], goal_gbps: float, paid: float = 1.0
) -> float | None:
    """The least 4a over every tree with N and M integer; None when infeasible.

    Args:
        paid: seconds that instances are paid for, over seconds in which bytes move.
    """
    trees = list(every_tree(grid, [grid.index[tag] for tag in destinations]))
    regions = len(grid.tags)
    edges = [(u, v) for u in range(regions) for v in range(regions)]
    types = [grid.instance_type(region.cloud) for region in grid.regions]
    t, n, e = len(trees), regions, len(edges)
    if not t:
        return None
    on = np.array([[float(edge in tree) for tree in trees] for edge in edges])
    rows, high = [], []

    def row(flows: Any, counts: Any = None, connections: Any = None, most: float = 0.0) -> None:
        zero = np.zeros(n), np.zeros(e)
        rows.append(
            np.concatenate(
                [
                    flows,
                    zero[0] if counts is None else counts,
                    zero[1] if connections is None else connections,
                ]
            )
        )
        high.append(most)

    for k, (u, v) in enumerate(edges):
        row(on[k], connections=-np.eye(e)[k] * grid.throughput_gbps[u, v] / 64)
    for region, kind in enumerate(types):
        out = np.array([float(u == region) for u, _ in edges])
        into = np.array([float(v == region) for _, v in edges])
        one = np.eye(n)[region]
        row(into @ on, -one * kind.ingress_gbps)
        row(out @ on, -one * kind.egress_gbps)
        row(np.zeros(t), -one * kind.connection_limit, out)
        row(np.zeros(t), -one * kind.connection_limit, into)
    prices = np.array([grid.usd_per_gb[edge] / 8 for edge in edges])
    per_s = np.array([kind.usd_per_hour / 3600 * paid for kind in types])
    cost = np.concatenate([prices @ on, per_s, np.zeros(e)])
    scale = 1000 / max(float(cost.sum()) * goal_gbps, 1e-9)
    upper = [np.inf] * t + [float(kind.instance_limit) for kind in types] + [np.inf] * e
    answer = milp(
        cost * scale,
        constraints=[
            LinearConstraint(np.array(rows), -np.inf, high),
            LinearConstraint(np.concatenate([np.ones(t), np.zeros(n + e)]), goal_gbps, goal_gbps),
        ],
        bounds=Bounds(0, np.array(upper)),
        integrality=np.array([0] * t + [1] * (n + e)),
        options={"mip_rel_gap": 1e-7},
    )
    return None if answer.x is None else float(answer.fun) / scale / goal_gbps * 8


def planned(
    grid: Grid,
    destinations: list[str],
    objective: Any,
    limits: Limits | None = None,
    *,
    few_regions: int = 6,
    volume_gb: float | None = None,
) -> TransferPlan | PlanInfeasible:
    """The plan, after the checks that hold for every plan.

    Args:
        few_regions: up to so many regions every tree is generated.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relaxation, "FEW_REGIONS", few_regions)
        try:
            answer = multicast_plan(
                grid,
                "aws:s",
                destinations,
                objective,
                limits=limits or Limits(),
                volume_gb=volume_gb,
            )
        except PlanInfeasible as error:
            return error
    assert multicast_violations(answer, grid, limits or Limits()) == []
    return answer


@law(10, grid=small(), count=several, goal=goals)
def test_the_plan_at_a_goal_is_the_optimum_over_all_trees(
    grid: Grid, count: int, goal: float
) -> None:
    destinations = list(TAGS[1 : count + 1])
    best = optimum_usd_per_gb(grid, destinations, goal)
    answer = planned(grid, destinations, MinimizeCost(goal, exactly=True))
    if best is None:
        assert isinstance(answer, PlanInfeasible)
        assert answer.most_gbps is not None
        assert answer.most_gbps <= goal
        return
    assert isinstance(answer, TransferPlan), answer
    assert answer.throughput_gbps == pytest.approx(goal)
    assert answer.cost.usd_per_gb == pytest.approx(best, rel=1e-5, abs=1e-7)
    assert answer.solver.gap <= 1e-4


@law(10, grid=small(), count=several, goal=goals, few_regions=all_trees_up_to)
def test_no_rate_from_the_floor_up_is_cheaper_than_the_bound(
    grid: Grid, count: int, goal: float, few_regions: int
) -> None:
    """With all trees nothing is cheaper than the plan, either."""
    destinations = list(TAGS[1 : count + 1])
    answer = planned(grid, destinations, MinimizeCost(goal), few_regions=few_regions)
    if isinstance(answer, PlanInfeasible):
        assert not few_regions or optimum_usd_per_gb(grid, destinations, goal) is None
        return
    price = answer.cost.usd_per_gb
    assert answer.throughput_gbps >= goal * (1 - 1e-9)
    assert answer.solver.bound <= price * (1 + 1e-9)
    for rate in (goal, goal * 1.2, goal * 1.7, goal * 3, answer.throughput_gbps, 5.0):
        other = optimum_usd_per_gb(grid, destinations, rate) if rate >= goal else None
        assert other is None or answer.solver.bound <= other * (1 + 1e-6) + 1e-9
        assert other is None or not few_regions or price <= other * (1 + 1e-5) + 1e-7


@law(10, grid=small(), count=several, goal=goals)
def test_the_bound_of_a_whole_job_holds_with_boot(grid: Grid, count: int, goal: float) -> None:
    destinations = list(TAGS[1 : count + 1])
    answer = planned(grid, destinations, MinimizeCost(goal), volume_gb=500.0)
    if isinstance(answer, PlanInfeasible):
        return
    assert answer.cost.total_usd is not None
    assert answer.solver.bound <= answer.cost.total_usd * (1 + 1e-9)
    for rate in (goal, goal * 1.3, answer.throughput_gbps):
        # Had all to wait for the slowest cloud, which takes 120 s, this is what rate costs.
        slowest = optimum_usd_per_gb(grid, destinations, rate, 1 + 120 * rate / 4000)
        assert slowest is None or answer.solver.bound <= slowest * 500 * (1 + 1e-6) + 1e-6
        if slowest is not None and rate == goal:
            assert answer.cost.total_usd <= slowest * 500 * (1 + 1e-4) + 1e-6


@law(10, grid=small(), count=several, goal=goals)
def test_with_few_trees_made_the_bound_is_below_the_optimum_and_the_plan_near(
    grid: Grid, count: int, goal: float
) -> None:
    destinations = list(TAGS[1 : count + 1])
    best = optimum_usd_per_gb(grid, destinations, goal)
    answer = planned(grid, destinations, MinimizeCost(goal, exactly=True), few_regions=0)
    if best is None:
        assert isinstance(answer, PlanInfeasible)
        return
    if isinstance(answer, PlanInfeasible):
        # Whole connections over these trees may not reach the largest rate; then the error does
        # not claim that no plan does.
        assert "was found" in answer.message.partition(";")[0]
        assert answer.most_gbps is not None
        assert goal * 0.7 < answer.most_gbps < goal
        return
    price = answer.cost.usd_per_gb
    assert answer.solver.bound <= best * (1 + 1e-6) + 1e-9
    assert price >= best * (1 - 1e-6) - 1e-9
    # The reported gap is at least the distance to the optimum.
    assert answer.solver.gap * price >= (price - best) * (1 - 1e-6) - 1e-9


@law(10, grid=small(5), goal=goals)
def test_never_dearer_than_separate_plans_that_fit_the_quotas(grid: Grid, goal: float) -> None:
    answer = planned(grid, list(TAGS[1:3]), MinimizeCost(goal, exactly=True))
    if isinstance(answer, PlanInfeasible) or answer.separate_usd_per_gb is None:
        return
    needed: Counter[str] = Counter()
    for tag in TAGS[1:3]:
        one = plan(grid, "aws:s", tag, MinimizeCost(goal * (1 - 1e-5), exactly=True))
        needed.update({region: group.count for region, group in one.instances.items()})
    types = {tag: grid.instance_type(tag.partition(":")[0]) for tag in needed}
    if all(count <= types[tag].instance_limit for tag, count in needed.items()):
        assert answer.cost.usd_per_gb <= answer.separate_usd_per_gb * (1 + 1e-4) + 1e-7


@law(10, grid=small(7), goal=goals)
def test_one_destination_is_the_ordinary_plan(grid: Grid, goal: float) -> None:
    objective = MinimizeCost(goal, exactly=True)
    answer = planned(grid, [TAGS[1]], objective)
    if isinstance(answer, PlanInfeasible):
        with pytest.raises(PlanInfeasible) as refused:
            plan(grid, "aws:s", TAGS[1], objective)
        assert answer.most_gbps == pytest.approx(refused.value.most_gbps, rel=2e-3, abs=1e-3)
        return
    ordinary = plan(grid, "aws:s", TAGS[1], objective)
    # Each is within its own proven gap of the same optimum.
    slack = max(answer.solver.gap, ordinary.solver.gap) + 1e-5
    assert answer.cost.usd_per_gb == pytest.approx(ordinary.cost.usd_per_gb, rel=slack, abs=1e-7)
    assert answer.solver.bound <= ordinary.cost.usd_per_gb * (1 + 1e-6) + 1e-9


@law(
    10,
    grid=small(7, fewest=5),
    count=st.integers(1, 3),
    goal=goals,
    relays=st.sampled_from([None, 0, 1, 2]),
)
def test_larger_networks_hold_too(grid: Grid, count: int, goal: float, relays: int | None) -> None:
    limits = Limits(max_relays=relays)
    answer = planned(grid, list(TAGS[1 : count + 1]), MinimizeCost(goal), limits)
    if isinstance(answer, PlanInfeasible):
        assert answer.binding
    else:
        assert answer.solver.bound <= answer.cost.usd_per_gb * (1 + 1e-9)


@law(10, grid=small(), count=several, ceiling=thousandths(1, 400))
def test_nothing_faster_is_as_cheap_as_the_ceiling(grid: Grid, count: int, ceiling: float) -> None:
    destinations = list(TAGS[1 : count + 1])
    answer = planned(grid, destinations, MaximizeThroughput(max_usd_per_gb=ceiling))
    if isinstance(answer, PlanInfeasible):
        cheapest = optimum_usd_per_gb(grid, destinations, 2.0)
        assert cheapest is None or cheapest > ceiling * (1 - 1e-6)
        return
    assert answer.cost.usd_per_gb <= ceiling * (1 + 1e-6)
    faster = optimum_usd_per_gb(grid, destinations, answer.throughput_gbps * 1.001)
    assert faster is None or faster > ceiling * (1 - 1e-6)


def dense_grid(chooser: random.Random) -> Grid:
    """Six regions with every edge."""
    edges = {
        (src, dst): (chooser.uniform(0.3, 9.0), chooser.uniform(0.0, 0.2))
        for src in TAGS[:6]
        for dst in TAGS[:6]
        if src != dst
    }
    types = [
        InstanceType(
            cloud,
            f"{cloud}-any",
            4,
            egress_gbps=float(chooser.randint(2, 12)),
            ingress_gbps=float(chooser.randint(2, 12)),
            connection_limit=chooser.choice([32, 64]),
            usd_per_hour=chooser.choice([0.2, 1.5, 20.0]),
            instance_limit=chooser.randint(2, 4),
        )
        for cloud in CLOUDS
    ]
    return grid_of(edges, types)


def test_a_few_trees_are_enough_to_be_near_the_optimum_over_all() -> None:
    chooser = random.Random(20261120)
    excess: list[float] = []
    while len(excess) < 8:
        grid, count = dense_grid(chooser), chooser.choice([2, 3])
        objective = MinimizeCost(chooser.uniform(0.5, 5.0), exactly=True)
        answers = [
            planned(grid, list(TAGS[1 : count + 1]), objective, few_regions=few_regions)
            for few_regions in (6, 0)
        ]
        price = [one.cost.usd_per_gb for one in answers if isinstance(one, TransferPlan)]
        if price:
            assert len(price) == 2
            excess.append(price[-1] / price[0] - 1)
    assert statistics.median(excess) <= 1e-4
    assert max(excess) <= 0.01
