"""No path carries less than a hundredth of the rate for nothing, and what was asked for holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost, Policy
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import build_problem, plan
from skyplane_orchestration.planner.check import violations
from skyplane_orchestration.planner.formulation import cost_ceiling, policy_rows
from skyplane_orchestration.planner.objectives import LEAST_SHARE, MOST_COST
from skyplane_orchestration.planner.search.restricted import throughput_objective
from skyplane_orchestration.planner.solve import solve_integers
from skyplane_orchestration.units import usd_per_gb_to_usd_per_gbit

if TYPE_CHECKING:
    from tests.planner.conftest import GridOf

S, T, R = "aws:a", "aws:b", "gcp:r"
ONE_EACH, FOUR_EACH = Limits(instance_limit=1), Limits(instance_limit=4)


@pytest.fixture
def grid(small_grid: GridOf) -> Grid:
    """A direct path of 4 Gbit/s, and a dear relay beside it."""
    return small_grid({(S, T): (4.0, 0.12), (S, R): (8.0, 0.3), (R, T): (8.0, 0.2)})


def least_share(made: TransferPlan) -> float:
    return min(path.flow_gbps for path in made.paths) / made.throughput_gbps


def test_a_floor_that_needs_a_thin_path_keeps_it(grid: Grid) -> None:
    """All 256 connections of the source are in use; the direct ones carry 16 Gbit/s."""
    made = plan(grid, S, T, MinimizeCost(16.05, exactly=True), limits=FOUR_EACH)
    assert made.throughput_gbps == pytest.approx(16.05)
    assert made.relays == (R,)
    assert least_share(made) < LEAST_SHARE
    assert violations(made, grid, FOUR_EACH) == []


def test_the_last_cent_of_a_ceiling_buys_no_relay(grid: Grid) -> None:
    ceiling = MaximizeThroughput(max_usd_per_gb=0.1265)
    made = plan(grid, S, T, ceiling, limits=ONE_EACH)
    assert made.throughput_gbps == pytest.approx(4.0)
    assert made.relays == ()
    assert made.solver.bound >= made.throughput_gbps


def test_a_relay_that_is_worth_its_price_stays(grid: Grid) -> None:
    made = plan(grid, S, T, MinimizeCost(4.5, exactly=True), limits=ONE_EACH)
    assert made.relays == (R,)
    assert least_share(made) > 0.1


@pytest.mark.parametrize(
    ("src", "dst"),
    [
        ("aws:ap-southeast-2", "aws:eu-west-3"),
        ("azure:westus2", "gcp:europe-west9"),
    ],
)
@pytest.mark.parametrize("usd_per_gb", [0.12, 0.16])
def test_on_the_shipped_grid(src: str, dst: str, usd_per_gb: float) -> None:
    grid = load_grid()
    limits = Limits(instance_limit=4)
    ceiling = MaximizeThroughput(max_usd_per_gb=usd_per_gb)
    made = plan(grid, src, dst, ceiling, limits=limits)
    assert least_share(made) >= LEAST_SHARE * (1 - 1e-6)
    assert made.cost.usd_per_gb <= usd_per_gb * (1 + 1e-9)
    assert violations(made, grid, limits) == []


def test_a_thin_path_that_is_worth_its_place_stays(measured: Grid) -> None:
    """Without it the plan was 3.6 % slower than that of the full model."""
    ends, price = ("azure:westus", "aws:eu-central-1"), 0.1369341379420417
    relays = ("gcp:asia-northeast2", "aws:sa-east-1", "azure:westeurope", "aws:eu-north-1")
    policy, limits = Policy(allow_regions=relays), Limits(instance_limit=2, max_relays=2)
    problem = build_problem(measured, *ends, goal_gbps=0.0, limits=limits, policy=policy)
    full = solve_integers(
        problem,
        throughput_objective(problem),
        extra=[cost_ceiling(problem, usd_per_gb_to_usd_per_gbit(price)), *policy_rows(problem)],
    )
    ceiling = MaximizeThroughput(max_usd_per_gb=price)
    made = plan(measured, *ends, ceiling, limits=limits, policy=policy)
    assert full is not None
    assert made.throughput_gbps >= full.throughput_gbps * (1 - MOST_COST)
    assert least_share(made) < LEAST_SHARE
