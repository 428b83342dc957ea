"""Numbers as people read them, and news about a transfer."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console

from skyplane_orchestration.cli import render
from skyplane_orchestration.cli.console import Terminal
from skyplane_orchestration.cli.progress import Lines
from skyplane_orchestration.model.result import CostOutcome, FailedObject, TransferResult
from skyplane_orchestration.model.status import TransferStatus

STATUS = TransferStatus.from_document(
    {
        "transfer_key": "ab",
        "epoch": 1,
        "state": "running",
        "listed": False,
        "objects": 4,
        "bytes": 4096,
        "copied": 1,
        "copied_bytes": 1024,
        "skipped": 0,
        "failed": 0,
        "requests": 0,
        "sendings": 0,
        "seconds": 1.0,
        "delivered_bytes": {},
        "error": None,
        "failures": [],
        "open_uploads": [],
    }
)


def test_a_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    lines = Lines(Terminal(is_json=False, is_quiet=False), clock=lambda: now[0])
    for now[0] in (0.0, 1.0, 9.0, 10.0, 11.0):
        lines.on_status(STATUS)
    ended = replace(
        STATUS, state="succeeded", listed=True, copied=4, copied_bytes=4096, unfinished=0
    )
    lines.on_status(replace(ended, copied_earlier=3))
    assert capsys.readouterr().err.splitlines() == [
        "running: 1.0 KiB of 4.0 KiB so far, 1 of 4 objects, 1.0 KiB/s",
        "running: 1.0 KiB of 4.0 KiB so far, 1 of 4 objects",
        "succeeded: 4.0 KiB of 4.0 KiB, 4 of 4 objects, 3 copied earlier, 4.0 KiB/s",
    ]


def test_quiet_is_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    Lines(Terminal(is_json=True, is_quiet=True)).on_status(STATUS)
    assert capsys.readouterr() == ("", "")


def test_names_of_objects_are_no_markup() -> None:
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
    console = Console(file=io.StringIO(), width=200, highlight=False)
    for part in render.result_parts(result):
        console.print(part)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    for words in (
        "s3://b/[bold]x",
        "[red]no",
        "upload [1]",
        "1 of 2 objects",
        "planned cost $1.75",
        "gateways are processes of this machine, and all bytes pass through it",
        "1 copied earlier",
    ):
        assert words in text
