"""Several destinations in one plan: by hand, by refusals, and on the shipped grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid, PlanInfeasible, UnknownRegion
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.grids.grid import StorageLimit, VcpuQuota
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Policy,
)
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import multicast_plan, multicast_violations, plan

S, A, B, R = "aws:s", "gcp:a", "gcp:b", "azure:r"
HARBOUR = {
    (S, A): (4.0, 0.10),
    (S, B): (4.0, 0.11),
    (S, R): (4.0, 0.06),
    (R, A): (5.0, 0.01),
    (R, B): (5.0, 0.01),
}
PER_HOUR = 3.6  # of the small grid's instances: 0.001 USD per second


@pytest.fixture(scope="module")
def ocean(small_grid: Callable[..., Grid]) -> Grid:
    """Two destinations beyond a dear ocean, a cheap edge between them."""
    return small_grid(
        {
            (S, A): (4.0, 0.10),
            (S, B): (4.0, 0.11),
            (A, B): (5.0, 0.01),
            (B, A): (5.0, 0.01),
        }
    )


@pytest.fixture(scope="module")
def harbour(small_grid: Callable[..., Grid]) -> Grid:
    """The same with a relay on the far side: 0.06 over the ocean, then 0.01 to each."""
    return small_grid(HARBOUR)


def instances_usd_per_gb(count: int, gbps: float) -> float:
    return count * PER_HOUR / 3600 / gbps * 8


def test_the_ocean_is_paid_once_and_the_second_destination_by_the_first(ocean: Grid) -> None:
    answer = multicast_plan(ocean, S, [A, B], MinimizeCost(4.0, exactly=True))
    assert [tree.edges for tree in answer.trees] == [((S, A), (A, B))]
    assert answer.cost.usd_per_gb == pytest.approx(0.10 + 0.01 + instances_usd_per_gb(3, 4.0))
    assert {tag: group.count for tag, group in answer.instances.items()} == {S: 1, A: 1, B: 1}
    assert {(edge.src, edge.dst): edge.connections for edge in answer.edges} == {
        (S, A): 64,
        (A, B): 52,  # 4 Gbit/s of 5 over 64
    }
    assert answer.solver.status == "optimal"
    assert answer.solver.bound == pytest.approx(answer.cost.usd_per_gb, rel=1e-4)


def test_separate_plans_pay_the_ocean_twice(ocean: Grid) -> None:
    answer = multicast_plan(ocean, S, [A, B], MinimizeCost(4.0, exactly=True))
    each = {A: 0.10 + instances_usd_per_gb(2, 4.0), B: 0.11 + instances_usd_per_gb(2, 4.0)}
    # By way of A, B costs as much in egress and one instance more: straight is cheaper.
    assert answer.separate_usd_per_gb == pytest.approx(sum(each.values()))


def test_a_relay_that_is_no_destination_fans_out(harbour: Grid) -> None:
    answer = multicast_plan(harbour, S, [A, B], MinimizeCost(2.5, exactly=True))
    assert [tree.edges for tree in answer.trees] == [((S, R), (R, A), (R, B))]
    assert answer.relays == (R,)
    assert answer.cost.usd_per_gb == pytest.approx(0.06 + 0.02 + instances_usd_per_gb(4, 2.5))


def test_a_forwarding_region_pays_with_its_own_limits(harbour: Grid) -> None:
    """The relay sends everything twice: above 2.5 Gbit/s it needs a second instance."""
    answer = multicast_plan(harbour, S, [A, B], MinimizeCost(2.6, exactly=True))
    assert answer.instances[R].count == 2
    one = multicast_plan(
        harbour, S, [A, B], MinimizeCost(2.6, exactly=True), limits=Limits(instance_limit=1)
    )
    assert len(one.trees) > 1
    assert multicast_violations(one, harbour, Limits(instance_limit=1)) == []


def test_faster_than_the_floor_where_that_is_cheaper(harbour: Grid) -> None:
    """Whole instances: at 2.5 Gbit/s the relay's one instance is full, and the price least."""
    answer = multicast_plan(harbour, S, [A, B], MinimizeCost(1.5))
    exact = multicast_plan(harbour, S, [A, B], MinimizeCost(1.5, exactly=True))
    assert answer.throughput_gbps > 2.4
    assert answer.cost.usd_per_gb < exact.cost.usd_per_gb
    assert answer.solver.bound <= answer.cost.usd_per_gb


