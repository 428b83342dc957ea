"""No path carries less than a hundredth of the rate, and what was asked for still holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost, Policy
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import plan
from skyplane_orchestration.planner.check import violations
from skyplane_orchestration.planner.overlay import Overlay
from skyplane_orchestration.planner.problem import build_problem
from skyplane_orchestration.planner.thin_paths import LEAST_SHARE, _fill_thin_paths, _fits

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


def test_a_floor_that_needs_a_second_path_fills_it(grid: Grid) -> None:
    """All 256 connections of the source are in use: one of two goes over the relay, or two."""
    made = plan(grid, S, T, MinimizeCost(16.05, exactly=True), limits=FOUR_EACH)
    assert made.throughput_gbps == pytest.approx(16.05)
    assert made.relays == (R,)
    assert least_share(made) >= LEAST_SHARE
    assert violations(made, grid, FOUR_EACH) == []


def test_a_thin_path_that_cannot_be_filled_stays(grid: Grid) -> None:
    """What the policy lets the job cost is too little to fill it, and the floor needs it."""
    asked = MinimizeCost(16.05, exactly=True)
    filled = plan(grid, S, T, asked, limits=FOUR_EACH, volume_gb=1000)
    assert filled.cost.total_usd is not None
    policy = Policy(max_job_usd=filled.cost.total_usd - 0.1)
    made = plan(grid, S, T, asked, limits=FOUR_EACH, volume_gb=1000, policy=policy)
    assert made.cost.total_usd is not None
    assert made.cost.total_usd <= filled.cost.total_usd - 0.1
    assert least_share(made) < LEAST_SHARE


def test_the_last_cent_of_a_ceiling_buys_no_relay(grid: Grid) -> None:
    ceiling = MaximizeThroughput(max_usd_per_gb=0.1265)
    made = plan(grid, S, T, ceiling, limits=ONE_EACH)
    assert made.throughput_gbps == pytest.approx(4.0)
    assert made.relays == ()
    assert made.solver.bound >= made.throughput_gbps


def test_a_path_gives_no_more_than_it_has(grid: Grid) -> None:
    """A whole connection of the relay carries more than both paths together."""
    kind = grid.instance_type("aws")
    paths = {(S, T): 0.05, (S, R, T): 0.0004}
    flows = {(S, T): 0.05, (S, R): 0.0004, (R, T): 0.0004}
    ends = (S, R, T)
    overlay = Overlay(
        0.0504,
        paths,
        flows,
        dict.fromkeys(flows, 1),
        dict.fromkeys(ends, 1),
        dict.fromkeys(ends, kind),
    )
    problem = build_problem(grid, S, T, goal_gbps=0.05, limits=ONE_EACH)
    assert not _fits(_fill_thin_paths(problem, overlay, whole_connections=True))


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
