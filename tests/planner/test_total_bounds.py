"""Bounds of totals where the overhead is much of the bill."""

from __future__ import annotations

from dataclasses import replace

import pytest

from skyplane_orchestration.errors import SolverFailed
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    NO_LIMITS,
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
)
from skyplane_orchestration.planner import cost_ceiling, plan, total_bounds
from skyplane_orchestration.planner.build_plan import PlanRequest


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


@pytest.mark.parametrize(
    ("src", "dst", "volume_gb", "usd", "limits"),
    [
        ("azure:uaecentral", "azure:australiasoutheast", 1.7, 0.175, Limits(2, max_relays=3)),
        ("azure:australiasoutheast", "azure:japanwest", 1.1, 0.1355, Limits(16)),
        ("azure:australiaeast", "gcp:northamerica-northeast1", 6.0, 0.7135, Limits(16)),
        ("gcp:northamerica-northeast1", "aws:sa-west-1", 92366.3, 48267.0, Limits(max_relays=1)),
    ],
    ids=["two instances", "no relay pays", "one relay pays", "one relay at most"],
)
def test_relays_are_whole_in_the_bound_of_a_ceiling(
    shipped: Grid, src: str, dst: str, volume_gb: float, usd: float, limits: Limits
) -> None:
    """With parts of relays the bounds were 10 to 49 % above these plans."""
    ceiling = MaximizeThroughput(max_cost_usd=usd)
    grid = replace(shipped, has_own_prices=True)
    found = plan(grid, src, dst, ceiling, volume_gb=volume_gb, limits=limits)
    assert found.solver.gap <= 0.01


def test_a_program_without_a_solution_in_its_nodes_proves_nothing(
    shipped: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends, volume_gb = ("aws:ap-east-1", "azure:australiaeast"), 70.2
    ceiling, limits = MaximizeThroughput(max_cost_usd=8.3), Limits(instance_limit=2)
    best = plan(shipped, *ends, ceiling, volume_gb=volume_gb, limits=limits)

    def ended(*_: object, **__: object) -> None:
        raise SolverFailed("no x was found")

    monkeypatch.setattr(cost_ceiling, "best_rate", ended)
    found = plan(shipped, *ends, ceiling, volume_gb=volume_gb, limits=limits)
    assert found.throughput_gbps < best.throughput_gbps <= found.solver.bound * (1 + 1e-9)


@pytest.mark.parametrize("objects", [None, 1_000_000])
def test_the_overhead_never_falls_as_the_rate_rises(shipped: Grid, objects: int | None) -> None:
    tags = ("aws:a", "azure:b", "local:c")
    request = PlanRequest(shipped, "aws:us-east-1", ("aws:eu-west-1",), 100, objects, NO_LIMITS)
    before = total_bounds.overhead(request, tags, 0, 120)
    assert list(before) == [1, 1, 1]
    for bytes_s in (10_000, 500, 100, 10, 0.1):
        now = total_bounds.overhead(request, tags, 800 / bytes_s, 120)
        assert (now >= before).all()
        before = now
    # A million objects take 286 s, at 3,500 writes per second.
    expected = [3, 5, 3] if objects is None else [(120 + 1e6 / 3500) / 60] * 3
    assert list(total_bounds.overhead(request, tags, 800 / 60, 120)) == pytest.approx(expected)
