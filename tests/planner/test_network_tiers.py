"""The network tier of Google Cloud, a choice of the plan: its prices, and which regions get it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.grids.egress_pricing import with_network_tier
from skyplane_orchestration.grids.loader import with_overrides
from skyplane_orchestration.grids.price_overrides import PriceOverride
from skyplane_orchestration.model.job import Limits, MinimizeCost, NetworkTierRule, Policy
from skyplane_orchestration.planner import compare, explain_plan, frontier, multicast_plan, plan
from skyplane_orchestration.planner.pricing.way import SERVICE
from skyplane_orchestration.units import usd_per_gib_to_usd_per_gb

if TYPE_CHECKING:
    from skyplane_orchestration.model.plan import TransferPlan

BELGIUM, IOWA, DOHA = "gcp:europe-west1", "gcp:us-central1", "gcp:me-central1"
VIRGINIA = "aws:us-east-1"
GRID = load_grid()
AT_3 = MinimizeCost(3.0)
DIRECT = Limits(max_relays=0)


def planned(src: str, dst: str, tier: NetworkTierRule) -> TransferPlan:
    return plan(GRID, src, dst, AT_3, volume_gb=100.0, policy=Policy(network_tier=tier))


def per_gb(usd_per_gib: float) -> Any:
    return pytest.approx(usd_per_gib_to_usd_per_gb(usd_per_gib))


@pytest.mark.parametrize("tier", ["standard", "auto"])
def test_the_standard_tier_has_the_price_of_its_source(tier: NetworkTierRule) -> None:
    grid = with_network_tier(GRID, tier)
    assert GRID.egress_price(BELGIUM, VIRGINIA) == per_gb(0.12)
    assert grid.egress_price(BELGIUM, VIRGINIA) == per_gb(0.085)
    assert grid.egress_price("gcp:asia-northeast1", VIRGINIA) == per_gb(0.11)
    assert grid.egress_price(BELGIUM, "aws:ap-southeast-2") == per_gb(0.085)
    assert grid.egress_price(BELGIUM, "local:office") == per_gb(0.085)


def test_bytes_inside_google_and_out_of_other_clouds_keep_their_price() -> None:
    rows, columns = (with_network_tier(GRID, "standard").usd_per_gb != GRID.usd_per_gb).nonzero()
    clouds = [region.cloud for region in GRID.regions]
    changed = {(clouds[row], clouds[column]) for row, column in zip(rows, columns, strict=True)}
    assert changed == {("gcp", "aws"), ("gcp", "azure"), ("azure", "aws"), ("azure", "gcp")}


def test_a_region_without_the_tier_stays_premium() -> None:
    found = planned(DOHA, VIRGINIA, "standard")
    assert found.instances[DOHA].network_tier == "premium"
    assert found.cost == planned(DOHA, VIRGINIA, "premium").cost


@pytest.mark.parametrize("tier", ["premium", "standard", "auto"])
def test_a_plan_has_the_tier_of_its_policy(tier: NetworkTierRule) -> None:
    found = planned(BELGIUM, VIRGINIA, tier)
    is_standard = tier != "premium"
    own = "standard" if is_standard else "premium"
    groups = found.to_dict()["instances"]
    assert [groups[tag]["network_tier"] for tag in (BELGIUM, VIRGINIA)] == [own, ""]
    assert any("was not measured" in note for note in found.notes) == is_standard
    (edge,) = [edge for edge in found.edges if edge.src == BELGIUM]
    assert edge.usd_per_gb == per_gb(0.085 if is_standard else 0.12)
    assert found.throughput_gbps == planned(BELGIUM, VIRGINIA, "premium").throughput_gbps


@pytest.mark.parametrize("ends", [(VIRGINIA, BELGIUM), (BELGIUM, IOWA), (BELGIUM, BELGIUM)])
def test_a_region_that_sends_nothing_to_other_clouds_stays_premium(ends: tuple[str, str]) -> None:
    assert planned(*ends, "standard").instances[BELGIUM].network_tier == "premium"


def test_auto_keeps_the_premium_tier_where_an_agreed_price_holds_for_both() -> None:
    agreed = PriceOverride(f"{BELGIUM}>*", 0.01, 0.01, "GB", "agreed")
    grid = with_overrides(GRID, [agreed])
    assert BELGIUM not in with_network_tier(grid, "auto").standard_tier
    assert IOWA in with_network_tier(grid, "auto").standard_tier
    assert with_network_tier(grid, "standard").egress_price(BELGIUM, VIRGINIA) == 0.01


def test_frontier_trees_and_explanation_count_the_same_prices() -> None:
    policy = Policy(network_tier="auto")
    found = frontier(GRID, BELGIUM, VIRGINIA, points=2, limits=DIRECT, policy=policy).plans[0]
    assert found.instances[BELGIUM].network_tier == "standard"
    tree = multicast_plan(GRID, BELGIUM, [VIRGINIA], AT_3, limits=DIRECT, policy=policy)
    assert tree.instances[BELGIUM].network_tier == "standard"
    explained = explain_plan(GRID, found, limits=DIRECT, policy=policy)
    assert explained.direct is not None
    assert explained.direct.edges[0].usd_per_gb == per_gb(0.085)


def test_services_are_compared_at_their_own_prices() -> None:
    policy = Policy(network_tier="standard")
    ours, plain = (
        compare(GRID, BELGIUM, VIRGINIA, AT_3, volume_gb=100.0, limits=DIRECT, policy=one)
        for one in (policy, Policy())
    )
    services = [[way for way in one.ways if way.kind == SERVICE] for one in (ours, plain)]
    assert services[0] == services[1] != []
    assert ours.way("cheapest").egress_usd != plain.way("cheapest").egress_usd


def test_azure_has_routing_preference_as_its_tier() -> None:
    eastus = "azure:eastus"
    found = planned(eastus, VIRGINIA, "standard")
    assert found.instances[eastus].network_tier == "standard"
    assert found.edges[0].usd_per_gb == per_gb(0.08)
    assert planned(eastus, VIRGINIA, "premium").edges[0].usd_per_gb == per_gb(0.087)
    assert planned(eastus, VIRGINIA, "auto").edges[0].usd_per_gb == per_gb(0.08)
    brazil = with_network_tier(GRID, "standard").egress_price("azure:brazilsouth", VIRGINIA)
    assert brazil == per_gb(0.12)


@pytest.mark.parametrize(
    ("src", "usd_per_gib"),
    [
        ("gcp:southamerica-east1", 0.19),
        ("gcp:southamerica-west1", 0.19),
        ("gcp:africa-south1", 0.15),
        ("gcp:me-central2", 0.19),
    ],
)
def test_a_plan_says_which_price_nobody_has_read(src: str, usd_per_gib: float) -> None:
    found = plan(GRID, src, VIRGINIA, AT_3, volume_gb=100.0, limits=DIRECT)
    assert found.edges[0].usd_per_gb == per_gb(usd_per_gib)
    assert [note for note in found.notes if "was not read" in note or "never verified" in note]
