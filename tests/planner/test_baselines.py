"""The baselines: what they carry, and that limits and policy hold for them too."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from skyplane_orchestration.errors import PlanInfeasible, UnknownRegion
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.grids.grid import StorageLimit, VcpuQuota
from skyplane_orchestration.model.job import Limits, MinimizeCost, Policy
from skyplane_orchestration.planner import (
    best_relay,
    default_objective,
    direct,
    frontier,
    multicast_plan,
    multicast_violations,
    plan,
    violations,
)

if TYPE_CHECKING:
    from tests.planner.conftest import GridOf

S, T, R = "aws:s", "gcp:t", "azure:r"


def test_direct_uses_every_connection_of_every_instance(triangle: Grid) -> None:
    answer = direct(triangle, S, T, 3, volume_gb=100)
    assert answer.throughput_gbps == pytest.approx(7.5)
    assert answer.edges[0].connections == 192
    assert {group.count for group in answer.instances.values()} == {3}
    assert answer.cost.egress_usd == pytest.approx(10)
    assert answer.objective == {"kind": "direct", "instances": 3}
    assert answer.solver.status == "baseline"
    assert violations(answer, triangle) == []


def test_the_best_relay_is_taken_whatever_it_costs(triangle: Grid) -> None:
    answer = best_relay(triangle, S, T, 2)
    assert answer.relays == (R,)
    assert answer.throughput_gbps == pytest.approx(10)
    assert violations(answer, triangle) == []
    assert direct(triangle, S, T, 2).throughput_gbps < answer.throughput_gbps


def test_a_tie_stays_direct(triangle: Grid) -> None:
    assert best_relay(triangle, S, R).relays == ()


def test_a_quota_below_one_instance_is_named(triangle: Grid) -> None:
    with pytest.raises(PlanInfeasible, match="no instance of gcp-plain") as caught:
        direct(triangle, S, T, limits=Limits(vcpu_quota={"gcp": 3}))
    assert caught.value.binding == (f"vcpu_quota {T}",)


def test_no_edge_and_no_region_are_refused(triangle: Grid) -> None:
    with pytest.raises(PlanInfeasible, match="no edge"):
        direct(triangle, R, S)
    with pytest.raises(UnknownRegion):
        direct(triangle, S, "aws:nowhere")


def test_a_region_that_may_have_fewer_instances_has_fewer(small_grid: GridOf) -> None:
    few = InstanceType("gcp", "gcp-few", 4, 5.0, 10.0, 64, 3.6, 2)
    grid = small_grid({(S, T): (2.5, 0.1)}, types=[few])
    answer = direct(grid, S, T, 3)
    assert {tag: group.count for tag, group in answer.instances.items()} == {S: 3, T: 2}
    assert answer.edges[0].connections == 128
    assert answer.throughput_gbps == pytest.approx(5.0)
    assert violations(answer, grid) == []


def test_the_limits_of_a_job_bound_a_baseline(triangle: Grid) -> None:
    limits = Limits(instance_limit=1)
    answer = best_relay(triangle, S, T, 8, limits=limits)
    assert {group.count for group in answer.instances.values()} == {1}
    assert answer.throughput_gbps == pytest.approx(5.0)
    assert violations(answer, triangle, limits) == []
    assert best_relay(triangle, S, T, 2, limits=Limits(max_relays=0)).relays == ()
    slow = Limits(source_read_gbps=4.0, destination_write_gbps=3.0)
    assert direct(triangle, S, T, 8, limits=slow).throughput_gbps == pytest.approx(3.0)
    careful = direct(triangle, S, T, 2, limits=Limits(safety_margin=0.2))
    assert careful.throughput_gbps == pytest.approx(4.0)
    # A plain type has 4 vCPUs: 9 of them are 2 instances.
    few = direct(triangle, S, T, 8, limits=Limits(vcpu_quota={"gcp": 9}))
    assert {tag: group.count for tag, group in few.instances.items()} == {S: 8, T: 2}


@pytest.mark.parametrize(
    "policy", [Policy(exclude_regions=("azure:*",)), Policy(allow_regions=("aws:*",))]
)
def test_a_region_that_the_policy_bars_is_no_relay(triangle: Grid, policy: Policy) -> None:
    assert best_relay(triangle, S, T, 2, policy=policy).relays == ()


def test_the_best_relay_is_the_fastest_of_all_chains_of_one(measured: Grid) -> None:
    ends = "azure:eastus", "aws:ap-northeast-1"
    tags = [tag for tag in measured.tags if tag not in ends]
    chosen = best_relay(measured, *ends, 4)

    def through(tag: str) -> float:
        rest = Policy(exclude_regions=tuple(other for other in tags if other != tag))
        return best_relay(measured, *ends, 4, policy=rest).throughput_gbps

    assert chosen.throughput_gbps == max(through(tag) for tag in tags)
    assert len(chosen.relays) == 1


def test_without_an_objective_the_rate_of_the_direct_path_counts(triangle: Grid) -> None:
    assert default_objective(triangle, S, T) == MinimizeCost(2.5)
    assert default_objective(triangle, S, S) == MinimizeCost(1.0)
    slow = Limits(source_read_gbps=0.5)
    assert default_objective(triangle, S, S, slow) == MinimizeCost(0.5)
    assert default_objective(triangle, "local:here", T) == MinimizeCost(1.0)
    with pytest.raises(PlanInfeasible):
        default_objective(triangle, R, S)


def test_what_a_grid_says_of_stores_and_quotas_bounds_a_baseline(triangle: Grid) -> None:
    slow = replace(triangle, storage=(StorageLimit(S, 3.0, None), StorageLimit("gcp:*", None, 4.0)))
    assert direct(slow, S, T, 8).throughput_gbps == pytest.approx(3.0)
    assert direct(slow, S, T, 8, limits=Limits(source_read_gbps=9.0)).throughput_gbps == (
        pytest.approx(4.0)
    )
    narrow = replace(triangle, quotas=(VcpuQuota(S, 4),))
    assert best_relay(narrow, S, T, 2).instances[S].count == 1


def test_what_the_account_may_run_is_named_by_a_baseline_and_along_the_frontier(
    triangle: Grid,
) -> None:
    """The grid's own vCPU quota, of which the job says nothing."""
    none_left = replace(triangle, quotas=(VcpuQuota("gcp:*", 3),))
    with pytest.raises(PlanInfeasible) as refused:
        direct(none_left, S, T)
    assert refused.value.binding == ("vcpu_quota gcp:t",)
    one_each = replace(triangle, quotas=(VcpuQuota("*", 4),))
    fastest = frontier(one_each, S, T)[-1]
    assert "vcpu_quota aws:s" in fastest.binding
    with pytest.raises(PlanInfeasible) as refused:
        plan(one_each, S, T, MinimizeCost(100.0))
    assert "vcpu_quota aws:s" in refused.value.binding


