"""What a caller of `plan` sees: objectives, policy, places without a cloud, provenance."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    PlanInfeasible,
    UnknownRegion,
)
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
)
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import best_relay, plan, violations

S, T, R = "aws:s", "gcp:t", "azure:r"


# ---------------------------------------------------------------- by hand, on the triangle


def test_the_cheapest_way_is_direct_while_it_is_fast_enough(triangle: Grid) -> None:
    answer = plan(triangle, S, T, MinimizeCost(2.5, exactly=True), volume_gb=100)
    assert [path.regions for path in answer.paths] == [(S, T)]
    assert answer.cost.usd_per_gb == pytest.approx(0.10 + 2 * 0.001 * 8 / 2.5)
    assert {tag: group.count for tag, group in answer.instances.items()} == {S: 1, T: 1}
    assert answer.edges[0].connections == 64
    assert answer.transfer_s == pytest.approx(320)
    assert answer.cost.total_usd == pytest.approx(10 + 0.001 * 2 * (320 + 75))


def test_a_relay_comes_in_when_one_instance_must_send_more(triangle: Grid) -> None:
    """5 Gbit/s with one instance each: all of it over the relay at 0.12, three instances."""
    answer = plan(triangle, S, T, MinimizeCost(5, exactly=True), limits=Limits(instance_limit=1))
    assert answer.relays == (R,)
    assert answer.cost.usd_per_gb == pytest.approx(0.12 + 3 * 0.001 * 8 / 5)
    assert {edge.connections for edge in answer.edges} == {64}
    assert "egress_limit aws:s" in answer.binding


def test_whole_connections_are_what_splits_the_flow(triangle: Grid) -> None:
    """At 3 Gbit/s: x over the relay, 64 connections hold x / 5 + (3 - x) / 2.5 <= 1."""
    answer = plan(triangle, S, T, MinimizeCost(3, exactly=True), limits=Limits(instance_limit=1))
    relayed = next(edge.flow_gbps for edge in answer.edges if edge.dst == R)
    assert 1.0 <= relayed <= 1.0 + 5 / 64
    assert sum(edge.connections for edge in answer.edges if edge.src == S) <= 64


def test_faster_is_taken_where_it_is_cheaper(triangle: Grid) -> None:
    exactly = plan(triangle, S, T, MinimizeCost(1.0, exactly=True))
    default = plan(triangle, S, T, MinimizeCost(1.0))
    assert default.throughput_gbps == pytest.approx(2.5)
    assert default.cost.usd_per_gb < exactly.cost.usd_per_gb


def test_among_equally_cheap_plans_the_smallest_is_taken(triangle: Grid) -> None:
    """Every multiple of 2.5 Gbit/s costs the same per GB."""
    assert plan(triangle, S, T, MinimizeCost(6.0)).instance_count == 6


def test_relays_that_cost_nothing_are_not_used_for_nothing(small_grid: Callable[..., Grid]) -> None:
    edges = {(S, T): (5.0, 0.1)}
    for relay in ("local:a", "local:b"):
        edges |= {(S, relay): (5.0, 0.1), (relay, T): (5.0, 0.0)}
    answer = plan(small_grid(edges), S, T, MinimizeCost(4.0))
    assert answer.relays == ()


# ---------------------------------------------------------------- objectives


def test_a_deadline_counts_the_time_to_provision(triangle: Grid) -> None:
    answer = plan(triangle, S, T, Deadline(475), volume_gb=100)
    assert answer.transfer_s is not None
    assert answer.provision_s == 75
    assert answer.provision_s + answer.transfer_s <= 475
    with pytest.raises(PlanInfeasible, match="gateways take to start") as refused:
        plan(triangle, S, T, Deadline(60), volume_gb=100)
    assert refused.value.binding[0] == "deadline"


def test_a_ceiling_in_dollars_pays_requests_first(triangle: Grid) -> None:
    few = plan(triangle, S, T, MaximizeThroughput(max_cost_usd=12), volume_gb=100, objects=100)
    many = plan(triangle, S, T, MaximizeThroughput(max_cost_usd=12), volume_gb=100, objects=100_000)
    assert few.cost.total_usd is not None
    assert few.cost.total_usd <= 12 * (1 + 1e-6)
    assert many.throughput_gbps < few.throughput_gbps


def test_a_ceiling_below_every_plan_says_what_the_cheapest_costs(triangle: Grid) -> None:
    with pytest.raises(PlanInfeasible, match=r"the cheapest costs 0\.1064") as refused:
        plan(triangle, S, T, MaximizeThroughput(max_usd_per_gb=0.05))
    assert refused.value.binding == ("cost_ceiling",)


@pytest.mark.parametrize(
    ("objective", "policy"),
    [
        (Deadline(1000), Policy()),
        (MaximizeThroughput(max_cost_usd=5), Policy()),
        (MinimizeCost(1), Policy(max_job_usd=5)),
        (MaximizeThroughput(max_usd_per_gb=1), Policy(max_job_usd=5)),
    ],
)
@pytest.mark.parametrize("volume_gb", [None, 0])
def test_what_counts_the_job_needs_a_volume(
    triangle: Grid, objective: Objective, policy: Policy, volume_gb: float | None
) -> None:
    with pytest.raises(ConfigurationInvalid, match="needs a volume"):
        plan(triangle, S, T, objective, policy=policy, volume_gb=volume_gb)


def test_the_objective_stands_in_the_plan(triangle: Grid) -> None:
    answer = plan(triangle, S, T, MinimizeCost(1.0))
    assert answer.objective == {
        "kind": "minimize-cost",
        "min_throughput_gbps": 1.0,
        "exactly": False,
        "value_of_time_usd_per_hour": 0.0,
    }
    assert TransferPlan.from_dict(answer.to_dict()) == answer


# ---------------------------------------------------------------- infeasible


def test_no_way_at_all_is_said_as_such(triangle: Grid) -> None:
    with pytest.raises(PlanInfeasible, match="no way from gcp:t to azure:r") as refused:
        plan(triangle, T, R, MinimizeCost(1), policy=Policy(exclude_regions=("aws:*",)))
    assert refused.value.most_gbps == 0


# ---------------------------------------------------------------- policy


@pytest.mark.parametrize(
    "policy", [Policy(exclude_regions=("azure:*",)), Policy(allow_regions=("gcp:*",))]
)
def test_only_allowed_regions_relay(triangle: Grid, policy: Policy) -> None:
    with pytest.raises(PlanInfeasible) as refused:
        plan(triangle, S, T, MinimizeCost(5), limits=Limits(instance_limit=1), policy=policy)
    assert refused.value.most_gbps == pytest.approx(2.5, abs=1e-3)


def test_the_ends_need_no_leave(triangle: Grid) -> None:
    limits, policy = Limits(instance_limit=1), Policy(allow_regions=("azure:r",))
    assert plan(triangle, S, T, MinimizeCost(5), limits=limits, policy=policy).relays


def test_an_excluded_end_is_refused(triangle: Grid) -> None:
    with pytest.raises(PlanInfeasible, match="cannot avoid its ends") as refused:
        plan(triangle, S, T, MinimizeCost(1), policy=Policy(exclude_regions=("gcp:*",)))
    assert refused.value.binding == ("policy",)


def test_the_number_of_relays_can_be_limited(small_grid: Callable[..., Grid]) -> None:
    """One relay is cheap and small, the other carries all of it at a higher price."""
    edges = {(S, T): (2.0, 0.30)}
    for relay, price in ((R, 0.02), ("aws:v", 0.10)):
        edges |= {(S, relay): (8.0, price), (relay, T): (8.0, price)}
    small = InstanceType("azure", "small", 2, 2.0, 2.0, 64, 0.1, 1)
    grid, one = small_grid(edges, [small]), Limits(instance_limit=1)
    free = plan(grid, S, T, MinimizeCost(4, exactly=True), limits=one)
    assert free.relays == ("aws:v", R)
    less = plan(
        grid, S, T, MinimizeCost(4, exactly=True), limits=Limits(instance_limit=1, max_relays=1)
    )
    assert less.relays == ("aws:v",)
    assert less.cost.usd_per_gb > free.cost.usd_per_gb
    with pytest.raises(PlanInfeasible) as refused:
        plan(grid, S, T, MinimizeCost(4), limits=Limits(instance_limit=1, max_relays=0))
    assert refused.value.most_gbps == pytest.approx(2.0)


def test_a_limit_of_one_relay_allows_what_the_best_single_relay_does(shipped: Grid) -> None:
    pair = ("gcp:us-east5", "aws:ap-south-1")
    single = best_relay(shipped, *pair, 8)
    assert len(single.relays) == 1
    with pytest.raises(PlanInfeasible) as refused:
        plan(shipped, *pair, MinimizeCost(65), limits=Limits(max_relays=1))
    assert refused.value.most_gbps is not None
    assert refused.value.most_gbps >= single.throughput_gbps - 1e-3


# ---------------------------------------------------------------- places


def test_an_unknown_region_is_refused_with_the_nearest_names(shipped: Grid) -> None:
    with pytest.raises(UnknownRegion, match="gcp:us-east1"):
        plan(shipped, "aws:us-east-1", "gcp:us-east-1", MinimizeCost(1))
    with pytest.raises(UnknownRegion):
        plan(shipped, "local:here", "gcp:us-east-1", MinimizeCost(1))


def test_inside_one_region_there_is_no_edge_and_no_egress(shipped: Grid) -> None:
    tag = "aws:us-east-1"
    answer = plan(shipped, tag, tag, MinimizeCost(12), volume_gb=100)
    assert answer.edges == ()
    assert [path.regions for path in answer.paths] == [(tag,)]
    [group] = answer.instances.values()
    # The network of an instance would need three.
    assert group.processor_gbps is not None
    assert group.count == math.ceil(12 / group.processor_gbps) > 3
    assert answer.cost.egress_usd == 0
    assert answer.throughput_gbps >= 12
    assert violations(answer, shipped) == []
    one = Limits(instance_limit=1)
    alone = plan(shipped, tag, tag, MinimizeCost(12), limits=one)
    kind = shipped.instance_type("aws", alone.instances[tag].type)
    # Its gateways read and write, and its network would carry 25.
    assert alone.throughput_gbps == pytest.approx(kind.processor_gbps("source", "sink"))
    assert 12 < alone.throughput_gbps < kind.egress_gbps
    small = Limits(instance_limit=1, instance_types={"aws": "c6in.xlarge"})
    with pytest.raises(PlanInfeasible, match="allow more instances") as refused:
        plan(shipped, tag, tag, MinimizeCost(12), limits=small)
    assert refused.value.most_gbps == 5


@pytest.mark.parametrize(
    ("src", "dst", "egress"),
    [
        ("local:here", "gcp:us-east1", 0.0),
        ("gcp:us-east1", "local:here", 0.12),
        ("local:here", "local:here", 0.0),
    ],
)
def test_a_file_on_this_machine_is_moved_by_a_gateway_here(
    shipped: Grid, src: str, dst: str, egress: float
) -> None:
    answer = plan(shipped, src, dst, MinimizeCost(1), volume_gb=1)
    assert list(answer.instances) == ["local:here"]
    assert answer.edges == ()
    assert answer.provision_s == 2
    assert answer.cost.usd_per_gb == pytest.approx(egress * 1e9 / 2**30)


def test_places_without_a_cloud_that_the_grid_knows_are_ordinary_regions(
    small_grid: Callable[..., Grid],
) -> None:
    grid = small_grid({("local:a", "local:b"): (2.0, 0.0), ("local:b", "local:a"): (2.0, 0.0)})
    answer = plan(grid, "local:a", "local:b", MinimizeCost(2))
    assert set(answer.instances) == {"local:a", "local:b"}
    assert len(answer.edges) == 1


# ---------------------------------------------------------------- provenance


def test_the_plan_says_where_its_numbers_come_from(shipped: Grid) -> None:
    answer = plan(shipped, "aws:us-west-2", "azure:uksouth", MinimizeCost(10))
    assert (answer.grid.name, answer.grid.as_of) == ("shipped", "2024-09-25")
    assert (answer.grid.throughput, answer.grid.prices) == ("modelled", "rules")
    assert answer.solver.status == "optimal"
    guessed = plan(shipped, "aws:sa-west-1", "azure:uksouth", MinimizeCost(10))
    assert "aws:sa-west-1" in guessed.notes[0]
    assert answer.notes == ()


def test_measured_and_modelled_rates_together_are_mixed(triangle: Grid) -> None:
    assert plan(triangle, S, T, MinimizeCost(1)).grid.throughput == "measured"
    half = triangle.measured.copy()
    half[triangle.index_of(S), triangle.index_of(R)] = False
    mixed = plan(
        triangle.with_edges(measured=half), S, T, MinimizeCost(5), limits=Limits(instance_limit=1)
    )
    assert mixed.grid.throughput == "mixed"
    assert {edge.throughput for edge in mixed.edges} == {"measured", "modelled"}


# ---------------------------------------------------------------- extremes


def test_a_floor_of_next_to_nothing_is_planned_at_the_least_rate(triangle: Grid) -> None:
    answer = plan(triangle, S, T, MinimizeCost(1e-9, exactly=True))
    assert answer.throughput_gbps == pytest.approx(0.001)
    assert violations(answer, triangle) == []


def test_a_program_that_the_solver_leaves_open_is_asked_again(shipped: Grid) -> None:
    """Without presolve HiGHS ends on this one without a status that means anything."""
    limits = Limits(instance_limit=1, safety_margin=0.99)
    with pytest.raises(PlanInfeasible, match="the most is"):
        plan(shipped, "aws:us-east-1", "aws:ap-southeast-1", MinimizeCost(10), limits=limits)
