from __future__ import annotations

from itertools import pairwise

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.job import Limits, MinimizeCost, Policy
from skyplane_orchestration.planner import frontier, plan, violations


def test_every_plan_is_faster_and_dearer_than_the_one_before(shipped: Grid) -> None:
    plans = frontier(
        shipped, "gcp:us-east5", "gcp:asia-south1", points=8, limits=Limits(instance_limit=2)
    )
    assert len(plans) > 3
    for slow, fast in pairwise(plans):
        assert slow.throughput_gbps < fast.throughput_gbps
        assert slow.cost.usd_per_gb < fast.cost.usd_per_gb
    for one in plans:
        assert violations(one, shipped, Limits(instance_limit=2)) == []


def test_the_ends_are_the_cheapest_and_the_fastest(triangle: Grid) -> None:
    plans = frontier(triangle, "aws:s", "gcp:t", points=6, limits=Limits(instance_limit=1))
    cheapest = plan(triangle, "aws:s", "gcp:t", MinimizeCost(0.1), limits=Limits(instance_limit=1))
    assert plans[0].cost.usd_per_gb == pytest.approx(cheapest.cost.usd_per_gb)
    assert plans[-1].throughput_gbps == pytest.approx(5.0, rel=1e-5)
    assert plans[-1].relays == ("azure:r",)


def test_a_frontier_may_be_a_single_plan(triangle: Grid) -> None:
    assert len(frontier(triangle, "aws:s", "aws:s")) == 1
    alone = frontier(
        triangle,
        "aws:s",
        "gcp:t",
        limits=Limits(instance_limit=1),
        policy=Policy(exclude=("azure:*",)),
    )
    assert [one.relays for one in alone] == [()]


def test_one_point_is_no_frontier(triangle: Grid) -> None:
    with pytest.raises(ConfigurationInvalid, match="two ends"):
        frontier(triangle, "aws:s", "gcp:t", points=1)
