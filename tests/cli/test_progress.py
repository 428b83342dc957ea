"""The result of an interrupted transfer."""

from __future__ import annotations

import json
from dataclasses import replace
from io import StringIO
from typing import Any
from unittest.mock import Mock

import pytest
import rich.console
from tests.transfer.samples import JOB, KEY, fleet_of

from skyplane_orchestration.cli.console import Console
from skyplane_orchestration.cli.main import _report_interrupt
from skyplane_orchestration.cli.progress import ProgressBar, TransferProgress
from skyplane_orchestration.model.status import TransferStatus

SEEN = replace(TransferStatus(KEY, 1), objects=5, copied=3, copied_bytes=300, unfinished=2)


def progress_after(*statuses: TransferStatus) -> TransferProgress:
    progress = TransferProgress(JOB, Console(is_json=True, is_quiet=True))
    if statuses:
        progress.on_fleet(fleet_of("ab"))
    for status in statuses:
        progress.on_status(status)
    return progress


@pytest.mark.parametrize(
    ("status", "is_left_running", "state", "error_code"),
    [
        (SEEN, False, "cancelled", "interrupted"),
        (SEEN, True, "running", "interrupted"),
        (replace(SEEN, state="succeeded", skipped=2, unfinished=0), False, "succeeded", ""),
    ],
)
def test_the_result_has_the_last_counts_and_the_state(
    status: TransferStatus, is_left_running: bool, state: str, error_code: str
) -> None:
    progress = progress_after(TransferStatus(KEY, 1), status)
    result = progress.interruption(is_left_running=is_left_running).result
    assert result is not None
    assert (result.state, result.error_code) == (state, error_code)
    assert (result.objects, result.copied, result.copied_bytes) == (5, 3, 300)
    assert result.resume_handle == ""


def test_the_bar_of_a_terminal_shows_mebibytes_and_their_rate() -> None:
    """Also of an object that has no receipt yet."""
    text = StringIO()
    screen = rich.console.Console(file=text, force_terminal=True, width=120)
    console = Mock(rich=lambda **_: screen)
    bar = ProgressBar(console)
    bar.start()
    half = replace(
        SEEN, copied=0, copied_bytes=0, unfinished=5, listed=True,
        size_bytes=400 << 20, moving_bytes=12 << 20, seconds=4.0,
    )  # fmt: skip
    bar.update(half)
    bar.refresh()
    bar.stop()
    assert "12.0 MiB of 400.0 MiB, 3.0 MiB/s" in text.getvalue()


@pytest.mark.parametrize("statuses", [(), (SEEN,)])
def test_json_has_the_error_and_the_result_if_there_is_one(
    statuses: tuple[TransferStatus, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    interruption = progress_after(*statuses).interruption()
    assert _report_interrupt(interruption, 1, is_json=True) == 130
    output = capsys.readouterr()
    document: dict[str, Any] = json.loads(output.out)
    assert document["error"] == {
        "code": "interrupted", "message": "interrupted", "is_permanent": False,
    }  # fmt: skip
    assert ("result" in document) == bool(statuses)
    assert output.err == "skyplane-orch: interrupted\n"
