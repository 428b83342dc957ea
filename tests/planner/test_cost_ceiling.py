"""The fastest plan for a total, where most of the money is the wait of instances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.model.job import Limits, MaximizeThroughput
from skyplane_orchestration.planner import plan

S, T = "aws:s", "aws:t"
RATE_GBPS, USD_PER_GB, USD_PER_S, WAIT_S = 5.0, 0.05, 1e-4, 75.0
KIND = InstanceType(
    cloud="aws",
    name="aws-any",
    vcpus=4,
    egress_gbps=RATE_GBPS,
    ingress_gbps=RATE_GBPS,
    connection_limit=64,
    usd_per_hour=USD_PER_S * 3600,
    instance_limit=100,
)


def total_usd(instances: int, volume_gb: float) -> float:
    """Of the direct path with so many instances at each end, each of them full."""
    transfer_s = volume_gb * 8 / (RATE_GBPS * instances)
    return USD_PER_GB * volume_gb + 2 * instances * USD_PER_S * (WAIT_S + transfer_s)


@pytest.mark.parametrize("instances", [1, 3, 60, 99])
@pytest.mark.parametrize("volume_gb", [0.01, 1.0, 20.0])
def test_a_short_job_gets_as_many_instances_as_its_money_brings_up(
    small_grid: Any, instances: int, volume_gb: float
) -> None:
    grid = small_grid({(S, T): (RATE_GBPS, USD_PER_GB)}, [KIND])
    money = total_usd(instances, volume_gb) * 1.01
    answer = plan(
        grid,
        S,
        T,
        MaximizeThroughput(max_cost_usd=money),
        volume_gb=volume_gb,
        limits=Limits(instance_limit=100),
    )
    assert answer.cost.total_usd is not None
    assert answer.cost.total_usd <= money
    assert answer.throughput_gbps >= RATE_GBPS * instances * 0.98
    assert answer.solver.bound >= RATE_GBPS * instances * (1 - 1e-6)


def test_a_ceiling_that_only_the_solvers_tolerance_keeps_costs_no_rate(shipped: Grid) -> None:
    """The program of the rate exceeded the ceiling by 1e-6, and the plan fell to 7 Gbit/s."""
    answer = plan(
        replace(shipped, has_own_prices=True),
        "gcp:europe-central2",
        "azure:koreasouth",
        MaximizeThroughput(max_cost_usd=0.3109712995093514),
        volume_gb=1.6,
        limits=Limits(instance_limit=16, max_relays=1),
    )
    assert answer.throughput_gbps >= 7.8
