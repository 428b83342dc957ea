"""Which types may be in an optimum, and how many of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.grids.grid import VcpuQuota
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost
from skyplane_orchestration.planner import plan, violations
from skyplane_orchestration.planner.instance_options import quota_of
from skyplane_orchestration.planner.problem import PlanProblem, build_problem

S, T, R = "aws:s", "gcp:t", "aws:r"
GridOf = Callable[..., Grid]


def kind(
    name: str, usd_per_hour: float, egress: float, ingress: float, vcpus: int = 4, limit: int = 8
) -> InstanceType:
    return InstanceType("aws", name, vcpus, egress, ingress, 64, usd_per_hour, limit)


def problem_of(
    grid_of: GridOf, kinds: Sequence[InstanceType], limits: Limits | None = None
) -> PlanProblem:
    edges = {(S, T): (9.0, 0.1), (S, R): (9.0, 0.02), (R, T): (9.0, 0.02)}
    return build_problem(grid_of(edges, kinds), S, T, goal_gbps=1.0, limits=limits or Limits())


def names_at(problem: PlanProblem, tag: str) -> list[str]:
    region = problem.tags.index(tag)
    return [
        kind.name
        for kind, place in zip(problem.types, problem.option_region, strict=True)
        if place == region
    ]


def test_a_plan_pays_what_instances_cost_in_its_regions(small_grid: GridOf) -> None:
    """Found by the bill of fake clouds: all regions had the price of one."""
    kinds = [kind("small", 0.1, 5.0, 5.0)]
    edges = {(S, T): (9.0, 0.1), (S, R): (9.0, 0.02), (R, T): (9.0, 0.02)}
    grid = replace(small_grid(edges, kinds), price_ratios={S: 1.5, T: 2.0})
    for limits in (Limits(), Limits(instance_types={"aws": "small"})):
        made = plan(grid, S, T, MinimizeCost(1.0), volume_gb=1.0, limits=limits)
        paid = {tag: group.usd_per_hour for tag, group in made.instances.items()}
        other = grid.instance_type("gcp").usd_per_hour
        assert paid[S] == pytest.approx(0.15)
        assert paid[T] == pytest.approx(2 * other)
        assert paid.get(R, 0.1) == 0.1
        assert list(violations(made, grid, limits)) == []


def test_a_dearer_type_that_is_no_better_is_left_out(small_grid: GridOf) -> None:
    problem = problem_of(small_grid, [kind("a", 1.0, 5, 5), kind("b", 2.0, 5, 5)])
    assert names_at(problem, S) == names_at(problem, R) == ["a"]


def test_of_two_equal_types_the_clouds_default_stays(small_grid: GridOf) -> None:
    problem = problem_of(small_grid, [kind("a", 1.0, 5, 5), kind("b", 1.0, 5, 5)])
    assert names_at(problem, S) == ["a"]


def test_a_better_rate_counts_only_where_it_is_used(small_grid: GridOf) -> None:
    """The source never receives; a relay passes on the smaller of what it takes and gives."""
    kinds = [kind("plain", 1.0, 5, 5), kind("receives", 2.0, 5, 8), kind("both", 3.0, 8, 8)]
    problem = problem_of(small_grid, kinds)
    assert names_at(problem, S) == ["plain", "both"]
    assert names_at(problem, R) == ["plain", "both"]


def test_a_rate_beyond_what_the_connections_carry_counts_for_nothing(small_grid: GridOf) -> None:
    problem = problem_of(small_grid, [kind("nine", 1.0, 9, 9), kind("fifty", 2.0, 50, 50)])
    assert names_at(problem, S) == names_at(problem, R) == ["nine"]


def test_a_dearer_type_of_which_there_may_be_more_stays(small_grid: GridOf) -> None:
    kinds = [kind("few", 1.0, 5, 5, limit=1), kind("many", 2.0, 5, 5, limit=4)]
    assert names_at(problem_of(small_grid, kinds), S) == ["few", "many"]


def test_vcpus_bound_the_number_and_may_leave_none(small_grid: GridOf) -> None:
    kinds = [kind("large", 1.0, 9, 9, vcpus=16), kind("small", 2.0, 5, 5, vcpus=2)]
    problem = problem_of(small_grid, kinds, Limits(vcpu_quota={"aws": 6}))
    assert names_at(problem, S) == ["small"]
    assert problem.quota[problem.option_region == problem.src].tolist() == [3]


@pytest.mark.parametrize(
    ("account", "limits", "quota"),
    [
        (None, Limits(), ("instance_quota", 8)),
        (17, Limits(), ("vcpu_quota", 4)),
        (17, Limits(vcpu_quota={"aws": 12}), ("vcpu_quota", 3)),
        (100, Limits(vcpu_quota={"aws": 24}, instance_limit=5), ("instance_quota", 5)),
    ],
)
def test_the_smallest_of_instances_and_the_jobs_and_the_accounts_vcpus_counts(
    small_grid: GridOf, account: int | None, limits: Limits, quota: tuple[str, int]
) -> None:
    """A plain type has 4 vCPUs, and the grid allows 8 of it."""
    grid = small_grid({(S, T): (9.0, 0.1)}, [four := kind("a", 1.0, 5, 5)])
    if account is not None:
        grid = replace(grid, quotas=(VcpuQuota("aws:*", account),))
    assert quota_of(grid, S, four, limits) == (*quota, "")


def test_a_type_that_the_job_names_is_the_only_one(small_grid: GridOf) -> None:
    kinds = [kind("a", 1.0, 5, 5), kind("b", 2.0, 5, 5)]
    problem = problem_of(small_grid, kinds, Limits(instance_types={"aws": "b"}))
    assert names_at(problem, S) == names_at(problem, R) == ["b"]
    with pytest.raises(GridInvalid, match="'c'"):
        problem_of(small_grid, kinds, Limits(instance_types={"aws": "c"}))


def test_the_type_is_chosen_by_what_the_goal_needs(small_grid: GridOf) -> None:
    """Small ones are cheap per Gbit/s, but eight of them do not carry 20 Gbit/s."""
    kinds = [kind("small", 0.1, 2, 2), kind("large", 2.0, 9, 9)]
    grid = small_grid({(S, T): (9.0, 0.1)}, kinds)
    assert plan(grid, S, T, MinimizeCost(10, exactly=True)).instances[S].type == "small"
    assert plan(grid, S, T, MinimizeCost(20, exactly=True)).instances[S].type == "large"


def test_the_accounts_vcpu_quota_is_the_grids(small_grid: GridOf) -> None:
    kinds = [kind("small", 0.1, 2, 2, vcpus=2), kind("large", 2.0, 9, 9, vcpus=8)]
    grid = small_grid({(S, T): (9.0, 0.1)}, kinds)
    tight = replace(grid, quotas=(VcpuQuota("aws:*", 8),))
    goal = MinimizeCost(8.5, exactly=True)
    assert plan(grid, S, T, goal).instances[S].type == "small"
    made = plan(tight, S, T, goal)
    assert (made.instances[S].type, made.instances[S].count) == ("large", 1)


def test_a_larger_type_pays_where_the_edge_carries_more_than_the_default_takes(
    shipped: Grid,
) -> None:
    ends, objective = ("azure:uksouth", "aws:eu-west-2"), MaximizeThroughput(max_usd_per_gb=0.09)
    larger = plan(shipped, *ends, objective, limits=Limits(instance_limit=1))
    default = shipped.instance_type("aws")
    small = Limits(instance_limit=1, instance_types={"aws": default.name})
    at_default = plan(shipped, *ends, objective, limits=small).throughput_gbps
    assert at_default == pytest.approx(default.ingress_gbps, rel=1e-5)
    assert larger.throughput_gbps > 1.3 * default.ingress_gbps
    assert larger.cost.usd_per_gb < 0.09
