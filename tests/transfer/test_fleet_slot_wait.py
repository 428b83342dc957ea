"""How often a run looks whether it may start its fleet."""

from __future__ import annotations

import random

from skyplane_orchestration.transfer.fleet_slot_wait import FleetWait


def test_pauses_grow_from_half_a_minute_to_five_and_differ_between_runs() -> None:
    def pauses(seed: int) -> list[float]:
        rng, wait, found = random.Random(seed), FleetWait(), []
        for _ in range(12):
            found.append(wait.pause_s(rng))
            wait = wait.after(found[-1])
        assert (wait.looks, wait.waited_s) == (12, sum(found))
        return found

    runs = [pauses(seed) for seed in range(20)]
    assert all(22.5 <= run[0] <= 37.5 and 225 <= run[-1] <= 375 for run in runs)
    assert len({round(run[0]) for run in runs}) > 5
