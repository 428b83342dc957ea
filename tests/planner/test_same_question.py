"""Two objectives that ask one question have one answer."""

from __future__ import annotations

import random

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Deadline, Limits, MaximizeThroughput, MinimizeCost
from skyplane_orchestration.planner import plan
from skyplane_orchestration.units import gb_to_gbit

#: What a thin path may cost.
NEAR = 0.0035


@pytest.mark.parametrize("seed", range(4))
def test_a_floor_a_deadline_and_a_ceiling_agree_on_a_total(dozen: Grid, seed: int) -> None:
    """The deadline is that of the floor's slowest plan; the ceiling is the total of the two."""
    chooser = random.Random(seed)
    # Regions of one cloud's wait, so that the deadline leaves each plan the same time.
    tags = [tag for tag in dozen.tags if not tag.startswith("azure:")]
    src, dst = chooser.sample(tags, 2)
    limits, volume = Limits(instance_limit=2, max_relays=0), round(10 ** chooser.uniform(1, 3), 1)
    floor = chooser.uniform(1.0, 3.0)
    by_floor = plan(dozen, src, dst, MinimizeCost(floor), volume_gb=volume, limits=limits)
    seconds = by_floor.provision_s + gb_to_gbit(volume) / floor
    by_deadline = plan(dozen, src, dst, Deadline(seconds), volume_gb=volume, limits=limits)
    total = by_floor.cost.total_usd
    assert total is not None
    assert by_deadline.cost.total_usd == pytest.approx(total, rel=NEAR)
    ceiling = MaximizeThroughput(max_cost_usd=total * (1 + 1e-9))
    fastest = plan(dozen, src, dst, ceiling, volume_gb=volume, limits=limits)
    assert fastest.throughput_gbps >= by_floor.throughput_gbps * (1 - NEAR)
    assert fastest.cost.total_usd == pytest.approx(total, rel=NEAR)