def test_the_fastest_under_a_ceiling_is_as_dear_as_that(harbour: Grid) -> None:
    ceiling = 0.1
    answer = multicast_plan(harbour, S, [A, B], MaximizeThroughput(max_usd_per_gb=ceiling))
    assert answer.cost.usd_per_gb <= ceiling * (1 + 1e-6)
    assert answer.throughput_gbps <= answer.solver.bound * (1 + 1e-9)
    dearer = multicast_plan(
        harbour, S, [A, B], MinimizeCost(answer.throughput_gbps * 1.01, exactly=True)
    )
    assert dearer.cost.usd_per_gb > ceiling


def test_a_ceiling_for_the_job_counts_boot_and_requests_too(harbour: Grid) -> None:
    answer = multicast_plan(
        harbour,
        S,
        [A, B],
        MaximizeThroughput(max_cost_usd=10.0),
        volume_gb=100.0,
        objects=1000,
    )
    assert answer.cost.total_usd is not None
    assert answer.cost.total_usd <= 10.0 * (1 + 1e-6)
    assert (answer.cost.boot_usd or 0) > 0
    with pytest.raises(PlanInfeasible, match="boot, minimum billing"):
        multicast_plan(harbour, S, [A, B], MaximizeThroughput(max_cost_usd=8.0), volume_gb=100.0)


def test_a_deadline_leaves_time_to_come_up(harbour: Grid) -> None:
    answer = multicast_plan(harbour, S, [A, B], Deadline(520.0), volume_gb=100.0)
    assert answer.transfer_s is not None
    assert answer.transfer_s + answer.provision_s <= 520.0 * (1 + 1e-9)
    assert answer.throughput_gbps >= 2.0 * (1 - 1e-9)  # 800 Gbit in 400 s
    with pytest.raises(PlanInfeasible, match="to start"):
        multicast_plan(harbour, S, [A, B], Deadline(60.0), volume_gb=100.0)


@pytest.mark.parametrize("slow_s", [250.0, 900.0])
def test_a_cloud_that_starts_too_slowly_for_a_deadline_has_no_relay(
    harbour: Grid, slow_s: float
) -> None:
    grid = replace(harbour, provision_s={"aws": 10.0, "gcp": 10.0, "azure": slow_s})
    answer = multicast_plan(grid, S, [A, B], Deadline(260.0), volume_gb=100.0)
    assert not answer.relays
    assert answer.provision_s == 10.0
    assert answer.throughput_gbps >= 3.2 * (1 - 1e-9)  # 800 Gbit in 250 s


def test_a_byte_is_read_once_and_written_at_every_destination(small_grid: Any) -> None:
    edges = {("aws:s", "aws:a"): (4.0, 0.02), ("aws:s", "aws:b"): (4.0, 0.02)}
    answer = multicast_plan(
        small_grid(edges), S, ["aws:a", "aws:b"], MinimizeCost(1.0), volume_gb=1.0, objects=1000
    )
    # 63 parts of 16 MiB in a GB; an object of 1 MB is one: reads, lists, writes and lists.
    assert answer.cost.request_usd == pytest.approx(
        0.0004 + 0.005 / 1000 + 2 * (0.005 + 0.005 / 1000)
    )


