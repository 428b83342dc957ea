"""Whole fleets under schedules of faults: they end equal or reported, with nothing left."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings
from tests.simulation.run import Outcome, run_schedule
from tests.simulation.schedule import SIZES, Kill, Schedule, random_schedule
from tests.simulation.strategies import schedules


def ensure_well(schedule: Schedule) -> Outcome:
    """Run it; fails with all that is needed to run it again."""
    outcome = run_schedule(schedule)
    assert not outcome.findings, "\n".join(
        ["", *outcome.findings, f"to be replayed by run_schedule({schedule!r})", *outcome.log]
    )
    return outcome


@pytest.mark.parametrize("shape", range(4))
@pytest.mark.parametrize("trusts_checksum", [True, False])
def test_without_faults_everything_arrives_once(shape: int, trusts_checksum: bool) -> None:
    outcome = ensure_well(Schedule(shape, shape, SIZES, trusts_checksum=trusts_checksum))
    assert outcome.state == "succeeded"
    assert outcome.inspection.put_bytes == sum(SIZES)


@settings(
    max_examples=30,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(schedules())
def test_any_schedule_ends_equal_or_reported(schedule: Schedule) -> None:
    ensure_well(schedule)


@pytest.mark.parametrize("seed", [3, 9, 31])
def test_a_seed_decides_everything(seed: int) -> None:
    first, second = (run_schedule(random_schedule(seed)) for _ in range(2))
    assert first.log == second.log
    assert (first.events, first.virtual_s) == (second.events, second.virtual_s)


def test_what_fails_shrinks_to_the_faults_that_matter() -> None:
    def loses_a_gateway(schedule: Schedule) -> bool:
        return any("is killed" in line for line in run_schedule(schedule).log)

    found = find(
        schedules(),
        loses_a_gateway,
        settings=settings(
            max_examples=200,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate, Phase.shrink],
        ),
    )
    assert len(found.faults) == 1
    assert isinstance(found.faults[0], Kill)
    assert found.sizes == (0,)
