"""The plans of typical jobs come to the bills that were made by hand."""

from __future__ import annotations

import pytest
from docs.bills import bills


def test_a_plan_comes_to_the_bill() -> None:
    ratios = {bill.title: bill.ratio for bill in bills()}
    assert ratios == pytest.approx(dict.fromkeys(ratios, 1), abs=0.07)


@pytest.mark.parametrize(
    ("title", "usd"),
    [
        ("30 times 500 GB", 1281),
        ("50 TB, Google", 4186),
        ("SSE-KMS without a bucket key", 133.5),
        ("S3 Standard-IA", 88.9),
        ("100 TB, Azure in Virginia to S3", 7460),
    ],
)
def test_the_bills_are_those_of_a_finance_team(title: str, usd: float) -> None:
    (bill,) = [one for one in bills() if title in one.title and "routing" not in one.title]
    assert bill.stated_usd == usd
    assert bill.usd == pytest.approx(usd, rel=0.02)
    assert bill.planned.total_usd == pytest.approx(usd, rel=0.07)


def test_the_items_of_a_plan_are_its_total() -> None:
    for bill in bills():
        cost = bill.planned
        items = (cost.egress_usd, cost.instance_usd, cost.request_usd, cost.boot_usd)
        rest = (cost.minimum_billing_usd, *cost.other_usd.values())
        assert cost.total_usd == pytest.approx(sum(item or 0.0 for item in (*items, *rest)))