def test_a_margin_is_on_rates_between_regions_and_not_on_instances(small_grid: Any) -> None:
    """9 Gbit/s less 40 % is above the 5 Gbit/s that one instance sends, for every verb alike."""
    grid = small_grid({(S, T): (9.0, 0.1)})
    limits = Limits(instance_limit=1, safety_margin=0.4)
    assert direct(grid, S, T, limits=limits).throughput_gbps == pytest.approx(5.0)
    goal = MinimizeCost(5.0, exactly=True)
    assert plan(grid, S, T, goal, limits=limits).throughput_gbps == pytest.approx(5.0)
    to_all = multicast_plan(grid, S, [T], goal, limits=limits)
    assert to_all.throughput_gbps == pytest.approx(5.0)
    assert multicast_violations(to_all, grid, limits) == []


def test_without_a_chosen_type_the_first_that_the_quota_allows_is_taken(shipped: Grid) -> None:
    """Two vCPUs are too few for the cloud's first type."""
    pair = ("aws:us-east-1", "gcp:europe-west3")
    few = direct(shipped, *pair, limits=Limits(vcpu_quota={"aws": 2}))
    assert few.instances[pair[0]].type == "c7gn.large"
    with pytest.raises(PlanInfeasible, match="no instance of c6in"):
        direct(
            shipped,
            *pair,
            limits=Limits(vcpu_quota={"aws": 2}, instance_types={"aws": "c6in.xlarge"}),
        )


@pytest.mark.parametrize("named", [{}, {"aws": "m5.8xlarge"}])
def test_all_ways_have_the_instance_types_of_the_plan(shipped: Grid, named: dict[str, str]) -> None:
    pair = ("aws:us-east-1", "gcp:europe-west3")
    limits = Limits(instance_types=named)
    goal = default_objective(shipped, *pair, limits)
    types = {
        tag: group.type
        for tag, group in plan(shipped, *pair, goal, limits=limits).instances.items()
    }
    assert types[pair[0]] == named.get("aws", "c7gn.large")
    for other in (
        direct(shipped, *pair, limits=limits),
        multicast_plan(shipped, pair[0], [pair[1]], goal, limits=limits),
    ):
        assert {tag: group.type for tag, group in other.instances.items()} == types
