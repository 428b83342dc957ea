"""Every number of an explanation is a plan that can be made."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.job import Limits, MaximizeThroughput, MinimizeCost, Policy
from skyplane_orchestration.planner import direct, explain_plan, plan

if TYPE_CHECKING:
    from tests.planner.conftest import GridOf

SRC, DST = "aws:ap-southeast-2", "aws:eu-west-3"


def test_every_number_is_that_of_a_plan_made_again(shipped: Grid) -> None:
    answer = plan(shipped, SRC, DST, MinimizeCost(3.5), limits=Limits(instance_limit=1))
    why = explain_plan(shipped, answer, limits=Limits(instance_limit=1))
    price, rate = answer.cost.usd_per_gb, answer.throughput_gbps
    assert [relay.tag for relay in why.relays] == list(answer.relays) != []
    limits = Limits(instance_limit=1)
    for relay in why.relays:
        policy = Policy(exclude=(relay.tag,))
        fastest = plan(
            shipped,
            SRC,
            DST,
            MaximizeThroughput(max_usd_per_gb=price),
            limits=limits,
            policy=policy,
        )
        cheapest = plan(
            shipped,
            SRC,
            DST,
            MinimizeCost(rate),
            limits=Limits(instance_limit=1),
            policy=Policy(exclude=(relay.tag,)),
        )
        assert relay.gbps_without is not None
        assert relay.usd_per_gb_without is not None
        assert relay.gbps_without == pytest.approx(fastest.throughput_gbps, rel=1e-3)
        assert relay.usd_per_gb_without == pytest.approx(cheapest.cost.usd_per_gb, rel=1e-3)
        assert relay.gbps_without <= rate * 1.0001
        assert relay.usd_per_gb_without >= price * 0.9999
    more = plan(
        shipped,
        SRC,
        DST,
        MaximizeThroughput(max_usd_per_gb=1.1 * price),
        limits=Limits(instance_limit=1),
    )
    assert why.ceiling_usd_per_gb == pytest.approx(1.1 * price)
    assert why.gbps_for_more == pytest.approx(more.throughput_gbps, rel=1e-3)
    alone = direct(shipped, SRC, DST, 1)
    assert why.direct is not None
    assert why.direct.throughput_gbps == alone.throughput_gbps
    assert why.direct_egress_usd_per_gb == pytest.approx(shipped.egress_price(SRC, DST))


def test_the_triangle_by_hand(triangle: Grid) -> None:
    """4 Gbit/s with one instance each: the direct 2.5 cannot do it, so the relay is needed."""
    answer = plan(triangle, "aws:s", "gcp:t", MinimizeCost(4.0), limits=Limits(instance_limit=1))
    why = explain_plan(triangle, answer, limits=Limits(instance_limit=1))
    (relay,) = why.relays
    assert relay.tag == "azure:r"
    assert relay.egress_usd_per_gb == pytest.approx(0.04 + 0.08)
    assert relay.usd_per_gb_without is None
    assert relay.gbps_without == pytest.approx(2.5, rel=1e-4)
    (sentence,) = [words for words in why.sentences if words.startswith("azure:r")]
    assert "0.1200 USD per GB of egress (direct: 0.1000)" in sentence
    assert "the plan's rate is out of reach" in sentence
    assert f"2.50 Gbit/s ({answer.throughput_gbps - 2.5:.2f} less)" in sentence


def test_the_words_hold_the_numbers(shipped: Grid) -> None:
    answer = plan(shipped, SRC, DST, MinimizeCost(10))
    why = explain_plan(shipped, answer)
    assert answer.relays == ()
    assert "No relay is used." in why.sentences
    assert why.gbps_for_more is not None
    numbers = re.findall(r"\d+\.\d+", why.sentences[-1])
    gained = why.gbps_for_more - answer.throughput_gbps
    assert numbers == [
        f"{why.ceiling_usd_per_gb:.4f}", f"{why.gbps_for_more:.2f}", f"{gained:.2f}"
    ]  # fmt: skip


def test_inside_one_region_nothing_was_chosen(triangle: Grid) -> None:
    inside = plan(triangle, "aws:s", "aws:s", MinimizeCost(1))
    assert explain_plan(triangle, inside).sentences == (
        "No bytes travel between regions, so there is nothing to choose.",
    )


def test_a_relay_without_which_nothing_goes(small_grid: GridOf) -> None:
    chain = small_grid({("aws:s", "azure:r"): (5.0, 0.04), ("azure:r", "gcp:t"): (5.0, 0.08)})
    why = explain_plan(chain, plan(chain, "aws:s", "gcp:t", MinimizeCost(1)))
    assert "There is no direct path." in why.sentences
    (relay,) = why.relays
    assert (relay.gbps_without, relay.usd_per_gb_without) == (None, None)
    (sentence,) = [words for words in why.sentences if words.startswith("azure:r")]
    assert "direct:" not in sentence
    assert "buys nothing and the plan's rate is out of reach" in sentence
