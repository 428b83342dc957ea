"""What instances are paid for beside the seconds in which bytes move."""

from __future__ import annotations

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MinimizeCost
from skyplane_orchestration.planner import plan
from skyplane_orchestration.planner.pricing import instance_billing
from skyplane_orchestration.planner.pricing.instance_billing import BILLING

S, T = "aws:s", "gcp:t"


def test_every_fact_has_a_source_and_a_date() -> None:
    assert set(BILLING) == {"aws", "gcp", "azure", "local"}
    for facts in BILLING.values():
        assert facts.source
        assert facts.as_of[:2] == "20"
    assert BILLING["local"].minimum_s == 0


def test_an_instance_waits_for_the_slowest_cloud_and_is_paid_for_it() -> None:
    assert instance_billing.billed_s("aws:a", 400, 75) == 475
    assert instance_billing.billed_s("aws:a", 400, 120) == 520
    assert instance_billing.billed_s("azure:a", 60, 120) == 300
    assert instance_billing.billed_s("local:a", 60, 2) == 62


def test_the_items_of_a_long_job_by_hand(triangle: Grid) -> None:
    """100 GB at 2.5 Gbit/s take 320 s; two instances at 0.001 USD/s wait 75 s before."""
    cost = plan(triangle, S, T, MinimizeCost(2.5, exactly=True), volume_gb=100).cost
    assert cost.egress_usd == pytest.approx(10)
    assert cost.instance_usd == pytest.approx(0.64)
    assert cost.boot_usd == pytest.approx(0.15)
    assert cost.minimum_billing_usd == 0
    assert cost.total_usd == pytest.approx(10.79)
    assert cost.usd_per_gb == pytest.approx(0.1064)


def test_a_short_life_is_paid_for_as_a_longer_one(triangle: Grid) -> None:
    """4 Gbit/s over azure: 10 s of moving and 120 of waiting, of 300 that Azure charges."""
    cost = plan(
        triangle,
        S,
        T,
        MinimizeCost(4, exactly=True),
        volume_gb=5,
        limits=Limits(instance_limit=1),
    ).cost
    assert cost.boot_usd == pytest.approx(3 * 0.001 * 120)
    assert cost.minimum_billing_usd == pytest.approx(0.001 * (300 - 130))


def test_a_small_job_takes_few_instances_and_a_large_one_the_fastest(triangle: Grid) -> None:
    """Every multiple of 2.5 Gbit/s costs the same per GB, but each instance boots for itself."""
    small = plan(triangle, S, T, MinimizeCost(2), volume_gb=1)
    assert small.instance_count == 2
    assert small.solver.gap <= 0.05
