"""What the bench of small jobs makes of its rounds; nothing is run here."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bench.small_jobs import FLOOR_CP, GOAL_CP, GOAL_CP_S, GOAL_SYNC_S, Round, cases_of

QUICK = Round(start_s=0.4, cp_s=0.8, sync_s=0.6, rclone_cp_s=0.1, rclone_sync_s=0.2)


def test_figures_are_medians_and_ratios_are_those_of_one_round() -> None:
    slow = Round(start_s=0.8, cp_s=1.8, sync_s=1.2, rclone_cp_s=0.2, rclone_sync_s=0.4)
    cp, sync, cp_times, sync_times, cp_starts, sync_starts, *others = cases_of(
        [QUICK, slow, QUICK], 2000
    )
    assert (cp.value, cp.goal, cp.unit) == (0.8, GOAL_CP_S, "s")
    assert cp.spread == pytest.approx(1.0 / 0.8)
    assert (sync.value, sync.goal) == (0.6, GOAL_SYNC_S)
    assert cp_times.value == pytest.approx(8.0)
    assert (cp_times.floor, cp_times.goal, cp_times.against) == (FLOOR_CP, GOAL_CP, "rclone")
    assert sync_times.value == pytest.approx(3.0)
    assert cp_starts.value == pytest.approx(2.0)
    assert sync_starts.value == pytest.approx(1.5)
    assert [case.value for case in others] == [0.1, 0.2, 0.4]
    assert all(case.holds for case in (cp, sync, cp_times, sync_times, cp_starts, sync_starts))


def test_a_machine_under_load_misses_no_floor_and_a_slow_command_does() -> None:
    loaded = Round(start_s=2.0, cp_s=4.0, sync_s=3.0, rclone_cp_s=0.5, rclone_sync_s=1.0)
    assert all(case.holds for case in cases_of([loaded], 2000))
    slow = replace(QUICK, cp_s=1.1 * FLOOR_CP * 0.1)
    _, _, cp_times, sync_times, *_ = cases_of([slow], 2000)
    assert (cp_times.holds, sync_times.holds) == (False, True)


def test_without_rclone_the_figures_are_there_and_starts_have_floors() -> None:
    alone = replace(QUICK, rclone_cp_s=None, rclone_sync_s=None)
    cp, sync, cp_starts, sync_starts, last = cases_of([alone, alone], 2000)
    assert (cp.value, sync.value) == (0.8, 0.6)
    assert cp_starts.floor is not None
    assert sync_starts.floor is not None
    assert last.case == "Python that loads boto3"
