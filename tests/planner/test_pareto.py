from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.planner.random_laws import grids, law

from skyplane_orchestration.errors import ConfigurationInvalid, PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost, Policy
from skyplane_orchestration.planner import build_problem, frontier, plan, violations
from skyplane_orchestration.planner.formulation import cost_per_second
from skyplane_orchestration.planner.solve import relax
from skyplane_orchestration.units import usd_per_gbit_to_usd_per_gb

ONE, TWO = Limits(instance_limit=1), Limits(instance_limit=2)
ENDS = ("aws:s", "gcp:t")


def test_every_plan_is_faster_and_dearer_than_the_one_before(shipped: Grid) -> None:
    plans = frontier(shipped, "gcp:us-east5", "gcp:asia-south1", points=8, limits=TWO)
    assert len(plans) > 3
    for slow, fast in pairwise(plans):
        assert slow.throughput_gbps < fast.throughput_gbps
        assert slow.cost.usd_per_gb < fast.cost.usd_per_gb
    for one in plans:
        assert violations(one, shipped, TWO) == []


def test_the_ends_are_the_cheapest_and_the_fastest(triangle: Grid) -> None:
    plans = frontier(triangle, *ENDS, points=6, limits=ONE)
    cheapest = plan(triangle, *ENDS, MinimizeCost(0.1), limits=ONE)
    assert plans[0].cost.usd_per_gb == pytest.approx(cheapest.cost.usd_per_gb)
    assert plans[-1].throughput_gbps == pytest.approx(5.0, rel=1e-5)
    assert plans[-1].relays == ("azure:r",)


def test_of_the_cheapest_plans_the_fastest_is_the_end(triangle: Grid) -> None:
    """Eight instance pairs cost as much per GB as one, and move eight times as much."""
    plans = frontier(triangle, *ENDS, points=3)
    assert plans[0].throughput_gbps == pytest.approx(8 * 2.5, rel=1e-5)
    assert plans[0].cost.usd_per_gb == pytest.approx(0.10 + 2 * 0.008 / 2.5)
    assert plans[-1].throughput_gbps == pytest.approx(8 * 5.0, rel=1e-5)


@pytest.mark.parametrize(
    ("ends", "limits"),
    [
        (("aws:us-west-2", "gcp:europe-west3"), TWO),
        (("gcp:asia-east1", "gcp:europe-west6"), Limits(max_relays=1)),
        (("azure:uksouth", "aws:ap-south-1"), Limits(instance_limit=4)),
    ],
)
def test_no_plan_at_its_rate_is_a_thousandth_cheaper(
    measured: Grid, ends: tuple[str, str], limits: Limits
) -> None:
    plans = frontier(measured, *ends, points=8, limits=limits)
    assert len(plans) > 3
    for one in plans:
        goal = MinimizeCost(one.throughput_gbps * (1 - 1e-9), exactly=True)
        alone = plan(measured, *ends, goal, limits=limits)
        assert one.cost.usd_per_gb <= alone.cost.usd_per_gb * 1.001
        assert violations(one, measured, limits) == []


def test_of_the_fastest_plans_the_cheapest_is_the_end(shipped: Grid) -> None:
    """The fastest plan is found whatever it costs; regions that make it cheaper join after."""
    ends = "azure:uksouth", "azure:australiasoutheast"
    last = frontier(shipped, *ends, points=2)[-1]
    goal = MinimizeCost(last.throughput_gbps * (1 - 1e-9), exactly=True)
    alone = plan(shipped, *ends, goal)
    assert last.cost.usd_per_gb <= alone.cost.usd_per_gb * 1.001
    assert last.solver.gap <= 0.01


def test_the_gap_is_the_distance_to_the_relaxed_frontier(measured: Grid) -> None:
    ends = "aws:us-west-2", "gcp:europe-west3"
    plans = frontier(measured, *ends, points=5)
    problem = build_problem(measured, *ends, goal_gbps=0.0)
    relaxed_at = dict(plans.relaxed)
    for one in plans:
        gbps = one.throughput_gbps
        relaxed = relax(problem.with_goal(gbps, gbps), cost_per_second(problem))
        assert relaxed is not None
        bound = usd_per_gbit_to_usd_per_gb(relaxed.objective / gbps)
        assert relaxed_at[gbps] == one.solver.bound
        assert one.solver.bound == pytest.approx(bound, rel=1e-6)
        assert one.cost.usd_per_gb * (1 - one.solver.gap) == pytest.approx(bound, rel=1e-6)
        assert bound <= one.cost.usd_per_gb * (1 + 1e-6)
    assert {one.solver.status for one in plans} == {"optimal", "feasible"}


