"""A worker whose clock is wrong goes by the time of the clouds."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from tests.manual_clock import ManualClock
from tests.provision.fleet.test_crashed_runs import TYPES, VERBS, three_clouds

from skyplane_gateway.common.clock import SYSTEM_CLOCK
from skyplane_orchestration.provision.clocks import corrected

DAY_S = 86400.0


@pytest.mark.parametrize("cloud", ["aws", "azure", "gcp"])
@pytest.mark.parametrize("ahead_s", [1.1 * DAY_S, -1.1 * DAY_S, 90.0])
def test_each_cloud_tells_its_time(
    monkeypatch: pytest.MonkeyPatch, caplog: Any, cloud: str, ahead_s: float
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "strict")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "strict")
    clock = corrected(replace(SYSTEM_CLOCK, wall=lambda: time.time() + ahead_s))
    with three_clouds(clock) as sites:
        (found,) = [one for one in sites.clouds(clock) if one.name == cloud]
        (region,) = [region for region in TYPES if region.startswith(cloud)]
        for _ in range(2):
            found.describe("ab" * 16, [region])
    named = [row.getMessage() for row in caplog.records if "set both by NTP" in row.getMessage()]
    if ahead_s == 90.0:
        assert abs(clock.wall() - time.time() - 90.0) < 5.0
        assert named == []
        return
    assert abs(clock.wall() - time.time()) < 5.0
    side = "ahead of" if ahead_s > 0 else "behind"
    (line,) = named
    assert line.startswith("the clock of this machine is 26 h 2")
    assert f" min {side} that of the cloud, which counts" in line


@pytest.mark.long
def test_a_sweep_whose_clock_is_a_day_ahead_keeps_living_fleets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "strict")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "strict")
    wrong = replace(SYSTEM_CLOCK, wall=lambda: time.time() + DAY_S + 60.0)
    with three_clouds(SYSTEM_CLOCK) as sites:
        sites.crash("ee" * 16, 2 * VERBS)
        kept = [
            replace(sites, clock=clock).provisioner().sweep("test", dry_run=True).kept
            for clock in (corrected(wrong), wrong)
        ]
    assert kept == [("ee" * 16,), ()]


@pytest.mark.parametrize(
    "date", [None, "Tue, 02 Jan 99999999999999999999 03:04:05 GMT", "", "soon", "0"]
)
def test_what_is_no_date_changes_nothing(date: str | None) -> None:
    clock = corrected(ManualClock(1000.0).clock)
    clock.hear(date)
    assert clock.wall() == 1000.0


def test_a_clock_that_was_mended_counts_again() -> None:
    manual = ManualClock(0.0)
    clock = corrected(manual.clock)
    clock.hear("Thu, 01 Jan 1970 01:00:00 GMT")
    assert clock.wall() == 3600.0
    manual.advance(3601.0)
    clock.hear("Thu, 01 Jan 1970 01:00:01 GMT")
    assert clock.wall() == 3601.0
