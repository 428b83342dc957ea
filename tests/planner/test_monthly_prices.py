"""Egress by the volume of a month: which tiers a plan pays, and on which grids."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.grids.egress_pricing import priced_for
from skyplane_orchestration.grids.learned import with_learned
from skyplane_orchestration.grids.loader import with_overrides
from skyplane_orchestration.grids.price_overrides import PriceOverride
from skyplane_orchestration.model.job import (
    ANY_REGION,
    Limits,
    MinimizeCost,
    Policy,
)
from skyplane_orchestration.planner import (
    compare,
    direct,
    explain_plan,
    frontier,
    multicast_plan,
    plan,
)
from skyplane_orchestration.planner.pricing.way import SERVICE
from skyplane_orchestration.units import usd_per_gib_to_usd_per_gb

if TYPE_CHECKING:
    from skyplane_orchestration.model.plan import TransferPlan

VIRGINIA, IOWA, EASTUS = "aws:us-east-1", "gcp:us-central1", "azure:eastus"
GRID = load_grid()
AT_3, DIRECT = MinimizeCost(3.0), Limits(max_relays=0)
GIB_PER_GB = 1e9 / 2**30


def egress_usd(src: str, dst: str, volume_gb: float, **policy: Any) -> float:
    found = plan(GRID, src, dst, AT_3, volume_gb=volume_gb, limits=DIRECT, policy=Policy(**policy))
    assert found.cost.egress_usd is not None
    return found.cost.egress_usd


def by_hand(volume_gb: float, already_gb: float, tiers: list[tuple[float, float]]) -> Any:
    """Tier by tier: (end in GiB, USD per GiB)."""
    low, usd, start = already_gb * GIB_PER_GB, 0.0, 0.0
    high = low + volume_gb * GIB_PER_GB
    for end, price in tiers:
        usd += price * max(0.0, min(high, end) - max(low, start))
        start = end
    return pytest.approx(usd)


AWS = [(10240, 0.09), (51200, 0.085), (153600, 0.07), (float("inf"), 0.05)]
GOOGLE = [(1024, 0.12), (10240, 0.11), (float("inf"), 0.08)]
STANDARD = [(10240, 0.085), (153600, 0.065), (float("inf"), 0.045)]
AZURE = [(10240, 0.087), (51200, 0.083), (153600, 0.07), (float("inf"), 0.05)]


@pytest.mark.parametrize(
    ("src", "dst", "tiers", "tier"),
    [
        (VIRGINIA, IOWA, AWS, "premium"),
        (IOWA, VIRGINIA, GOOGLE, "premium"),
        (IOWA, VIRGINIA, STANDARD, "standard"),
        (EASTUS, VIRGINIA, AZURE, "premium"),
    ],
)
@pytest.mark.parametrize("volume_gb", [500.0, 50_000.0, 300_000.0])
@pytest.mark.parametrize("already_gb", [0.0, 15_000.0])
def test_each_gb_has_the_price_of_its_tier(
    src: str,
    dst: str,
    tiers: list[tuple[float, float]],
    tier: str,
    volume_gb: float,
    already_gb: float,
) -> None:
    paid = egress_usd(src, dst, volume_gb, network_tier=tier, already_this_month_gb=already_gb)
    assert paid == by_hand(volume_gb, already_gb, tiers)


def test_between_regions_of_a_cloud_the_volume_does_not_matter() -> None:
    per_gb = usd_per_gib_to_usd_per_gb(0.02)
    assert egress_usd(VIRGINIA, "aws:us-west-2", 500_000.0) == pytest.approx(500_000 * per_gb)


def test_without_a_volume_the_price_is_that_of_the_next_byte() -> None:
    def next_usd_per_gb(already_gb: float) -> float:
        policy = Policy(already_this_month_gb=already_gb)
        found = plan(GRID, VIRGINIA, IOWA, AT_3, limits=DIRECT, policy=policy)
        return found.edges[0].usd_per_gb

    assert next_usd_per_gb(0.0) == pytest.approx(usd_per_gib_to_usd_per_gb(0.09))
    assert next_usd_per_gb(60_000.0) == pytest.approx(usd_per_gib_to_usd_per_gb(0.07))


def test_agreed_prices_and_those_of_a_table_have_no_tiers(shared_dir: Path) -> None:
    policy = Policy(already_this_month_gb=100_000.0)
    agreed = with_overrides(GRID, [PriceOverride("aws:*>gcp:*", 0.01, 0.01, "GB", "agreed")])
    assert priced_for(agreed, policy, 100_000.0).egress_price(VIRGINIA, IOWA) == 0.01
    measured = load_grid(shared_dir / "grids" / "skyplane-2022-01")
    tiered = priced_for(measured, policy, 100_000.0)
    assert (tiered.usd_per_gb == measured.usd_per_gb).all()


def test_off_the_grid_is_the_internet_too() -> None:
    tiered = priced_for(GRID, Policy(already_this_month_gb=60_000.0), 10.0)
    assert tiered.egress_price(VIRGINIA, "local:office") == pytest.approx(
        usd_per_gib_to_usd_per_gb(0.07)
    )


def test_the_plan_says_which_tiers_it_pays() -> None:
    policy = Policy(already_this_month_gb=1_000.0)
    found = plan(GRID, VIRGINIA, IOWA, AT_3, volume_gb=15_000.0, limits=DIRECT, policy=policy)
    (note,) = [one for one in found.notes if "tier" in one]
    assert "9,309 GiB in tier 1 $0.09, 4,661 GiB in tier 2 $0.085" in note
    assert "1,000 GB sent before" in note
    small = plan(GRID, VIRGINIA, IOWA, AT_3, volume_gb=15.0, limits=DIRECT)
    assert not [one for one in small.notes if "tier" in one]


def test_every_region_that_may_relay_has_the_price_of_the_volume() -> None:
    tiered = priced_for(GRID, Policy(already_this_month_gb=200_000.0), 10.0)
    assert tiered.egress_price("aws:eu-west-1", IOWA) == pytest.approx(
        usd_per_gib_to_usd_per_gb(0.05)
    )
    assert tiered.egress_price("aws:sa-east-1", IOWA) == pytest.approx(
        usd_per_gib_to_usd_per_gb(0.114)
    )


def test_every_view_of_a_job_has_the_same_prices() -> None:
    policy, volume_gb = Policy(already_this_month_gb=20_000.0), 1_000.0
    wanted = by_hand(volume_gb, 20_000.0, AWS)
    common: dict[str, Any] = {"volume_gb": volume_gb, "limits": DIRECT, "policy": policy}

    def paid(found: TransferPlan | None) -> float | None:
        assert found is not None
        return found.cost.egress_usd

    compared = compare(GRID, VIRGINIA, IOWA, AT_3, **common)
    names = (
        "knee",
        "cheapest",
        "fastest_at_ceiling",
        "fastest",
        "direct_1",
        "direct_n",
        "ron_1",
        "ron_n",
    )
    ours = {way.name: way.egress_usd for way in compared.ways if way.plan}
    assert ours == dict.fromkeys(names, wanted)
    (service,) = [
        way for way in compared.ways if way.kind == SERVICE and way.total_usd is not None
    ][:1]
    assert service.egress_usd == wanted
    assert paid(frontier(GRID, VIRGINIA, IOWA, points=2, **common)[0]) == wanted
    tree = multicast_plan(GRID, VIRGINIA, [IOWA], AT_3, **common)
    assert tree.cost.egress_usd == wanted
    explained = explain_plan(
        GRID, plan(GRID, VIRGINIA, IOWA, AT_3, **common), limits=DIRECT, policy=policy
    )
    assert explained.direct is not None
    assert explained.direct.edges[0].usd_per_gb * volume_gb == wanted


def test_the_direct_path_counts_its_volume() -> None:
    found = direct(GRID, IOWA, VIRGINIA, volume_gb=50_000.0)
    assert found.cost.egress_usd == by_hand(50_000.0, 0.0, GOOGLE)


def test_a_grid_keeps_the_prices_of_its_first_job() -> None:
    tiered = priced_for(GRID, Policy(already_this_month_gb=60_000.0), 10.0)
    assert priced_for(tiered, ANY_REGION, 10.0).month == tiered.month


# ---------------------------------------------------------------- by the deployment's own history


def with_history(**sent_gb: float) -> Grid:
    return with_learned(GRID, lambda: ((), sent_gb, ""), 0.0)


HISTORY = with_history(aws=60_000.0, azure=20_000.0)


def test_each_cloud_has_sent_what_its_history_says() -> None:
    tiered = priced_for(HISTORY, ANY_REGION, 10.0)
    paid = [
        tiered.egress_price(src, dst)
        for src, dst in (
            (VIRGINIA, IOWA),
            (VIRGINIA, "local:office"),
            (EASTUS, IOWA),
            (IOWA, VIRGINIA),
        )
    ]
    assert paid == pytest.approx([usd_per_gib_to_usd_per_gb(x) for x in (0.07, 0.07, 0.083, 0.12)])
    standard = priced_for(HISTORY, Policy(network_tier="standard"), 10.0)
    assert standard.egress_price(EASTUS, IOWA) == pytest.approx(
        priced_for(
            GRID, Policy(network_tier="standard", already_this_month_gb=20_000.0), 10.0
        ).egress_price(EASTUS, IOWA)
    )


@pytest.mark.parametrize("already_gb", [0.0, 15_000.0])
def test_a_volume_that_is_given_replaces_the_history(already_gb: float) -> None:
    given = Policy(already_this_month_gb=already_gb)
    found = plan(HISTORY, VIRGINIA, IOWA, AT_3, volume_gb=500.0, limits=DIRECT, policy=given)
    assert found.cost.egress_usd == by_hand(500.0, already_gb, AWS)
    assert not [one for one in found.notes if "learned grid" in one]


def test_the_plan_says_what_was_sent_before() -> None:
    makers: tuple[Any, ...] = (plan, lambda grid, src, *rest, **given: multicast_plan(
        grid, src, [rest[0]], *rest[1:], **given
    ))  # fmt: skip
    for made in makers:
        found = made(HISTORY, VIRGINIA, IOWA, AT_3, volume_gb=500.0, limits=DIRECT)
        assert found.cost.egress_usd == by_hand(500.0, 60_000.0, AWS)
        assert "60,000 GB sent from aws this month, by the learned grid" in found.notes
        inside = made(HISTORY, VIRGINIA, "aws:us-west-2", AT_3, volume_gb=500.0, limits=DIRECT)
        nothing = made(HISTORY, IOWA, VIRGINIA, AT_3, volume_gb=500.0, limits=DIRECT)
        assert not [one for one in (*inside.notes, *nothing.notes) if "this month" in one]


def test_a_little_that_was_sent_is_said_too() -> None:
    found = plan(with_history(aws=12.0), VIRGINIA, IOWA, AT_3, volume_gb=5.0, limits=DIRECT)
    assert "12 GB sent from aws this month, by the learned grid" in found.notes
    assert found.cost.egress_usd == by_hand(5.0, 0.0, AWS)
