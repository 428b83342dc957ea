"""Results as text."""

from __future__ import annotations

import pytest
from tests.transfer import samples

from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.result_lines import print_result
from skyplane_orchestration.model.result import EdgeOutcome, FailedObject


def test_a_result_is_printed_without_markup(capsys: pytest.CaptureFixture[str]) -> None:
    failure = FailedObject("s3://a/[bold]x", "s3://b/[bold]x", "store-error", "[red]no", 1)
    result = samples.result(
        failed=1,
        objects=2,
        copied=1,
        copied_earlier=1,
        failures=(failure,),
        warnings=("an upload [1] stays open",),
        estimated_usd=7.0,
    )
    print_result(Console(is_json=False, is_quiet=False), result)
    output = capsys.readouterr().out
    for words in (
        "s3://b/[bold]x",
        "[red]no",
        "upload [1]",
        "1 of 2 objects",
        "cost $6.00 at the plan's prices, estimated $7.00",
        "gateways are processes of this machine, and all bytes pass through it",
        "1 copied earlier",
    ):
        assert words in output


def test_a_probed_fleet_shows_the_rates_of_its_edges(capsys: pytest.CaptureFixture[str]) -> None:
    edges = (
        EdgeOutcome(samples.A, samples.R, 1.25, 1.5, 100, 2.75, 3.25),
        EdgeOutcome(samples.R, samples.B, 1.25, 1.5, 100, 4.75),
    )
    for shown in (edges, edges[1:]):
        print_result(Console(is_json=False, is_quiet=False), samples.result(edges=shown))
        output = capsys.readouterr().out
        for words in ("2.75", "3.25", "4.75", "modelled", "probed"):
            assert (words in output) == (shown == edges)


def test_quiet_prints_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    Console(is_json=True, is_quiet=True).info("running")
    assert capsys.readouterr() == ("", "")
