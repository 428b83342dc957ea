from __future__ import annotations

import logging

import pytest

from skyplane_orchestration.timing import timed


def test_a_stage_says_how_long_it_took_even_when_it_fails(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "skyplane_orchestration")
    with pytest.raises(ZeroDivisionError), timed("plan: search"):
        1 / 0  # noqa: B018
    (record,) = caplog.records
    assert record.levelno == logging.INFO
    assert record.getMessage().startswith("plan: search took 0.0")
