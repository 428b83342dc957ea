from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Deadline, Limits, MaximizeThroughput, MinimizeCost
from skyplane_orchestration.planner import direct, plan
from skyplane_orchestration.planner.pricing import instance_billing, plan_cost
from skyplane_orchestration.planner.pricing.instance_billing import BILLING


def test_a_million_small_objects_cost_what_their_requests_do(shipped: Grid) -> None:
    """GET 0.4, PUT 5.0, and a thousand listings of each side at 0.005."""
    usd = plan_cost.request_usd(shipped, "aws:us-east-1", ["aws:eu-west-1"], 1_000_000, 1.0, 16)
    assert usd == pytest.approx(0.4 + 5.0 + 2 * 0.005)


def test_the_parts_of_large_objects_are_requests_too(shipped: Grid) -> None:
    tebibyte_gb = 2**40 / 1e9
    small = plan_cost.request_usd(shipped, "aws:us-east-1", ["aws:eu-west-1"], 1, tebibyte_gb, 8)
    large = plan_cost.request_usd(shipped, "aws:us-east-1", ["aws:eu-west-1"], 1, tebibyte_gb, 64)
    assert small == pytest.approx(2**17 * 0.0054 / 1000, rel=0.01)
    assert small == pytest.approx(8 * large, rel=0.01)


def test_an_object_up_to_a_size_is_one_request(shipped: Grid) -> None:
    ends = shipped, "aws:us-east-1", ["aws:eu-west-1"]
    mib_gb = 2**20 / 1e9
    whole = plan_cost.request_usd(*ends, 1000, 64_000 * mib_gb, 16, whole_mib=64)
    assert whole == pytest.approx(plan_cost.request_usd(*ends, 1000, 1.0, None))
    assert plan_cost.request_usd(*ends, 1000, 65_000 * mib_gb, 16, whole_mib=64) > 5 * whole


def test_google_gets_fewer_parts_and_joins_them_by_32(shipped: Grid) -> None:
    """10 GiB: 160 parts of 64 MiB, a marker, 5 joins and the last one, and a listing."""
    volume_gb = 10 * 2**30 / 1e9
    ends = shipped, "local:here", ["gcp:europe-west3"]
    usd = plan_cost.request_usd(*ends, 1, volume_gb, 16, whole_mib=64)
    assert usd == pytest.approx((160 + 2 + 5 + 1) * 0.005 / 1000)
    chosen = plan_cost.request_usd(*ends, 1, volume_gb, 16, whole_mib=16)
    assert chosen == pytest.approx((640 + 2 + 20 + 1) * 0.005 / 1000)


def test_this_machine_charges_no_requests(shipped: Grid) -> None:
    assert plan_cost.request_usd(shipped, "local:here", ["local:here"], 1000, 1.0, 16) == 0


def test_sums_need_a_volume_and_requests_a_count(triangle: Grid) -> None:
    bare = plan(triangle, "aws:s", "gcp:t", MinimizeCost(1)).cost
    assert (bare.egress_usd, bare.instance_usd, bare.request_usd, bare.total_usd) == (None,) * 4
    known = plan(triangle, "aws:s", "gcp:t", MinimizeCost(1), volume_gb=10, objects=100).cost
    assert known.egress_usd is not None
    assert known.instance_usd is not None
    assert known.request_usd is not None
    assert known.boot_usd is not None
    assert known.minimum_billing_usd == 0
    assert known.total_usd == pytest.approx(
        known.egress_usd + known.instance_usd + known.boot_usd + known.request_usd
    )
    assert known.usd_per_gb == pytest.approx((known.egress_usd + known.instance_usd) / 10)
    assert known.usd_per_gb == pytest.approx(bare.usd_per_gb)


def test_a_plan_waits_for_its_slowest_cloud(triangle: Grid) -> None:
    slow, fast = BILLING["azure"].provision_s, BILLING["aws"].provision_s
    assert slow > fast
    assert instance_billing.provision_s(["aws:s", "gcp:t", "azure:r"], {}) == slow
    assert direct(triangle, "aws:s", "gcp:t").provision_s == fast
    assert instance_billing.provision_s(["local:a"], {}) == 2


def test_a_plan_counts_the_time_that_a_provisioner_knows(triangle: Grid) -> None:
    """In its plan_cost, and against a deadline."""
    ends = "aws:s", "gcp:t"
    known = replace(triangle, provision_s={"aws": 20.0, "gcp": 30.0})
    assert (direct(known, *ends).provision_s, direct(triangle, *ends).provision_s) == (30, 75)
    job: dict[str, Any] = {"volume_gb": 100.0, "limits": Limits(max_relays=0)}
    usual, quick = (plan(grid, *ends, MinimizeCost(1), **job).cost for grid in (triangle, known))
    assert usual.boot_usd
    assert quick.boot_usd == pytest.approx(usual.boot_usd * 30 / 75)
    fastest = plan(triangle, *ends, MaximizeThroughput(max_usd_per_gb=9), **job).transfer_s
    assert fastest
    soon = fastest + 40
    with pytest.raises(PlanInfeasible):
        plan(triangle, *ends, Deadline(soon), **job)
    assert plan(known, *ends, Deadline(soon), **job).provision_s == 30
