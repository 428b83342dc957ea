"""Bounds of totals where the overhead is much of the bill."""

from __future__ import annotations

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Deadline, MaximizeThroughput, MinimizeCost, Objective
from skyplane_orchestration.planner import plan, total_bounds


@pytest.mark.parametrize(
    ("src", "dst", "volume_gb", "objective"),
    [
        ("aws:eu-north-1", "aws:sa-east-1", 2.8, Deadline(122.5)),
        ("gcp:us-west3", "gcp:europe-north2", 5.2, Deadline(126.8)),
        ("aws:ap-east-2", "azure:uaecentral", 2.3, MinimizeCost(1.6)),
        ("azure:polandcentral", "azure:germanynorth", 110.5, MaximizeThroughput(max_cost_usd=2.24)),
    ],
    ids=lambda value: str(value).replace("azure:", "").replace("aws:", ""),
)
def test_a_short_job_states_a_small_gap(
    shipped: Grid, src: str, dst: str, volume_gb: float, objective: Objective
) -> None:
    assert plan(shipped, src, dst, objective, volume_gb=volume_gb).solver.gap <= 0.01


def test_the_overhead_never_falls_as_the_rate_rises() -> None:
    tags = ("aws:a", "azure:b", "local:c")
    before = total_bounds.overhead(tags, float("inf"), 120)
    assert list(before) == [1, 1, 1]
    for transfer_s in (10_000, 500, 100, 10, 0.1):
        now = total_bounds.overhead(tags, transfer_s, 120)
        assert (now >= before).all()
        before = now
    assert list(total_bounds.overhead(tags, 60, 120)) == [3, 5, 3]