@law(8, grid=grids(4, 4, least_tenths=5))
def test_on_random_grids_it_has_both_ends_and_nothing_dearer_than_needed(
    grid: Grid,
) -> None:
    plans = frontier(grid, *ENDS, points=6)
    cheapest = plan(grid, *ENDS, MinimizeCost(1e-3))
    fastest = plan(grid, *ENDS, MaximizeThroughput(max_usd_per_gb=1e6))
    # Unlike the frontier, `plan` gives up thin paths, and with them some throughput.
    assert plans[0].cost.usd_per_gb <= cheapest.cost.usd_per_gb * (1 + 1e-4)
    assert plans[0].cost.usd_per_gb >= cheapest.solver.bound * (1 - 1e-4)
    assert plans[-1].throughput_gbps >= fastest.throughput_gbps * (1 - 1e-4)
    assert plans[-1].throughput_gbps <= fastest.solver.bound * (1 + 1e-4)
    for one in plans:
        # The solver may exceed the highest rate by its tolerance.
        goal = MinimizeCost(one.throughput_gbps * (1 - 1e-5), exactly=True)
        alone = plan(grid, *ENDS, goal)
        # A point this near to what no plan can beat is not looked for any further.
        assert one.cost.usd_per_gb <= alone.cost.usd_per_gb * 1.004
        assert one.solver.bound <= alone.cost.usd_per_gb * (1 + 2e-5)
    for slow, fast in pairwise(plans):
        assert slow.cost.usd_per_gb < fast.cost.usd_per_gb


def test_a_frontier_may_be_a_single_plan(triangle: Grid) -> None:
    inside = frontier(triangle, "aws:s", "aws:s")
    assert (len(inside), inside.relaxed) == (1, ())
    alone = frontier(triangle, *ENDS, limits=ONE, policy=Policy(exclude_regions=("azure:*",)))
    assert [one.relays for one in alone] == [()]


def test_it_ends_where_the_policy_finds_a_job_too_dear(triangle: Grid) -> None:
    def within(usd: float) -> Any:
        policy = Policy(max_job_usd=usd)
        return frontier(triangle, *ENDS, points=6, limits=ONE, policy=policy, volume_gb=1000.0)

    everything = within(1e6)
    totals = [one.cost.total_usd for one in everything]
    assert [one.cost.total_usd for one in within(totals[2])] == totals[:3]
    with pytest.raises(PlanInfeasible):
        within(1.0)


@pytest.mark.parametrize(
    "limits",
    [
        Limits(source_read_gbps=3.0),
        Limits(destination_write_gbps=3.0),
        Limits(vcpu_quota={"aws": 4}),
        Limits(safety_margin=0.2, instance_limit=2),
    ],
)
def test_stores_quotas_and_margin_hold_along_it(triangle: Grid, limits: Limits) -> None:
    plans = frontier(triangle, *ENDS, points=6, limits=limits)
    fastest = plan(triangle, *ENDS, MaximizeThroughput(max_usd_per_gb=1e6), limits=limits)
    assert plans[-1].throughput_gbps == pytest.approx(fastest.throughput_gbps, rel=1e-4)
    for one in plans:
        assert violations(one, triangle, limits) == []


def test_no_way_through_is_an_error(small_grid: Any) -> None:
    grid = small_grid({("aws:s", "azure:r"): (1.0, 0.1), ("gcp:t", "aws:s"): (1.0, 0.1)})
    with pytest.raises(PlanInfeasible, match="no way"):
        frontier(grid, *ENDS)


def test_bad_arguments(triangle: Grid) -> None:
    with pytest.raises(ConfigurationInvalid, match="two ends"):
        frontier(triangle, *ENDS, points=1)
    with pytest.raises(ConfigurationInvalid, match="volume"):
        frontier(triangle, *ENDS, policy=Policy(max_job_usd=1.0))
