"""The random schedules of the ordinary run, in blocks that several test files share out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tests.simulation.run import run_schedule
from tests.simulation.schedule import random_schedule
from tests.simulation.soak import base_seed, replay_command

#: Random schedules of the ordinary run; files, which can run side by side; seeds of one test.
SCHEDULES: Final = 500
FILES: Final = 5
BLOCK: Final = 25

#: Name of the property of a test that says which seeds it has run; see tests/conftest.py.
PROPERTY: Final = "schedule seeds"


def blocks(file: int) -> list[int]:
    """The first seeds of the blocks that are one file's share."""
    first, share = base_seed(default=0), SCHEDULES // FILES
    return list(range(first + file * share, first + (file + 1) * share, BLOCK))


def ensure_block(first: int, record: Callable[[str, object], None]) -> None:
    """Run a block; fails with all that is needed to run the seed again."""
    record(PROPERTY, [first, first + BLOCK - 1])
    states = []
    for seed in range(first, first + BLOCK):
        outcome = run_schedule(random_schedule(seed))
        states.append(outcome.state)
        assert not outcome.findings, "\n".join(
            [
                f"seed {seed} violates a standing condition; {replay_command(seed)}",
                *outcome.findings,
                repr(outcome.schedule),
                *outcome.log,
            ]
        )
    # Else nothing could be wrong with them.
    assert "succeeded" in states
