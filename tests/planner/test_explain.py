"""Every number of an explanation is one of a plan that is made again here."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    NO_LIMITS,
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
)
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.source_contents import SourceContents
from skyplane_orchestration.planner import direct, explain_plan, plan
from skyplane_orchestration.planner.explain import Explanation, price_of
from skyplane_orchestration.planner.infeasibility import describe_limit

if TYPE_CHECKING:
    from tests.planner.conftest import GridOf

SRC, DST = "aws:ap-southeast-2", "aws:eu-west-3"
ONE = Limits(instance_limit=1)
NUMBER = re.compile(r"(?<![\w:-])\d+\.\d+")


def numbers(sentence: str) -> list[float]:
    """The decimal numbers of a sentence; region names and counts have no point."""
    return [float(text) for text in NUMBER.findall(sentence)]


def again(
    grid: Grid,
    answer: TransferPlan,
    objective: Objective,
    *,
    limits: Limits,
    without: tuple[str, ...] = (),
) -> TransferPlan:
    return plan(
        grid,
        answer.src,
        answer.dst,
        objective,
        volume_gb=answer.volume_gb,
        limits=limits,
        policy=Policy(exclude_regions=without),
    )


def for_money(answer: TransferPlan, money: float) -> MaximizeThroughput:
    if answer.volume_gb is None:
        return MaximizeThroughput(max_usd_per_gb=money)
    return MaximizeThroughput(max_cost_usd=money)


def confirm(grid: Grid, why: Explanation, limits: Limits) -> None:
    """Parse every sentence, and plan again for every number in it."""
    answer, money = why.plan, price_of(why.plan)
    # Other plans for the money expect their rates.
    rate = answer.expected_gbps or 0.0
    said = [one.replace("(the same)", "(0.00 more)") for one in why.sentences]
    assert said.pop(0).startswith("Binding limits" if answer.binding else "No limit binds")
    assert tuple(said[: len(why.rates)]) == why.rates
    del said[: len(why.rates)]
    alone = direct(grid, answer.src, answer.dst, 1, limits=limits)
    there, price = alone.throughput_gbps, alone.cost.usd_per_gb
    now = answer.cost.usd_per_gb
    assert numbers(said.pop(0)) == pytest.approx(
        [there, price, rate, abs(rate - there), now, abs(now - price)], abs=6e-3
    )
    for tag in answer.relays:
        sentence = said.pop(0)
        assert sentence.startswith(f"{tag} carries ")
        fastest = again(
            grid, answer, for_money(answer, money * (1 + 1e-6)), limits=limits, without=(tag,)
        )
        cheapest = again(
            grid,
            answer,
            MinimizeCost(answer.throughput_gbps * (1 - 1e-6)),
            limits=limits,
            without=(tag,),
        )
        *carried, gbps, fewer, dearer, more = numbers(sentence)
        flow = sum(path.flow_gbps for path in answer.paths if tag in path.regions)
        assert carried[0] == pytest.approx(flow, abs=6e-3)
        assert carried[2] == pytest.approx(alone.edges[0].usd_per_gb, abs=6e-5)
        assert gbps == pytest.approx(fastest.throughput_gbps, rel=1e-3, abs=6e-3)
        assert fewer == pytest.approx(abs(rate - gbps), abs=1.1e-2)
        assert dearer == pytest.approx(price_of(cheapest), rel=1e-3)
        assert more == pytest.approx(abs(dearer - money), abs=1.1e-2)
        assert gbps <= rate + 6e-3
        assert dearer >= money - 6e-3
    if not answer.relays:
        assert said.pop(0) == "No relay is used."
    if why.more is not None:
        confirm_one_more(grid, why, said.pop(0))
    dearer_plan = again(grid, answer, for_money(answer, 1.1 * money), limits=limits)
    (last,) = said
    asked, most, gained = numbers(last)
    assert asked == pytest.approx(1.1 * money, rel=1e-3)
    assert most == pytest.approx(dearer_plan.throughput_gbps, rel=1e-3, abs=6e-3)
    assert gained == pytest.approx(abs(most - rate), abs=1.1e-2)


def confirm_one_more(grid: Grid, why: Explanation, sentence: str) -> None:
    assert why.more is not None
    kind = why.plan.objective["kind"]
    fields = {name: value for name, value in why.plan.objective.items() if name != "kind"}
    objective = {
        "minimize-cost": MinimizeCost,
        "maximize-throughput": MaximizeThroughput,
        "deadline": Deadline,
    }[kind](**fields)
    better = again(grid, why.plan, objective, limits=why.more.limits)
    value, change = numbers(sentence)
    if kind == "maximize-throughput":
        assert value == pytest.approx(better.throughput_gbps, rel=1e-3)
        assert change == pytest.approx(value - why.plan.throughput_gbps, abs=1.1e-2)
        assert value > why.plan.throughput_gbps
    else:
        assert value == pytest.approx(price_of(better), rel=1e-3)
        assert change == pytest.approx(price_of(why.plan) - value, abs=1.1e-2)
        assert value < price_of(why.plan)


@pytest.mark.parametrize(
    ("src", "dst", "objective", "limits", "volume_gb"),
    [
        (SRC, DST, MinimizeCost(3.5), replace(ONE, confidence=0.5), None),
        (SRC, DST, MinimizeCost(10), NO_LIMITS, 500),
        (SRC, DST, Deadline(1500), ONE, 500),
        (SRC, DST, MaximizeThroughput(0.125), ONE, None),
    ],
)
def test_every_number_on_some_shipped_regions(
    few: Grid,
    src: str,
    dst: str,
    objective: Objective,
    limits: Limits,
    volume_gb: float | None,
) -> None:
    answer = plan(few, src, dst, objective, limits=limits, volume_gb=volume_gb)
    confirm(few, explain_plan(few, answer, limits=limits), limits)


@pytest.mark.parametrize("volume_gb", [None, 40])
def test_every_number_on_a_synthetic_grid(small_grid: GridOf, volume_gb: float | None) -> None:
    """A relay in whose place another would do, and a quota that one more instance relieves."""
    s, t = "aws:s", "gcp:t"
    edges = {(s, t): (1.0, 0.05), ("azure:u", t): (4.0, 0.06), ("aws:v", t): (3.0, 0.09)}
    edges |= {(s, "azure:u"): (3.0, 0.04), (s, "aws:v"): (5.0, 0.04)}
    grid, limits = small_grid(edges), Limits(instance_limit=2)
    answer = plan(grid, s, t, MinimizeCost(5), limits=limits, volume_gb=volume_gb)
    assert answer.relays == ("azure:u",)
    why = explain_plan(grid, answer, limits=limits)
    assert why.more is not None
    confirm(grid, why, limits)


def test_the_triangle_by_hand(triangle: Grid) -> None:
    """4 Gbit/s with one instance each: the direct 2.5 cannot do it, so the relay is needed."""
    answer = plan(triangle, "aws:s", "gcp:t", MinimizeCost(4.0), limits=ONE)
    why = explain_plan(triangle, answer, limits=ONE)
    (relay,) = why.relays
    assert relay.tag == "azure:r"
    assert relay.egress_usd_per_gb == pytest.approx(0.04 + 0.08)
    assert relay.money_without is None
    assert relay.gbps_without == pytest.approx(2.5, rel=1e-4)
    (sentence,) = [words for words in why.sentences if words.startswith("azure:r")]
    assert "0.1200 USD per GB of egress (direct: 0.1000)" in sentence
    assert "the plan's rate is out of reach" in sentence
    assert f"2.50 Gbit/s ({answer.throughput_gbps - 2.5:.2f} less)" in sentence


def test_a_quota_that_binds_is_said_to_only_where_more_helps(triangle: Grid) -> None:
    """Two instances at each end send 5 directly at 0.1064; one must go over the relay."""
    answer = plan(triangle, "aws:s", "gcp:t", MinimizeCost(5.0), limits=ONE)
    why = explain_plan(triangle, answer, limits=ONE)
    (sentence,) = [words for words in why.sentences if words.startswith("One more instance")]
    assert "per region (2) would bring the price to 0.1064 USD per GB (0.0184 less)" in sentence
    fastest = plan(triangle, "aws:s", "gcp:t", MaximizeThroughput(0.2), limits=ONE)
    more = explain_plan(triangle, fastest, limits=ONE).more
    assert more is not None
    assert more.plan.throughput_gbps == pytest.approx(10, rel=1e-3)
    nothing = plan(triangle, "aws:s", "gcp:t", MinimizeCost(2.5), limits=ONE)
    assert explain_plan(triangle, nothing, limits=ONE).more is None


def test_no_change_of_nothing_is_said(triangle: Grid, shipped: Grid) -> None:
    direct = "aws:us-east-1", "aws:eu-west-1"
    for grid, ends, objective in (
        (triangle, ("aws:s", "gcp:t"), MinimizeCost(2.5)),
        (triangle, ("aws:s", "gcp:t"), MaximizeThroughput(max_usd_per_gb=10)),
        (shipped, direct, MinimizeCost(4)),
    ):
        why = explain_plan(grid, plan(grid, *ends, objective, limits=ONE), limits=ONE)
        assert not [words for words in why.sentences if re.search(r"\b0\.0+ (more|less)", words)]
    # Where a plan is expected to move more than it promises, money that buys the same buys nothing.
    promising = replace(why.plan, expected_gbps=1.2 * why.plan.throughput_gbps)
    same = replace(why, plan=promising, gbps_for_more=promising.expected_gbps).sentences
    assert same[-1].endswith("would buy no higher rate.")


def test_requests_are_part_of_the_money(triangle: Grid) -> None:
    """They are the same for every plan, so a tenth more money counts them and buys none."""
    answer = plan(
        triangle, "aws:s", "gcp:t", MinimizeCost(2.5), volume_gb=100, objects=10**6, limits=ONE
    )
    why = explain_plan(triangle, answer, limits=ONE)
    assert answer.cost.request_usd == pytest.approx(0.4 + 0.005)
    assert why.more_money == pytest.approx(1.1 * (answer.cost.total_usd or 0.0))
    dearer = plan(
        triangle,
        "aws:s",
        "gcp:t",
        MaximizeThroughput(max_cost_usd=why.more_money),
        volume_gb=100,
        objects=10**6,
        limits=ONE,
    )
    assert why.gbps_for_more == pytest.approx(dearer.throughput_gbps, rel=1e-3)


def test_storage_classes_are_part_of_the_money(shipped: Grid) -> None:
    """The grid of an explanation knows of no listing; the plan does."""
    listed = replace(shipped, contents=SourceContents(classes={"STANDARD_IA": 0.5}))
    answer = plan(listed, SRC, DST, MinimizeCost(1.0), volume_gb=100.0, limits=ONE)
    dearer = MaximizeThroughput(max_cost_usd=price_of(answer) * 1.1)
    best = plan(listed, SRC, DST, dearer, volume_gb=100.0, limits=ONE)
    found = explain_plan(shipped, answer, limits=ONE)
    assert found.gbps_for_more == pytest.approx(best.throughput_gbps, rel=1e-6)


def test_inside_one_region_nothing_was_chosen(triangle: Grid) -> None:
    inside = plan(triangle, "aws:s", "aws:s", MinimizeCost(1))
    assert explain_plan(triangle, inside).sentences == (
        "No bytes travel between regions, so the plan has no alternatives.",
    )


def test_a_relay_without_which_nothing_goes(small_grid: GridOf) -> None:
    chain = small_grid({("aws:s", "azure:r"): (5.0, 0.04), ("azure:r", "gcp:t"): (5.0, 0.08)})
    why = explain_plan(chain, plan(chain, "aws:s", "gcp:t", MinimizeCost(1)))
    assert "There is no direct path." in why.sentences
    (relay,) = why.relays
    assert (relay.gbps_without, relay.money_without) == (None, None)
    (sentence,) = [words for words in why.sentences if words.startswith("azure:r")]
    assert "direct:" not in sentence
    assert "buys nothing and the plan's rate is out of reach" in sentence


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("deadline", "the deadline (deadline)"),
        ("instance_quota aws:s", "the number of instances in aws:s (instance_quota)"),
        ("storage_read aws:s", "what can be read from the store in aws:s (storage_read)"),
        (
            "policy max_job_usd",
            "the most that the policy lets a job cost (policy max_job_usd)",
        ),
    ],
)
def test_limits_have_words(name: str, words: str) -> None:
    assert describe_limit(name) == words
