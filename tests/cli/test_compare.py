"""`compare`: the plan is never dearer than a baseline of its rate."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.cli.main import main
from skyplane_orchestration.plan import TransferPlan

if TYPE_CHECKING:
    from tests.cli.conftest import Answer

SRC, DST = "aws:ap-southeast-2", "aws:eu-west-3"


def test_four_ways_side_by_side(answer: Answer) -> None:
    ways = answer("compare", SRC, DST, "--min-throughput-gbps", "10", "--volume-gb", "100")
    plans = {name: TransferPlan.from_dict(document) for name, document in ways.items()}
    assert list(plans) == ["optimal", "direct_single", "direct", "best_relay"]
    optimal = plans.pop("optimal")
    assert {plan.objective["kind"] for plan in plans.values()} == {"direct", "ron"}
    assert {plan.volume_gb for plan in plans.values()} == {100.0}
    for plan in plans.values():
        if plan.throughput_gbps >= 10:
            assert optimal.cost.usd_per_gb <= plan.cost.usd_per_gb * 1.0001


def test_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", SRC, DST, "--min-throughput-gbps", "3.5"]) == 0
    output = capsys.readouterr().out
    for words in ("optimal", "direct single", "best relay", "none"):
        assert words in output


def test_inside_one_region_there_is_nothing_to_compare_with(answer: Answer) -> None:
    assert list(answer("compare", SRC, SRC)) == ["optimal"]
