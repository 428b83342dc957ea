"""A burst counts only for a transfer that surely ends while it lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, InstanceType, load_grid
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
)
from skyplane_orchestration.planner import explain_plan, plan
from skyplane_orchestration.planner.burst import longest_s, with_bursts

if TYPE_CHECKING:
    from tests.planner.conftest import GridOf

#: 5 Gbit/s in and out, up to 20 for 300 s.
CREDITS = InstanceType(
    "aws",
    "credits",
    2,
    5.0,
    5.0,
    64,
    0.1,
    8,
    burst_egress_gbps=20.0,
    burst_ingress_gbps=20.0,
    burst_s=300.0,
)
SRC, DST = "aws:s", "aws:t"
ONE = Limits(instance_limit=1)


@pytest.fixture
def grid(small_grid: GridOf) -> Grid:
    return small_grid({(SRC, DST): (20.0, 0.02)}, [CREDITS])


@pytest.mark.parametrize(
    ("objective", "volume_gb", "seconds"),
    [
        (MinimizeCost(10), 375.0, 300.0),
        (MinimizeCost(10), None, None),
        (Deadline(200), 375.0, 200.0),
        (MaximizeThroughput(max_usd_per_gb=1), 1.0, None),
    ],
)
def test_the_longest_time_of_a_transfer(
    objective: Objective, volume_gb: float | None, seconds: float | None
) -> None:
    assert longest_s(objective, volume_gb) == seconds


def test_a_short_job_uses_the_burst_and_its_plan_says_so(grid: Grid) -> None:
    short = plan(grid, SRC, DST, MinimizeCost(10), volume_gb=375, limits=ONE)
    assert short.throughput_gbps >= 10
    notes = [note for note in short.notes if "carries more than it sustains" in note]
    assert [note.partition(" carries")[0] for note in notes] == [
        f"credits in {tag}" for tag in short.instances
    ]
    (sentence,) = explain_plan(grid, short, limits=ONE).rates
    assert "counts, because the transfer takes at most 300 s" in sentence


@pytest.mark.parametrize("volume_gb", [None, 376.0])
def test_a_longer_job_or_one_of_unknown_volume_has_the_sustained_rate(
    grid: Grid, volume_gb: float | None
) -> None:
    with pytest.raises(PlanInfeasible):
        plan(grid, SRC, DST, MinimizeCost(10), volume_gb=volume_gb, limits=ONE)
    two = plan(grid, SRC, DST, MinimizeCost(10), volume_gb=volume_gb)
    assert {group.count for group in two.instances.values()} == {2}
    assert two.notes == ()
    (sentence,) = explain_plan(grid, two).rates
    assert "credits sustains 5 Gbit/s out and 5 in per instance" in sentence
    assert "does not count" in sentence


def test_shipped_types_of_aws_do_not_burst_out_of_the_region() -> None:
    shipped = load_grid()
    bursting = {kind.name: kind for kind in shipped.types if kind.has_burst}
    assert set(bursting) == {"c6in.xlarge", "c7gn.large", "c6gn.xlarge"}
    for kind in bursting.values():
        assert kind.burst_egress_gbps is None
        assert kind.burst_s == 300
    for kind in shipped.types:
        assert kind.as_of
        assert kind.cloud == "local" or kind.source.startswith("sustained: ")
        assert kind.cloud == "local" or "burst" in kind.source.partition("; ")[2]
    assert with_bursts(shipped, MinimizeCost(1), 1000) is shipped
