"""Transfers inside one region, and from or to a file on this machine."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
)
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import plan

S = "aws:s"


def inside(grid: Grid, objective: Objective, volume_gb: float = 100, **more: Any) -> TransferPlan:
    return plan(grid, S, S, objective, volume_gb=volume_gb, **more)


def refused(
    grid: Grid, objective: Objective, volume_gb: float = 100, **more: Any
) -> PlanInfeasible:
    with pytest.raises(PlanInfeasible) as caught:
        inside(grid, objective, volume_gb, **more)
    return caught.value


def test_a_deadline_counts_the_wait(triangle: Grid) -> None:
    """800 Gbit in 155 - 75 s are 10 Gbit/s: two instances of 5."""
    answer = inside(triangle, Deadline(155))
    assert answer.instance_count == 2
    assert answer.cost.total_usd == pytest.approx(2 * 0.001 * 155)
    late = refused(triangle, Deadline(80))
    assert late.binding == ("deadline", "instance_quota aws:s")
    assert late.least_s == pytest.approx(75 + 800 / 40)
    assert inside(triangle, Deadline(late.least_s or 0.0)).instance_count == 8


def test_a_ceiling_takes_as_many_instances_as_it_pays_for(triangle: Grid) -> None:
    """Each of n instances of 5 Gbit/s is paid for 75 + 160 / n seconds at 0.001 USD."""
    answer = inside(triangle, MaximizeThroughput(max_cost_usd=0.16 + 3 * 0.075))
    assert answer.instance_count == 3
    dear = refused(triangle, MaximizeThroughput(max_cost_usd=0.2))
    assert dear.binding == ("cost_ceiling",)
    assert dear.least_usd == pytest.approx(0.235)
    accepted = inside(triangle, MaximizeThroughput(max_cost_usd=dear.least_usd))
    assert accepted.instance_count == 1
    per_gb = refused(triangle, MaximizeThroughput(max_usd_per_gb=0.001))
    assert per_gb.least_usd_per_gb == pytest.approx(0.0016)
    assert inside(triangle, MaximizeThroughput(max_usd_per_gb=per_gb.least_usd_per_gb)).binding == (
        "instance_quota aws:s",
    )


def test_the_policy_holds_inside_a_region(triangle: Grid) -> None:
    dear = refused(triangle, MinimizeCost(5), policy=Policy(max_job_usd=0.2))
    assert dear.binding == ("policy max_job_usd",)
    assert inside(triangle, MinimizeCost(5), policy=Policy(max_job_usd=dear.least_usd))
    fastest = inside(triangle, MaximizeThroughput(max_usd_per_gb=1), policy=Policy(max_job_usd=0.4))
    assert fastest.instance_count == 3


def test_stores_and_vcpus_limit_it_as_well(triangle: Grid) -> None:
    """A plain instance has 4 vCPUs."""
    slow = Limits(source_read_gbps=7)
    answer = inside(triangle, MaximizeThroughput(max_usd_per_gb=1), limits=slow)
    assert answer.throughput_gbps == 7
    assert answer.instance_count == 2
    assert answer.binding == ("storage_read aws:s",)
    beyond = refused(triangle, MinimizeCost(8), limits=slow)
    assert (beyond.binding, beyond.most_gbps) == (("storage_read aws:s",), 7)
    few = refused(triangle, MinimizeCost(12), limits=Limits(vcpu_quota={"aws": 9}))
    assert (few.binding, few.most_gbps) == (("vcpu_quota aws:s",), 10)
    careful = inside(triangle, MinimizeCost(40), limits=Limits(safety_margin=0.1))
    assert careful.throughput_gbps == 40


def test_the_cheapest_type_that_does_it_is_taken(small_grid: Any) -> None:
    types = [
        InstanceType("aws", "small", 2, 4.0, 4.0, 64, 0.36, 2),
        InstanceType("aws", "large", 8, 20.0, 20.0, 64, 3.6, 2),
    ]
    grid = small_grid({(S, "gcp:t"): (5.0, 0.1)}, types)
    assert inside(grid, MinimizeCost(6)).instances[S].type == "small"
    assert inside(grid, MinimizeCost(9)).instances[S].type == "large"
    assert inside(grid, MaximizeThroughput(max_usd_per_gb=1)).throughput_gbps == 40
    assert refused(grid, MinimizeCost(50)).most_gbps == 40


def test_a_file_here_costs_its_egress_and_no_instance(shipped: Grid) -> None:
    answer = plan(
        shipped, "gcp:us-east1", "local:here", MaximizeThroughput(max_cost_usd=2), volume_gb=10
    )
    egress = answer.cost.egress_usd
    assert egress
    assert answer.cost.total_usd == pytest.approx(egress * 1.0359)
    assert answer.cost.boot_usd == 0
    with pytest.raises(PlanInfeasible) as caught:
        plan(
            shipped, "gcp:us-east1", "local:here", MaximizeThroughput(max_cost_usd=1), volume_gb=10
        )
    assert caught.value.least_usd == pytest.approx(answer.cost.total_usd, rel=1e-4)
