"""Schedules in which something was wrong once, each with what it was."""

from __future__ import annotations

import pytest
from tests.simulation.run import Outcome, run_schedule
from tests.simulation.schedule import KIB, Cancel, Kill, Schedule, Slow, Stop, Store

# The coroutines of a process that was killed never end, and so leave some unawaited.
pytestmark = pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")


def run(schedule: Schedule) -> Outcome:
    outcome = run_schedule(schedule)
    assert not outcome.findings, "\n".join(["", repr(schedule), *outcome.findings, *outcome.log])
    return outcome


@pytest.mark.parametrize("twentieth", range(4, 12))
def test_a_cancel_at_any_moment_ends_the_transfer_and_leaves_nothing(twentieth: int) -> None:
    """One while it cleaned up had it run for ever: its end was never entered. One while an
    upload was begun left that upload open, after the journal was gone that named it."""
    moments = [(5 * twentieth + step / 2) / 100 for step in range(10)]
    ends = {run(Schedule(7, 0, (5 * KIB, 40 * KIB), (Cancel(at_s),))).state for at_s in moments}
    assert ends <= {"cancelled", "succeeded"}


def test_a_lead_that_is_cancelled_twice_leaves_nothing_running() -> None:
    """It wakes to a cancel and to the end of its lease at once; its duties went on."""
    sizes = (32767, 700, 0, 65536, 32768, 5120, 153600, 32769, 1)
    faults = (Cancel(0.444), Slow(1.454, 0, 40.0, 1000.0), Stop(0.33, 0, 400.0))
    run(Schedule(2768, 0, sizes, faults, "fail", 1, verify="reread", announcing=4))


def test_a_journal_that_is_written_late_is_there_for_the_next_lead() -> None:
    """The sink that had been attached anew removed it, and uploads were named nowhere."""
    faults = (
        Kill(0.898, 0, 20.0),
        Store("destination", "read", 3, 1, "throttled"),
        Store("destination", "put", 4, 30, "late"),
    )
    run(Schedule(5431, 3, (71680, 32767, 32769, 71680), faults, "fail", verify="reread"))


def test_a_lead_whose_sinks_are_gone_or_know_nothing_of_it_ends() -> None:
    """One that refused to work for it counted as an answer, so that it waited for ever."""
    sizes = (71680, 153600, 266240, 266240, 5120)
    faults = (Kill(0.877, 2, 20.0), Stop(0.355, 0, 400.0))
    more = {"conflict": "replace-if-newer", "there": 2, "verify": "reread", "then": "again"}
    outcome = run(Schedule(20496, 2, sizes, faults, **more))  # type: ignore[arg-type]
    assert outcome.state == "succeeded"
    assert outcome.inspection.then_state == "succeeded"
