"""How the volume of a month falls into the tiers of a price list."""

from __future__ import annotations

import pytest

from skyplane_orchestration.grids.monthly_volume import average_usd, tier_shares

PRICES, ENDS = (9.0, 8.0, 5.0), (10.0, 50.0, float("inf"))


@pytest.mark.parametrize(
    ("start", "amount", "shares"),
    [
        (0, 4, [(1, 4)]),
        (0, 10, [(1, 10)]),
        (0, 70, [(1, 10), (2, 40), (3, 20)]),
        (6, 8, [(1, 4), (2, 4)]),
        (10, 5, [(2, 5)]),
        (80, 5, [(3, 5)]),
        (0, 0, [(1, 0)]),
        (10, 0, [(2, 0)]),
        (80, 0, [(3, 0)]),
    ],
)
def test_each_tier_has_its_share(
    start: float, amount: float, shares: list[tuple[int, float]]
) -> None:
    found = tier_shares(PRICES, ENDS, start, amount)
    assert [(one.number, one.amount) for one in found] == shares
    assert [one.usd for one in found] == [PRICES[number - 1] for number, _ in shares]


def test_the_average_weighs_the_shares() -> None:
    assert average_usd(tier_shares(PRICES, ENDS, 6, 8)) == (4 * 9 + 4 * 8) / 8
    assert average_usd(tier_shares(PRICES, ENDS, 80, 0)) == 5


@pytest.mark.parametrize("prices", [(0.19,), (0.19, 0.1)])
def test_a_list_without_ends_of_tiers_has_its_first_price(prices: tuple[float, ...]) -> None:
    assert average_usd(tier_shares(prices, (), 100, 100)) == 0.19


def test_the_last_price_that_is_known_holds_for_what_is_above() -> None:
    assert average_usd(tier_shares((0.15,), ENDS, 0, 100)) == 0.15
    assert average_usd(tier_shares((9.0, 8.0), ENDS, 0, 100)) == pytest.approx(8.1)