@pytest.mark.parametrize(
    ("limits", "policy", "check"),
    [
        (Limits(max_relays=0), Policy(), lambda p: not p.relays),
        (Limits(), Policy(exclude_regions=("azure:*",)), lambda p: not p.relays),
        (Limits(), Policy(allow_regions=("gcp:*",)), lambda p: not p.relays),
        (Limits(instance_limit=1), Policy(), lambda p: p.instance_count <= 4),
        (Limits(vcpu_quota={"azure": 4}), Policy(), lambda p: p.instances[R].count == 1),
        (Limits(vcpu_quota={"azure": 3}), Policy(), lambda p: not p.relays),
        (Limits(safety_margin=0.5), Policy(), lambda p: p.instances[S].count >= 2),
        (
            Limits(instance_types={"aws": "aws-big"}),
            Policy(),
            lambda p: p.instances[S].type == "aws-big",
        ),
    ],
)
def test_limits_and_policy_hold(
    small_grid: Any, limits: Limits, policy: Policy, check: Callable[[TransferPlan], bool]
) -> None:
    types = [
        InstanceType("aws", "aws-plain", 4, 5.0, 10.0, 64, 3.6, 8),
        InstanceType("aws", "aws-big", 8, 10.0, 10.0, 64, 9.0, 8),
    ]
    grid = small_grid(HARBOUR, types)
    answer = multicast_plan(
        grid, S, [A, B], MinimizeCost(2.4, exactly=True), limits=limits, policy=policy
    )
    assert check(answer)
    assert multicast_violations(answer, grid, limits) == []


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Limits(source_read_gbps=2.0), f"storage_read {S}"),
        (Limits(destination_write_gbps=2.0), f"storage_write {A}"),
    ],
)
def test_stores_at_the_ends_cap_the_rate(harbour: Grid, limits: Limits, name: str) -> None:
    answer = multicast_plan(
        harbour, S, [A, B], MaximizeThroughput(max_usd_per_gb=1.0), limits=limits
    )
    assert answer.throughput_gbps == pytest.approx(2.0, rel=1e-5)
    assert name in answer.binding


def test_what_the_grid_says_of_stores_and_quotas_holds(harbour: Grid) -> None:
    grid = replace(
        harbour,
        storage=(StorageLimit("gcp:b", None, 1.5),),
        quotas=(VcpuQuota("gcp:a", 4),),
    )
    answer = multicast_plan(grid, S, [A, B], MaximizeThroughput(max_usd_per_gb=1.0))
    assert answer.throughput_gbps == pytest.approx(1.5, rel=1e-5)
    assert answer.instances[A].count == 1
    assert multicast_violations(answer, grid) == []
    without = multicast_plan(harbour, S, [A, B], MinimizeCost(12.0, exactly=True))
    broken = multicast_violations(without, grid)
    assert any("storage write of gcp:b: 12" in one for one in broken)
    assert any("vCPUs of gcp:a: " in one for one in broken)


def test_infeasible_says_what_binds_and_what_goes(ocean: Grid) -> None:
    limits = Limits(instance_limit=1)
    with pytest.raises(PlanInfeasible, match="the most that was found is") as refused:
        multicast_plan(ocean, S, [A, B], MinimizeCost(50.0), limits=limits)
    most = refused.value.most_gbps
    assert most is not None
    assert f"instance_quota {S}" in refused.value.binding
    answer = multicast_plan(ocean, S, [A, B], MinimizeCost(most, exactly=True), limits=limits)
    assert multicast_violations(answer, ocean, limits) == []
    with pytest.raises(PlanInfeasible):
        multicast_plan(ocean, S, [A, B], MinimizeCost(most * 1.001), limits=limits)


def test_too_cheap_says_what_the_cheapest_costs(ocean: Grid) -> None:
    with pytest.raises(PlanInfeasible, match="the cheapest costs") as refused:
        multicast_plan(ocean, S, [A, B], MaximizeThroughput(max_usd_per_gb=0.05))
    assert refused.value.binding == ("cost_ceiling",)


