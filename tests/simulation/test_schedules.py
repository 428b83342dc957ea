"""Whole fleets under schedules of faults: they end equal or reported, with nothing left."""

from __future__ import annotations

import pytest
from tests.simulation.run import run_schedule
from tests.simulation.schedule import SIZES, Schedule, random_schedule

#: Random schedules of the ordinary run, in groups that can run side by side.
SCHEDULES = 60
GROUP = 15


def ensure_well(schedule: Schedule) -> str:
    """Run it and fail with all that is needed to run it again; the state it ended in."""
    outcome = run_schedule(schedule)
    assert not outcome.findings, "\n".join(
        [
            f"python -m tests.simulation.replay {schedule.seed}",
            repr(schedule),
            *outcome.findings,
            *outcome.log,
        ]
    )
    return outcome.state


@pytest.mark.parametrize("shape", range(4))
def test_without_faults_everything_arrives(shape: int) -> None:
    assert ensure_well(Schedule(shape, shape, SIZES)) == "succeeded"


@pytest.mark.parametrize("first", range(0, SCHEDULES, GROUP))
def test_random_schedules_end_equal_or_reported(first: int) -> None:
    states = [ensure_well(random_schedule(seed)) for seed in range(first, first + GROUP)]
    print(f"seeds {first} to {first + GROUP - 1}: {states}")
    assert "succeeded" in states


@pytest.mark.parametrize("seed", [3, 9, 31])
def test_a_seed_decides_everything(seed: int) -> None:
    first, second = (run_schedule(random_schedule(seed)) for _ in range(2))
    assert first.log == second.log
    assert (first.events, first.virtual_s) == (second.events, second.virtual_s)
