"""What a bill has beside egress, instances and requests, and that plans are searched with it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost, Policy
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.source_contents import SourceContents
from skyplane_orchestration.planner import multicast_plan, plan

VIRGINIA, OREGON, IOWA, EASTUS = (
    *("aws:us-east-1", "aws:us-west-2"),
    *("gcp:us-central1", "azure:eastus"),
)
DIRECT = Limits(max_relays=0)
AT_3 = MinimizeCost(3.0)


def planned(grid: Grid, src: str, dst: str, objects: int = 1000, **policy: Any) -> TransferPlan:
    return plan(
        grid,
        src,
        dst,
        AT_3,
        volume_gb=100.0,
        objects=objects,
        limits=DIRECT,
        policy=Policy(**policy),
    )


def test_headers_addresses_and_disks_come_with_every_plan(shipped: Grid) -> None:
    found = planned(shipped, VIRGINIA, OREGON)
    cost, hours = found.cost, ((found.transfer_s or 0.0) + found.provision_s) / 3600
    assert cost.egress_usd
    assert cost.other_usd == {
        "packet headers": pytest.approx(cost.egress_usd * 0.0359),
        "public IPv4 addresses": pytest.approx(2 * hours * 0.005),
        "disks": pytest.approx(2 * hours * 0.00088),
    }
    assert found.solver.status == "optimal"


def test_processes_of_this_machine_have_no_addresses_and_disks(shipped: Grid) -> None:
    assert planned(shipped.with_processes("aws"), VIRGINIA, VIRGINIA).cost.other_usd == {}


def test_a_price_per_gb_is_without_them(shipped: Grid) -> None:
    plain = planned(replace(shipped, has_own_prices=True), VIRGINIA, OREGON)
    found = planned(shipped, VIRGINIA, OREGON)
    assert plain.cost.other_usd == {}
    assert found.cost.usd_per_gb == plain.cost.usd_per_gb
    assert found.edges == plain.edges


@pytest.mark.parametrize(
    ("src", "name", "per_gib", "read"),
    [
        (VIRGINIA, "STANDARD_IA", 0.01, 0.001),
        (VIRGINIA, "ONEZONE_IA", 0.01, 0.001),
        (VIRGINIA, "GLACIER_IR", 0.03, 0.01),
        (IOWA, "NEARLINE", 0.01, 0.001),
        (IOWA, "COLDLINE", 0.02, 0.01),
        (IOWA, "ARCHIVE", 0.05, 0.05),
        (EASTUS, "Cool", 0.01, 0.001),
        (EASTUS, "Cold", 0.03, 0.01),
    ],
)
def test_a_storage_class_costs_its_retrieval_and_its_reads(
    shipped: Grid, src: str, name: Any, per_gib: float, read: float
) -> None:
    plain = planned(shipped, src, OREGON, objects=100_000)
    found = planned(shipped, src, OREGON, objects=100_000, source_storage_class=name)
    assert found.cost.other_usd["retrieval"] == pytest.approx(100e9 / 2**30 * per_gib)
    standard = shipped.request_prices(src.partition(":")[0])["read"]
    assert found.cost.request_usd == pytest.approx(
        (plain.cost.request_usd or 0.0) + 100 * (read - standard)
    )


def test_each_class_of_a_listing_costs_by_its_share(shipped: Grid) -> None:
    """Reads count by the bytes too; DEEP_ARCHIVE has no price."""
    shares = {
        "STANDARD_IA": 0.1,
        "GLACIER_IR": 0.2,
        "DEEP_ARCHIVE": 0.3,
    }
    listed = replace(shipped, contents=SourceContents(0.0, shares))
    plain, found = (planned(grid, VIRGINIA, OREGON, 100_000) for grid in (shipped, listed))
    gib = 100e9 / 2**30
    assert found.cost.other_usd["retrieval"] == pytest.approx(gib * (0.1 * 0.01 + 0.2 * 0.03))
    reads = 10 * (0.001 - 0.0004) + 20 * (0.01 - 0.0004)
    assert found.cost.request_usd == pytest.approx((plain.cost.request_usd or 0.0) + reads)
    notes = [note for note in found.notes if "storage class" in note]
    assert notes == [
        f"{share} % of the bytes are in the storage class {name}; the total counts their retrieval"
        for share, name in ((10, "STANDARD_IA"), (20, "GLACIER_IR"))
    ]
    assert found.contents == listed.contents
    # What the user says holds for all objects.
    given = planned(listed, VIRGINIA, OREGON, 100_000, source_storage_class="ONEZONE_IA")
    assert given.cost.other_usd["retrieval"] == pytest.approx(gib * 0.01)
    assert not any("storage class" in note for note in given.notes)


@pytest.mark.parametrize(("src", "name"), [(IOWA, "STANDARD_IA"), (VIRGINIA, "Cool")])
def test_a_class_of_another_cloud_is_refused(shipped: Grid, src: str, name: str) -> None:
    with pytest.raises(ConfigurationInvalid, match=f"{name} is not a class of {src[:3]}") as caught:
        planned(shipped, src, OREGON, source_storage_class=name)
    assert caught.value.fields == ("source_storage_class",)


@pytest.mark.parametrize(
    ("ends", "src", "dst", "asked"),
    [
        ("both", VIRGINIA, OREGON, 2),
        ("source", VIRGINIA, IOWA, 1),
        ("destination", IOWA, VIRGINIA, 1),
        ("both", VIRGINIA, IOWA, 1),
        ("destination", VIRGINIA, IOWA, 0),
        ("none", VIRGINIA, OREGON, 0),
    ],
)
def test_only_ends_in_s3_pay_for_keys(
    shipped: Grid, ends: Any, src: str, dst: str, asked: int
) -> None:
    found = planned(shipped, src, dst, objects=10_000, key_requests=ends)
    assert found.cost.other_usd.get("key requests", 0.0) == pytest.approx(asked * 0.03)


def test_a_ceiling_in_usd_holds_with_all_items(shipped: Grid) -> None:
    policy = Policy(source_storage_class="STANDARD_IA", key_requests="both")
    common: dict[str, Any] = {"volume_gb": 100.0, "objects": 10_000, "policy": policy}
    cheapest = plan(shipped, VIRGINIA, IOWA, AT_3, **common)
    assert cheapest.cost.total_usd
    most = cheapest.cost.total_usd * 1.05
    found = plan(shipped, VIRGINIA, IOWA, MaximizeThroughput(max_cost_usd=most), **common)
    assert found.cost.total_usd
    assert found.cost.total_usd <= most
    assert found.solver.gap < 0.01


def test_trees_count_them_too(shipped: Grid) -> None:
    found = multicast_plan(shipped, VIRGINIA, [OREGON, IOWA], AT_3, volume_gb=100.0, limits=DIRECT)
    assert found.cost.egress_usd
    assert found.cost.other_usd["packet headers"] == pytest.approx(found.cost.egress_usd * 0.0359)