def test_no_way_to_one_of_them_is_no_way(small_grid: Any) -> None:
    grid = small_grid({(S, A): (4.0, 0.1), (B, A): (4.0, 0.1)})
    with pytest.raises(PlanInfeasible, match="no way") as refused:
        multicast_plan(grid, S, [A, B], MinimizeCost(1.0))
    assert refused.value.most_gbps == 0.0


def test_an_end_without_an_instance_is_no_way(harbour: Grid) -> None:
    limits = Limits(vcpu_quota={"gcp": 3})
    with pytest.raises(PlanInfeasible, match="no way"):
        multicast_plan(harbour, S, [A, B], MinimizeCost(1.0), limits=limits)


def test_the_policys_most_per_job_is_met_or_refused(ocean: Grid) -> None:
    objective = MinimizeCost(4.0, exactly=True)
    with pytest.raises(PlanInfeasible, match="max_job_usd") as refused:
        multicast_plan(ocean, S, [A, B], objective, volume_gb=100, policy=Policy(max_job_usd=5.0))
    assert refused.value.binding == ("policy max_job_usd",)
    multicast_plan(ocean, S, [A, B], objective, volume_gb=100, policy=Policy(max_job_usd=50.0))


@pytest.mark.parametrize(
    ("destinations", "error", "clue"),
    [
        ([], ConfigurationInvalid, "1 to 8 destinations"),
        ([A, A], ConfigurationInvalid, "more than once"),
        ([A, S], ConfigurationInvalid, "is the source"),
        ([A, "gcp:c"], UnknownRegion, "did you mean"),
    ],
)
def test_bad_destinations_are_refused(
    ocean: Grid, destinations: list[str], error: type[Exception], clue: str
) -> None:
    with pytest.raises(error, match=clue):
        multicast_plan(ocean, S, destinations, MinimizeCost(1.0))


def test_what_counts_the_job_needs_a_volume(ocean: Grid) -> None:
    with pytest.raises(ConfigurationInvalid, match="volume"):
        multicast_plan(ocean, S, [A, B], Deadline(1000.0))


def test_an_excluded_end_is_refused(ocean: Grid) -> None:
    with pytest.raises(PlanInfeasible, match="cannot avoid its ends"):
        multicast_plan(
            ocean, S, [A, B], MinimizeCost(1.0), policy=Policy(exclude_regions=("gcp:a",))
        )


def test_the_plan_survives_a_round_trip_as_json(harbour: Grid) -> None:
    answer = multicast_plan(harbour, S, [A, B], MinimizeCost(2.0), volume_gb=10.0)
    assert TransferPlan.from_dict(answer.to_dict()) == answer
    assert answer.to_dict()["schema_version"] == 1
    with pytest.raises(ConfigurationInvalid, match="this release reads 1"):
        TransferPlan.from_dict({**answer.to_dict(), "schema_version": 9})


# ---------------------------------------------------------------- all regions


def test_on_the_shipped_grid_sharing_saves_what_it_says(shipped: Grid) -> None:
    """Out of one cloud once, then between two regions of the other: egress, half of it saved."""
    destinations = ["aws:ap-southeast-1", "aws:ap-northeast-1", "aws:ap-south-1"]
    answer = multicast_plan(shipped, "gcp:us-east4", destinations, MinimizeCost(4.0))
    assert multicast_violations(answer, shipped) == []
    assert answer.solver.bound <= answer.cost.usd_per_gb
    assert answer.solver.gap < 0.01
    assert answer.separate_usd_per_gb is not None
    assert answer.separate_usd_per_gb - answer.cost.usd_per_gb > 0.05
    total = 0.0
    types = {cloud: shipped.instance_type(cloud).name for cloud in ("aws", "gcp", "azure")}
    for tag in destinations:
        rate = answer.throughput_gbps * (1 - 1e-5)
        alone = plan(
            shipped,
            "gcp:us-east4",
            tag,
            MinimizeCost(rate, exactly=True),
            limits=Limits(instance_types=types),
        )
        total += alone.cost.usd_per_gb
    assert answer.separate_usd_per_gb == pytest.approx(total, rel=1e-3)
