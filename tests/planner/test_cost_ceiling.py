"""The fastest plan for a total, where most of the money is the wait of instances."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.model.job import (
    ANY_REGION,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
)
from skyplane_orchestration.planner import plan

S, T, RELAY = "aws:s", "aws:t", "aws:r"
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


@pytest.mark.parametrize(
    ("objective", "policy", "per_gb", "total"),
    [
        (MaximizeThroughput(max_usd_per_gb=0.06), ANY_REGION, 0.06, None),
        (MaximizeThroughput(max_cost_usd=0.62), ANY_REGION, None, 0.62),
        (MaximizeThroughput(max_usd_per_gb=0.06), Policy(max_job_usd=0.63), 0.06, 0.63),
        (MinimizeCost(), Policy(max_job_usd=0.7), None, 0.7),
        (MinimizeCost(), ANY_REGION, None, None),
    ],
)
def test_the_lowest_ceiling_leaves_egress_what_the_rest_of_the_plan_does_not_cost(
    small_grid: Any, objective: Objective, policy: Policy, per_gb: float | None, total: float | None
) -> None:
    """A tenth of the egress comes on top of it, for headers."""
    way = (RATE_GBPS, USD_PER_GB)
    grid = small_grid({(S, T): (1.0, USD_PER_GB), (S, RELAY): way, (RELAY, T): way}, [KIND])
    document = {**grid.price_document, "bytes_and_instances": {"packet_headers": 0.1}}
    grid = replace(grid, price_document=document)
    one = Limits(instance_limit=1)
    found = plan(grid, S, T, objective, volume_gb=10.0, limits=one, policy=policy)
    cost = found.cost
    assert cost.egress_usd is not None
    assert cost.total_usd is not None
    assert cost.other_usd == {"packet headers": pytest.approx(cost.egress_usd / 10)}
    room = found.egress_ceiling_usd_per_gb
    if room is None:
        assert (per_gb, total) == (None, None)
        return
    more = room - cost.egress_usd / 10.0
    assert more >= -1e-9
    spare = []
    if per_gb is not None:
        spare.append(per_gb - (cost.usd_per_gb + more))
    if total is not None:
        spare.append(total / 10.0 - (cost.total_usd / 10.0 + 1.1 * more))
    assert min(spare) == pytest.approx(0.0, abs=1e-6)
