"""The value of time joins the bill: the knee between the cheapest and the fastest plan."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from tests.planner.conftest import grid_of

from skyplane_orchestration.errors import ConfigurationInvalid, PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    DEFAULT_OBJECTIVE,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Policy,
)
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import (
    default_objective,
    direct,
    frontier,
    multicast_plan,
    plan,
)
from skyplane_orchestration.planner.value_of_time import ROOM
from skyplane_orchestration.units import gb_to_gbit

PAIRS = [
    ("aws:us-east-1", "aws:us-west-2"),
    ("azure:eastus", "gcp:asia-east1"),
    ("aws:ap-southeast-2", "azure:francecentral"),
]


def sum_of(found: TransferPlan, usd_per_hour: float = 1.0) -> float:
    """The bill and the value of the time, in USD; of one GB without a volume."""
    if found.cost.total_usd is None or found.transfer_s is None:
        gb_s = gb_to_gbit(1.0) / found.throughput_gbps
        return found.cost.usd_per_gb + usd_per_hour / 3600 * gb_s
    return found.cost.total_usd + usd_per_hour / 3600 * (found.provision_s + found.transfer_s)


def decided_by_instances(found: TransferPlan, usd_per_hour: float = 1.0) -> float:
    """What the number of instances decides, in USD."""
    assert found.transfer_s is not None
    more = (found.cost.boot_usd or 0.0) + (found.cost.minimum_billing_usd or 0.0)
    return more + usd_per_hour / 3600 * (found.provision_s + found.transfer_s)


@pytest.mark.parametrize("usd_per_hour", [1.0, 20.0])
@pytest.mark.parametrize("volume_gb", [1.0, 30.0, 20_000.0])
@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_no_number_of_instances_on_the_direct_path_is_better(
    shipped: Grid, pair: tuple[str, str], volume_gb: float, usd_per_hour: float
) -> None:
    """The peers are the plans of each number of instances, without an optimiser."""
    types = {region.partition(":")[0]: "" for region in pair}
    limits = Limits(
        max_relays=0, instance_types={cloud: shipped.instance_type(cloud).name for cloud in types}
    )
    objective = MinimizeCost(value_of_time_usd_per_hour=usd_per_hour)
    found = plan(shipped, *pair, objective, volume_gb=volume_gb, limits=limits)
    peers = [direct(shipped, *pair, count, volume_gb, limits=limits) for count in range(1, 9)]
    best = min(peers, key=partial(sum_of, usd_per_hour=usd_per_hour))
    ceiling = sum_of(best, usd_per_hour) + ROOM * decided_by_instances(best, usd_per_hour)
    assert sum_of(found, usd_per_hour) <= ceiling * (1 + 1e-4)
    enough = [peer for peer in peers if sum_of(peer, usd_per_hour) <= ceiling]
    assert found.instance_count <= min(peer.instance_count for peer in enough)


def test_without_a_value_of_time_it_is_the_cheapest_plan(shipped: Grid) -> None:
    src, dst = PAIRS[0]
    floor = default_objective(shipped, src, dst)
    expected = Limits(confidence=0.5)
    for volume_gb in (None, 100.0):
        cheapest = plan(shipped, src, dst, floor, volume_gb=volume_gb, limits=expected)
        free = plan(shipped, src, dst, MinimizeCost(), volume_gb=volume_gb, limits=expected)
        assert replace(free, solver=cheapest.solver) == cheapest


def test_the_sum_lies_between_the_cheapest_and_the_fastest_plan(few: Grid) -> None:
    for src, dst in PAIRS:
        ask = partial(plan, few, src, dst, volume_gb=1000.0)
        found = ask(DEFAULT_OBJECTIVE)
        cheapest, fastest = ask(MinimizeCost()), ask(MaximizeThroughput(max_cost_usd=1e6))
        assert sum_of(found) <= min(sum_of(cheapest), sum_of(fastest)) * (1 + 1e-4)
        assert cheapest.throughput_gbps < found.throughput_gbps <= fastest.throughput_gbps + 1e-6
        assert found.cost.total_usd is not None
        assert cheapest.cost.total_usd is not None
        more = found.cost.total_usd - cheapest.cost.total_usd
        assert found.notes[0].startswith(f"{found.instance_count} instances: ")
        assert f" for ${more:.2f} more than the cheapest plan, " in found.notes[0]


def test_quotas_and_the_highest_cost_of_a_job_hold(shipped: Grid) -> None:
    src, dst = PAIRS[0]
    ask = partial(plan, shipped, src, dst, DEFAULT_OBJECTIVE, volume_gb=10_000.0)
    free = ask()
    assert {group.count for group in free.instances.values()} == {8}
    few = ask(limits=Limits(instance_limit=2))
    assert {group.count for group in few.instances.values()} == {2}
    cheapest = plan(shipped, src, dst, MinimizeCost(), volume_gb=10_000.0).cost.total_usd
    assert cheapest is not None
    assert free.cost.total_usd is not None
    between = (cheapest + free.cost.total_usd) / 2
    limited = ask(policy=Policy(max_job_usd=between)).cost.total_usd
    assert limited is not None
    assert limited <= between
    with pytest.raises(PlanInfeasible):
        ask(policy=Policy(max_job_usd=cheapest * 0.99))


def test_a_floor_holds_beside_the_value_of_time(few: Grid) -> None:
    src, dst = PAIRS[0]
    for usd_per_hour in (1e-6, 1.0):
        objective = MinimizeCost(20.0, value_of_time_usd_per_hour=usd_per_hour)
        found = plan(few, src, dst, objective, volume_gb=10.0)
        assert found.throughput_gbps >= 20.0 * (1 - 1e-9)


def test_without_a_volume_the_sum_is_that_of_a_gb(few: Grid) -> None:
    for src, dst in PAIRS:
        found = plan(few, src, dst, DEFAULT_OBJECTIVE)
        cheapest = plan(few, src, dst, MinimizeCost())
        assert sum_of(found) <= sum_of(cheapest)
        assert "per GB more than the cheapest plan" in found.notes[0]


def test_where_no_direct_path_is_known_a_relay_carries_the_bytes() -> None:
    grid = grid_of({("aws:s", "azure:r"): (5.0, 0.04), ("azure:r", "gcp:t"): (5.0, 0.08)})
    assert plan(grid, "aws:s", "gcp:t", DEFAULT_OBJECTIVE, volume_gb=10.0).relays == ("azure:r",)


def test_inside_one_region_more_instances_save_time(shipped: Grid) -> None:
    tag = PAIRS[0][0]
    found = plan(shipped, tag, tag, DEFAULT_OBJECTIVE, volume_gb=10_000.0)
    cheapest = plan(shipped, tag, tag, MinimizeCost(), volume_gb=10_000.0)
    assert sum_of(found) < sum_of(cheapest)
    assert " more than the cheapest plan, " in found.notes[0]
    # More gateways on one machine save no time.
    local = plan(shipped, "local:here", tag, DEFAULT_OBJECTIVE, volume_gb=10_000.0)
    assert local.instance_count == 1


def test_the_knee_of_a_frontier_has_the_least_sum(few: Grid) -> None:
    src, dst = PAIRS[1]
    for volume_gb in (None, 5.0, 1000.0):
        found = frontier(few, src, dst, points=3, volume_gb=volume_gb)
        sums = [sum_of(one) for one in found]
        assert sums[found.knee(DEFAULT_OBJECTIVE)] == min(sums)


def test_plans_to_several_destinations_refuse_it(shipped: Grid) -> None:
    ends = [PAIRS[0][1], PAIRS[1][1]]
    with pytest.raises(ConfigurationInvalid, match="value_of_time_usd_per_hour"):
        multicast_plan(shipped, PAIRS[0][0], ends, DEFAULT_OBJECTIVE)
    assert multicast_plan(shipped, PAIRS[0][0], ends, MinimizeCost()).trees
