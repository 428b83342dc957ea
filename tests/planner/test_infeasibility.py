"""What a refusal names can be had: every test makes the second request."""

from __future__ import annotations

from typing import Any

import pytest

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    NO_LIMITS,
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
)
from skyplane_orchestration.planner import plan
from skyplane_orchestration.planner.infeasibility import rounded_down, rounded_up

S, T = "aws:s", "gcp:t"
PAIR = ("aws:ap-southeast-2", "aws:eu-west-3")


def refusal(grid: Grid, ends: tuple[str, str], objective: Objective, **more: Any) -> PlanInfeasible:
    with pytest.raises(PlanInfeasible) as caught:
        plan(grid, *ends, objective, **more)
    return caught.value


@pytest.mark.parametrize(
    ("limits", "name", "advice"),
    [
        (NO_LIMITS, "instance_quota aws:s", "Ask for less or allow more instances"),
        (Limits(vcpu_quota={"aws": 9, "gcp": 200}), "vcpu_quota aws:s", "allow more instances"),
        (Limits(source_read_gbps=3.5), "storage_read aws:s", "Ask for less or use a faster store"),
        (Limits(destination_write_gbps=3.5), "storage_write gcp:t", "use a faster store"),
        (Limits(safety_margin=0.2), "instance_quota aws:s", "allow more instances"),
        (Limits(max_relays=0), "instance_quota aws:s", "instances or let more regions relay"),
    ],
)
def test_too_fast(triangle: Grid, limits: Limits, name: str, advice: str) -> None:
    error = refusal(triangle, (S, T), MinimizeCost(100), limits=limits)
    assert name in error.binding
    assert str(error).endswith(advice)
    assert error.most_gbps
    assert f"the most is {error.most_gbps:g} Gbit/s" in str(error)
    again = plan(triangle, S, T, MinimizeCost(error.most_gbps), limits=limits)
    assert again.throughput_gbps >= error.most_gbps * (1 - 1e-9)
    more = refusal(triangle, (S, T), MinimizeCost(error.most_gbps * 1.01), limits=limits)
    assert more.most_gbps == error.most_gbps


@pytest.mark.parametrize(
    ("volume_gb", "limits"), [(5, NO_LIMITS), (2000, Limits(instance_limit=1))]
)
def test_too_late(few: Grid, volume_gb: float, limits: Limits) -> None:
    error = refusal(few, PAIR, Deadline(76), volume_gb=volume_gb, limits=limits)
    assert error.binding[0] == "deadline"
    assert len(error.binding) > 1
    assert error.least_s
    in_time = plan(few, *PAIR, Deadline(error.least_s), volume_gb=volume_gb, limits=limits)
    assert in_time.transfer_s is not None
    assert in_time.provision_s + in_time.transfer_s <= error.least_s
    earlier = Deadline(error.least_s * 0.98)
    assert refusal(few, PAIR, earlier, volume_gb=volume_gb, limits=limits).least_s


def test_a_deadline_too_short_for_a_slow_cloud_goes_without_it(triangle: Grid) -> None:
    """Directly 2.5 Gbit/s after 75 s, over azure:r 5 after 120: in 145 s only directly 160."""
    one = Limits(instance_limit=1)
    quick = plan(triangle, S, T, Deadline(145), volume_gb=20, limits=one)
    assert (quick.relays, quick.provision_s) == ((), 75)
    patient = plan(triangle, S, T, Deadline(600), volume_gb=200, limits=one)
    assert (patient.relays, patient.provision_s) == (("azure:r",), 120)
    short = plan(triangle, S, T, Deadline(95), volume_gb=6, limits=one)
    assert (short.relays, short.provision_s) == ((), 75)
    assert refusal(triangle, (S, T), Deadline(80), volume_gb=6, limits=one).least_s == (
        pytest.approx(75 + 48 / 2.5, rel=1e-3)
    )


LARGE: dict[str, Any] = {
    "volume_gb": 1e6,
    "limits": Limits(instance_limit=100, safety_margin=0.3),
}


@pytest.mark.parametrize(
    ("ends", "job"),
    [
        (PAIR, {"volume_gb": 100, "objects": None}),
        (PAIR, {"volume_gb": 100, "objects": 200_000}),
        (("aws:us-west-2", "aws:ap-southeast-1"), LARGE),
    ],
)
def test_too_dear_in_all(few: Grid, ends: tuple[str, str], job: dict[str, Any]) -> None:
    error = refusal(few, ends, MaximizeThroughput(max_cost_usd=1), **job)
    assert error.binding == ("cost_ceiling",)
    assert error.least_usd
    accepted = plan(few, *ends, MaximizeThroughput(max_cost_usd=error.least_usd), **job)
    assert accepted.cost.total_usd is not None
    assert accepted.cost.total_usd <= error.least_usd
    assert accepted.solver.bound >= accepted.throughput_gbps


@pytest.mark.parametrize(
    "objective",
    [
        MinimizeCost(4),
        MinimizeCost(4, exactly=True),
        Deadline(3000),
        MaximizeThroughput(max_usd_per_gb=0.2),
        pytest.param(MaximizeThroughput(max_cost_usd=100), marks=pytest.mark.soak),
    ],
)
def test_more_than_the_policy_lets_a_job_cost(few: Grid, objective: Objective) -> None:
    error = refusal(few, PAIR, objective, volume_gb=100, policy=Policy(max_job_usd=5))
    assert error.binding == ("policy max_job_usd",)
    assert "USD: max_job_usd is 5" in str(error)
    assert error.least_usd
    policy = Policy(max_job_usd=error.least_usd)
    accepted = plan(few, *PAIR, objective, volume_gb=100, policy=policy)
    assert accepted.cost.total_usd is not None
    assert accepted.cost.total_usd <= error.least_usd


def test_figures_are_rounded_to_the_safe_side() -> None:
    for value in (0.012345678, 1.0, 39.999999999, 123456.789, 1e-9):
        assert value * (1 - 2e-4) <= rounded_down(value) <= value * (1 + 1e-8)
        assert value * (1 - 1e-8) <= rounded_up(value) <= value * (1 + 2e-4)
        assert float(f"{rounded_up(value):g}") == rounded_up(value)
    assert rounded_down(40 - 1e-10) == 40
    assert rounded_up(0.25 + 1e-12) == 0.25
