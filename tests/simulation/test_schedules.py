"""Whole fleets under schedules of faults: they end equal or reported, with nothing left."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest
from tests.simulation.run import run_schedule
from tests.simulation.scenarios import ensure_well
from tests.simulation.schedule import SIZES, Schedule, random_schedule
from tests.simulation.soak import SEEDS_PROPERTY, base_seed, replay_command, soak

#: Random schedules of a soak; fewer where somebody is in a hurry.
_SOAKED: Final = int(os.environ.get("SKYPLANE_SCHEDULES", 20_000))
#: Random schedules of an ordinary run, of one with the long tests, and of one test.
_ORDINARY: Final = 100
_SCHEDULES: Final = 200
_BLOCK: Final = 25
_BLOCKS: Final = [
    pytest.param(block, marks=[pytest.mark.long] if block * _BLOCK >= _ORDINARY else [])
    for block in range(_SCHEDULES // _BLOCK)
]


@pytest.mark.parametrize("shape", range(4))
@pytest.mark.parametrize("trusts_checksum", [True, False])
def test_without_faults_everything_arrives_once(shape: int, trusts_checksum: bool) -> None:
    outcome = ensure_well(Schedule(shape, shape, SIZES, trusts_checksum=trusts_checksum))
    assert outcome.state == "succeeded"
    assert outcome.inspection.put_bytes == sum(SIZES)


@pytest.mark.parametrize("seed", [3, 9, 31])
def test_a_seed_decides_everything(seed: int) -> None:
    first, second = (run_schedule(random_schedule(seed)) for _ in range(2))
    assert first.log == second.log
    assert (first.events, first.virtual_s) == (second.events, second.virtual_s)


@pytest.mark.parametrize("block", _BLOCKS)
def test_random_schedules_end_equal_or_reported(
    block: int, record_property: Callable[[str, object], None]
) -> None:
    first = base_seed(default=0) + block * _BLOCK
    record_property(SEEDS_PROPERTY, [first, first + _BLOCK - 1])
    states = []
    for seed in range(first, first + _BLOCK):
        outcome = run_schedule(random_schedule(seed))
        states.append(outcome.state)
        assert not outcome.findings, "\n".join(
            [replay_command(seed), *outcome.findings, repr(outcome.schedule), *outcome.log]
        )
    # A simulation in which nothing ever succeeds would find nothing.
    assert "succeeded" in states


@pytest.mark.soak
def test_many_random_schedules_end_equal_or_reported(
    record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """From another seed every time."""
    first = base_seed(default=random.SystemRandom().randrange(1 << 40))
    record_property(SEEDS_PROPERTY, [first, first + _SOAKED - 1])
    states: Counter[str] = Counter()
    failed = []
    with capsys.disabled():
        print(f"\nschedules: seeds {first}..{first + _SOAKED - 1}", flush=True)
        for ended in soak(range(first, first + _SOAKED)):
            states[ended.states] += 1
            if ended.failure:
                failed.append(ended.failure)
                print(ended.failure, flush=True)
        print(*(f"{count:7} {state}" for state, count in states.most_common()), sep="\n")
    assert states.total() == _SOAKED
    assert not failed, "\n".join(failed)
