"""Many more random schedules, from another seed every time."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from typing import Final

import pytest
from tests.simulation.soak import SEEDS_PROPERTY, Ended, base_seed, soak

#: How many; fewer where somebody is in a hurry.
SCHEDULES: Final = int(os.environ.get("SKYPLANE_SCHEDULES", 20_000))


@pytest.mark.soak
def test_many_random_schedules_end_equal_or_reported(
    record_property: Callable[[str, object], None], capsys: pytest.CaptureFixture[str]
) -> None:
    first = base_seed(default=random.SystemRandom().randrange(1 << 40))
    seeds = range(first, first + SCHEDULES)
    record_property(SEEDS_PROPERTY, [seeds.start, seeds.stop - 1])

    def tell(ended: Ended) -> None:
        with capsys.disabled():
            print(ended.text, flush=True)

    with capsys.disabled():
        print(f"\nschedules: seeds {seeds.start}..{seeds.stop - 1}", flush=True)
    tally = soak(seeds, processes=os.cpu_count() or 1, told=tell)
    with capsys.disabled():
        print(*(f"{count:7} {state}" for state, count in tally.states.most_common()), sep="\n")
    assert sum(tally.states.values()) == SCHEDULES
    assert not tally.failed, "\n".join(ended.text for ended in tally.failed)
