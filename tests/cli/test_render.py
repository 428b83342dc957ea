"""Results as text."""

from __future__ import annotations

import pytest

from skyplane_orchestration.cli import render
from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.model.result import CostOutcome, FailedObject, TransferResult


def test_a_result_is_printed_without_markup(capsys: pytest.CaptureFixture[str]) -> None:
    failure = FailedObject("s3://a/[bold]x", "s3://b/[bold]x", "store-error", "[red]no", 1)
    result = TransferResult(
        transfer_key="ab",
        epoch=1,
        state="failed",
        source="s3://a/",
        destination="s3://b/",
        objects=2,
        copied=1,
        copied_earlier=1,
        skipped=0,
        failed=1,
        copied_bytes=2048,
        seconds=2.0,
        goodput_gbps=0.5,
        planned_gbps=1.0,
        edges=(),
        cost=CostOutcome(1.0, 0.5, 0.25),
        failures=(failure,),
        warnings=("an upload [1] stays open",),
        gateways="local",
    )
    render.print_result(Console(is_json=False, is_quiet=False), result)
    output = capsys.readouterr().out
    for words in (
        "s3://b/[bold]x",
        "[red]no",
        "upload [1]",
        "1 of 2 objects",
        "planned cost $1.75",
        "gateways are processes of this machine, and all bytes pass through it",
        "1 copied earlier",
    ):
        assert words in output


def test_quiet_prints_no_progress(capsys: pytest.CaptureFixture[str]) -> None:
    Console(is_json=True, is_quiet=True).info("running")
    assert capsys.readouterr() == ("", "")
