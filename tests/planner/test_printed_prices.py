"""A ceiling equal to a price that the planner has printed gives a plan as fast as that one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given, settings, strategies as st

from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import default_objective, plan
from skyplane_orchestration.planner.check import violations

if TYPE_CHECKING:
    from tests.planner.conftest import GridOf

#: What solvers may leave of a rate within their time (docs/explanation/planner.md, figures).
NEAR = 1e-3
S, T = "aws:a", "aws:b"


@pytest.fixture(scope="module")
def shipped() -> Grid:
    return load_grid()


def printed(made: TransferPlan) -> TransferPlan:
    """As a script reads it."""
    return TransferPlan.from_dict(json.loads(json.dumps(made.to_dict())))


def assert_kept(first: TransferPlan, again: TransferPlan, grid: Grid, limits: Limits) -> None:
    assert again.throughput_gbps >= first.throughput_gbps * (1 - NEAR)
    assert again.solver.bound >= first.throughput_gbps * (1 - NEAR)
    assert not violations(again, grid, limits)


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8])
def test_as_many_instances_as_it_was_printed_for(small_grid: GridOf, count: int) -> None:
    """Any number of instances has the same price per GB; the least of them is not enough."""
    grid = small_grid({(S, T): (3.193, 0.12), (S, "aws:c"): (4.0, 0.5), ("aws:c", T): (4.0, 0.5)})
    limits = Limits(instance_limit=count)
    first = printed(plan(grid, S, T, MinimizeCost(3.193 * count, exactly=True), limits=limits))
    again = plan(grid, S, T, MaximizeThroughput(first.cost.usd_per_gb), limits=limits)
    assert_kept(first, again, grid, limits)
    assert again.cost.usd_per_gb == pytest.approx(first.cost.usd_per_gb, rel=1e-12)


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("azure:polandcentral", "gcp:southamerica-east1"),
        ("gcp:us-west1", "azure:westcentralus"),
        ("aws:me-south-1", "azure:eastasia"),
    ],
)
def test_a_price_on_the_shipped_grid(shipped: Grid, src: str, dst: str) -> None:
    limits = Limits(instance_limit=8)
    goal = 8 * default_objective(shipped, src, dst, limits).floor_gbps
    first = printed(plan(shipped, src, dst, MinimizeCost(goal, exactly=True), limits=limits))
    again = plan(shipped, src, dst, MaximizeThroughput(first.cost.usd_per_gb), limits=limits)
    assert_kept(first, again, shipped, limits)


@pytest.mark.parametrize(
    ("src", "dst", "most", "goal_gbps"),
    [
        ("gcp:europe-west1", "aws:ca-central-1", 3, 10.7),
        pytest.param("aws:eu-north-1", "azure:italynorth", 8, 13.69, marks=pytest.mark.soak),
    ],
)
def test_a_total_on_the_shipped_grid(
    shipped: Grid,
    src: str,
    dst: str,
    most: int,
    goal_gbps: float,
) -> None:
    """A short job: the wait for gateways is most of its cost."""
    limits = Limits(instance_limit=most)
    first = printed(plan(shipped, src, dst, MinimizeCost(goal_gbps), limits=limits, volume_gb=5.0))
    assert first.cost.total_usd is not None
    ceiling = MaximizeThroughput(max_cost_usd=first.cost.total_usd)
    again = plan(shipped, src, dst, ceiling, limits=limits, volume_gb=5.0)
    assert_kept(first, again, shipped, limits)
    assert again.cost.total_usd is not None
    assert again.cost.total_usd <= first.cost.total_usd * (1 + 1e-9)


def test_a_price_on_the_measured_grid(shared_dir: Path) -> None:
    grid = load_grid(shared_dir / "grids" / "skyplane-2022-01")
    limits = Limits(instance_limit=8)
    ceiling = MaximizeThroughput(max_usd_per_gb=0.12213801023071301)
    again = plan(grid, "aws:ap-east-1", "azure:eastus2", ceiling, limits=limits)
    assert again.throughput_gbps == pytest.approx(25.544)
    assert again.cost.usd_per_gb == pytest.approx(0.12213801023071301, rel=1e-12)


@settings(max_examples=15, deadline=None, derandomize=True)
@given(
    rates=st.lists(st.integers(1, 60), min_size=5, max_size=5),
    prices=st.lists(st.integers(0, 20), min_size=5, max_size=5),
    count=st.integers(1, 4),
    share=st.sampled_from([0.3, 0.5, 0.75, 1.0]),
    is_exact=st.booleans(),
)
@example(rates=[32] * 5, prices=[12] * 5, count=4, share=1.0, is_exact=True)
def test_any_price_on_small_grids(
    small_grid: GridOf,
    rates: list[int],
    prices: list[int],
    count: int,
    share: float,
    is_exact: bool,
) -> None:
    edges = [(S, T), (S, "gcp:r"), ("gcp:r", T), (S, "azure:r"), ("azure:r", T)]
    grid = small_grid(
        {
            edge: (rate / 10, price / 100)
            for edge, rate, price in zip(edges, rates, prices, strict=True)
        }
    )
    limits = Limits(instance_limit=count)
    most = plan(grid, S, T, MaximizeThroughput(max_usd_per_gb=1e4), limits=limits)
    goal = most.throughput_gbps * share * (1 - 1e-6)
    first = printed(plan(grid, S, T, MinimizeCost(goal, exactly=is_exact), limits=limits))
    again = plan(grid, S, T, MaximizeThroughput(first.cost.usd_per_gb), limits=limits)
    assert_kept(first, again, grid, limits)
