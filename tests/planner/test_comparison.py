"""Every way side by side: what each one is, and how they must lie to one another."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid, PlanInfeasible, UnknownRegion
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Policy,
)
from skyplane_orchestration.planner import Comparison, best_relay, compare, direct, plan
from skyplane_orchestration.planner.comparison import MORE_MONEY
from skyplane_orchestration.planner.pricing.way import PLAN, SERVICE

if TYPE_CHECKING:
    from tests.planner.conftest import GridOf

S, T, R = "aws:s", "gcp:t", "azure:r"
PLANS = [
    "knee", "cheapest", "fastest_at_ceiling", "fastest", "direct_1", "direct_n", "ron_1", "ron_n",
]  # fmt: skip
TABLE_2 = ("azure:eastus", "aws:ap-northeast-1")


def rate(comparison: Comparison, name: str) -> float:
    found = comparison.way(name).throughput_gbps
    assert found is not None
    return found


def price(comparison: Comparison, name: str) -> float:
    found = comparison.way(name).usd_per_gb
    assert found is not None
    return found


def test_each_way_is_the_plan_that_its_name_says(triangle: Grid) -> None:
    found = compare(triangle, S, T, volume_gb=100, objects=10, limits=Limits(instance_limit=2))
    assert [way.name for way in found.ways if way.kind == PLAN] == PLANS
    assert found.goal == MinimizeCost(2.5)
    limits = Limits(instance_limit=2)
    for name, count in (("direct_1", 1), ("direct_n", 2)):
        expected = direct(triangle, S, T, count, 100, objects=10, limits=limits)
        assert rate(found, name) == expected.throughput_gbps
        assert found.way(name).total_usd == expected.cost.total_usd
    for name, count in (("ron_1", 1), ("ron_n", 2)):
        ron = best_relay(triangle, S, T, count, 100, objects=10, limits=limits)
        assert (rate(found, name), found.way(name).relays) == (ron.throughput_gbps, (R,))
    expected = plan(triangle, S, T, MinimizeCost(2.5), volume_gb=100, objects=10, limits=limits)
    assert price(found, "cheapest") == pytest.approx(expected.cost.usd_per_gb)
    # Both edges out of the source at once: 2 instances carry 10 Gbit/s away, no more.
    assert rate(found, "fastest") == pytest.approx(10.0)


def test_the_goal_and_the_ceiling_that_were_asked_for(triangle: Grid) -> None:
    goal = MinimizeCost(4.0, exactly=True)
    found = compare(triangle, S, T, goal)
    assert found.goal == goal
    assert rate(found, "cheapest") == pytest.approx(4.0)
    ceiling = MaximizeThroughput(max_usd_per_gb=0.11)
    found = compare(triangle, S, T, ceiling)
    assert (found.ceiling, found.goal) == (ceiling, MinimizeCost(2.5))
    assert price(found, "fastest_at_ceiling") <= 0.11
    in_all = MaximizeThroughput(max_cost_usd=11.0)
    found = compare(triangle, S, T, in_all, volume_gb=100)
    total = found.way("fastest_at_ceiling").total_usd
    assert total is not None
    assert total <= 11.0 * (1 + 1e-6)
    assert "11 USD in all" in found.way("fastest_at_ceiling").notes[0]
    deadline = Deadline(300.0)
    found = compare(triangle, S, T, deadline, volume_gb=10)
    assert found.goal == deadline
    seconds, up_s = found.way("cheapest").transfer_s, found.way("cheapest").plan
    assert seconds is not None
    assert up_s is not None
    assert seconds + up_s.provision_s <= 300 * (1 + 1e-6)


def test_without_a_ceiling_it_is_a_quarter_above_the_cheapest(triangle: Grid) -> None:
    found = compare(triangle, S, T, volume_gb=100, objects=10)
    total = found.way("cheapest").total_usd
    assert total is not None
    assert found.ceiling == MaximizeThroughput(max_cost_usd=total * MORE_MONEY)
    dearer = found.way("fastest_at_ceiling").total_usd
    assert dearer is not None
    assert dearer <= total * MORE_MONEY * (1 + 1e-6)
    found = compare(triangle, S, T)
    ceiling = price(found, "cheapest") * MORE_MONEY
    assert found.ceiling == MaximizeThroughput(max_usd_per_gb=ceiling)
    assert price(found, "fastest_at_ceiling") <= ceiling * (1 + 1e-6)
    assert f"{ceiling:.4g}" in found.way("fastest_at_ceiling").notes[0]


@pytest.mark.parametrize(
    ("src", "dst"),
    [TABLE_2, ("aws:ap-southeast-2", "aws:eu-west-3"), ("gcp:us-east4", "azure:japaneast")],
)
def test_the_optimum_is_beaten_by_no_baseline(measured: Grid, src: str, dst: str) -> None:
    found = compare(measured, src, dst, limits=Limits(instance_limit=4))
    baselines = ["direct_1", "direct_n", "ron_1", "ron_n"]
    assert rate(found, "fastest") >= max(rate(found, name) for name in baselines) * (1 - 1e-6)
    floor, ceiling = rate(found, "direct_1"), price(found, "cheapest") * MORE_MONEY
    for name in baselines:
        if rate(found, name) >= floor:
            assert price(found, "cheapest") <= price(found, name) * (1 + 1e-6)
        if price(found, name) <= ceiling:
            assert rate(found, "fastest_at_ceiling") >= rate(found, name) * (1 - 1e-3)


def test_ron_costs_more_and_the_optimum_less_as_in_table_2(measured: Grid) -> None:
    """Four instances: RON is faster than the direct path, and dearer than it has to be."""
    limits = Limits(instance_limit=4)
    asked = MinimizeCost(min_throughput_gbps=6.0)
    found = compare(measured, *TABLE_2, asked, volume_gb=16, limits=limits)
    assert rate(found, "ron_n") > rate(found, "direct_n")
    assert price(found, "ron_n") > price(found, "direct_n") * 1.1
    assert price(found, "cheapest") < price(found, "ron_n")


def test_the_items_of_every_way_add_up_to_its_total(shipped: Grid) -> None:
    found = compare(shipped, "aws:us-east-1", "gcp:us-east4", volume_gb=50, objects=100)
    for way in found.ways:
        items = (
            *(way.egress_usd, way.instance_usd, way.request_usd, way.service_usd),
            way.other_usd,
        )
        if way.total_usd is not None:
            assert way.total_usd == pytest.approx(sum(item or 0.0 for item in items))
    assert any(way.total_usd is not None for way in found.ways if way.kind == SERVICE)


def test_services_stand_beside_them_with_the_same_columns(triangle: Grid, shipped: Grid) -> None:
    found = compare(shipped, "aws:us-east-1", "gcp:us-east4", volume_gb=50, objects=100)
    document = found.to_dict()
    assert {frozenset(way) for way in document["ways"]} == {frozenset(document["ways"][0])}
    services = [way for way in document["ways"] if way["kind"] == SERVICE]
    assert {way["name"].partition(",")[0] for way in services} == {
        "AWS DataSync",
        "Google Storage Transfer Service",
        "AzCopy",
    }
    for way in services:
        assert (way["throughput_gbps"], way["transfer_s"], way["plan"]) == (None, None, None)
        assert bool(way["reason"]) != bool(way["fee"])
        assert way["reason"] or way["fee"]["source"]
    assert json.loads(json.dumps(document)) == document


def test_a_way_that_does_not_exist_has_its_reason(small_grid: GridOf) -> None:
    grid = small_grid({(S, R): (5.0, 0.01), (R, "azure:m"): (5.0, 0.01), ("azure:m", T): (5, 0.1)})
    found = compare(grid, S, T)
    for name in ("direct_1", "direct_n", "ron_1", "ron_n"):
        assert "no edge" in found.way(name).reason
        assert found.way(name).throughput_gbps is None
    assert found.way("cheapest").relays == ("azure:m", R)
    assert "no direct path" in found.way("cheapest").notes[0]


def test_the_policy_holds_for_ron_as_well(triangle: Grid) -> None:
    found = compare(triangle, S, T, policy=Policy(exclude_regions=(R,)))
    assert {way.relays for way in found.ways} == {()}


def test_where_no_edge_is_crossed_the_services_alone_are_beside_the_plan(shipped: Grid) -> None:
    for src, dst in (("aws:eu-west-1", "aws:eu-west-1"), ("local:here", "azure:eastus")):
        found = compare(shipped, src, dst, volume_gb=1)
        assert [way.name for way in found.ways if way.kind == PLAN] == ["knee", "cheapest"]
        assert found.ceiling is None
        assert "direct path" not in found.way("cheapest").notes[0]
        assert found.to_dict()["ceiling"] is None


def test_what_was_asked_for_and_cannot_be_is_an_error(triangle: Grid) -> None:
    with pytest.raises(PlanInfeasible, match="the most is"):
        compare(triangle, S, T, MinimizeCost(1e6))
    with pytest.raises(PlanInfeasible, match="the cheapest costs"):
        compare(triangle, S, T, MaximizeThroughput(max_usd_per_gb=1e-6))
    with pytest.raises(ConfigurationInvalid, match="volume"):
        compare(triangle, S, T, MaximizeThroughput(max_cost_usd=5.0))
    with pytest.raises(UnknownRegion):
        compare(triangle, S, "gcp:u")
