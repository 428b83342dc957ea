"""Plans within what the account of a provisioner may run."""

from __future__ import annotations

import pytest

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost, Objective
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.planner import default_objective, direct, explain_plan, plan
from skyplane_orchestration.planner.check import violations

S, T, R = "aws:s", "gcp:t", "azure:r"
FILE = "the hosts file hosts.yaml"
FASTEST = MaximizeThroughput(max_usd_per_gb=9.0)


def hosts(grid: Grid, **counts: int) -> Grid:
    tags = {"s": S, "t": T, "r": R}
    return grid.with_account(
        RegionQuota(tags[name], FILE, instances=count) for name, count in counts.items()
    )


def test_a_plan_has_no_more_instances_than_there_are(triangle: Grid) -> None:
    free = plan(triangle, S, T, FASTEST)
    assert free.instances[S].count > 2
    answer = plan(hosts(triangle, s=2, t=3, r=1), S, T, FASTEST)
    assert answer.instances[S].count == 2
    assert answer.instances[R].count == 1
    assert f"instance_quota {S}" in answer.binding
    assert f"the plan has all instances that {S} may have: 2, by {FILE}" in answer.notes


def test_the_account_counts_in_place_of_the_types_limit_and_the_job_may_have_less(
    triangle: Grid,
) -> None:
    """The type's limit is 8."""
    many = hosts(triangle, s=20, t=20, r=0)
    assert direct(many, S, T, 20).instances[S].count == 20
    assert direct(many, S, T, 20, limits=Limits(instance_limit=3)).instances[S].count == 3


def test_a_quota_of_a_series_limits_its_types_only(triangle: Grid) -> None:
    (kind,) = (one for one in triangle.types if one.cloud == "aws")
    for series, free in ((kind.name[:2], kind.vcpus), ("other-", None)):
        quota = RegionQuota(S, "N2_CPUS", vcpus=kind.vcpus, series=series)
        grid = triangle.with_account([quota])
        assert grid.vcpu_quota(S, kind.name) == free
        assert (plan(grid, S, T, FASTEST).instances[S].count == 1) == (free is not None)


def test_a_region_without_machines_is_no_relay(triangle: Grid) -> None:
    assert plan(triangle, S, T, FASTEST).relays == (R,)
    assert plan(hosts(triangle, s=8, t=8, r=0), S, T, FASTEST).relays == ()


@pytest.mark.parametrize("objective", [None, FASTEST, MinimizeCost(1.0)])
@pytest.mark.parametrize(("src", "dst"), [(S, T), (T, S), (T, T)])
def test_an_end_without_machines_is_named(
    triangle: Grid, src: str, dst: str, objective: Objective | None
) -> None:
    grid = hosts(triangle, s=8, t=0, r=8)
    with pytest.raises(PlanInfeasible, match=f"no gateway can run in {T}, by {FILE}") as caught:
        plan(grid, src, dst, objective or default_objective(grid, src, dst))
    assert caught.value.binding == (f"instance_quota {T}",)
    assert caught.value.is_permanent


@pytest.mark.parametrize("dst", [T, S])
def test_a_rate_beyond_all_machines_names_their_owner(triangle: Grid, dst: str) -> None:
    with pytest.raises(PlanInfeasible, match=rf"2 instances.*{FILE}") as caught:
        plan(hosts(triangle, s=2), S, dst, MinimizeCost(90.0))
    assert f"instance_quota {S}" in caught.value.binding


def test_vcpus_in_use_are_taken_off(triangle: Grid) -> None:
    """A plain instance has 4 vCPUs; of several quotas the smallest counts."""
    quotas = [RegionQuota(S, "all", 64), RegionQuota(S, "standard", 16, used_vcpus=7)]
    answer = plan(triangle.with_account(quotas), S, T, FASTEST)
    assert answer.instances[S].count == 2
    assert f"the plan has all instances that {S} may have: 2, by standard" in answer.notes


def test_the_checker_finds_more_instances_than_the_account_may_run(triangle: Grid) -> None:
    free = plan(triangle, S, T, FASTEST)
    count = free.instances[S].count
    found = violations(free, hosts(triangle, s=count - 1))
    assert found == [f"(4j) instances of {S}: {count} where {count - 1} is the limit"]
    assert violations(free, hosts(triangle, s=count)) == []


def test_one_more_machine_is_worth_what_a_plan_with_it_gives(triangle: Grid) -> None:
    few = hosts(triangle, s=2, t=8, r=8)
    why = explain_plan(few, plan(few, S, T, FASTEST))
    better = plan(hosts(triangle, s=3, t=8, r=8), S, T, FASTEST)
    assert why.more is not None
    assert why.more.plan.throughput_gbps == pytest.approx(better.throughput_gbps)
    assert any(
        said.startswith(f"One more instance in {S} would make it {better.throughput_gbps:.2f}")
        for said in why.sentences
    )
