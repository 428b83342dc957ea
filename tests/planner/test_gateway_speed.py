"""What an instance carries is the lower of its network and its gateways' processors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.planner.conftest import grid_of

from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.grids.gateway_speed import GatewaySpeed
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost
from skyplane_orchestration.planner import (
    direct,
    explain_plan,
    frontier,
    multicast_plan,
    multicast_violations,
    plan,
    violations,
)
from skyplane_orchestration.planner.comparison import compare
from skyplane_orchestration.planner.infeasibility import describe_limit

S, R, T, U = "aws:s", "azure:r", "gcp:t", "gcp:u"
SPEED = GatewaySpeed(3.0, 6.0, 2.0, "2026-11-28", "2 x Some CPU")
ONE = Limits(instance_limit=1)
FASTEST = MaximizeThroughput(max_usd_per_gb=10.0)
Edges = Mapping[tuple[str, str], tuple[float, float]]
STRAIGHT: Edges = {(S, T): (20.0, 0.1)}


def two_vcpus(edges: Edges = STRAIGHT, speed: GatewaySpeed | None = SPEED) -> Grid:
    """Instances of 2 vCPUs with 5 Gbit/s each way."""
    kinds = [
        InstanceType(cloud, f"{cloud}-small", 2, 5.0, 5.0, 64, 3.6, 8, speed=speed)
        for cloud in ("aws", "gcp", "azure")
    ]
    return grid_of(edges, kinds)


def test_a_sink_of_4_gbps_is_not_planned_at_5() -> None:
    answer = plan(two_vcpus(), S, T, FASTEST, limits=ONE)
    assert answer.throughput_gbps == pytest.approx(4.0)
    assert violations(answer, two_vcpus(), ONE) == []
    unknown = plan(two_vcpus(speed=None), S, T, FASTEST, limits=ONE)
    assert unknown.throughput_gbps == pytest.approx(5.0)
    more = plan(two_vcpus(), S, T, MinimizeCost(5.0, exactly=True))
    assert more.instances[T].count == 2
    assert more.instances[S].count == 1


@pytest.mark.parametrize(
    ("slow", "gbps"),
    [
        ({"source_gbps": 0.5}, 1.0),
        ({"relay_gbps": 0.75}, 1.5),
        ({"sink_gbps": 1.0}, 2.0),
        ({"source_gbps": 9.0, "sink_gbps": 9.0, "relay_gbps": 9.0}, 5.0),
    ],
)
def test_each_role_has_its_own_speed(slow: dict[str, float], gbps: float) -> None:
    grid = two_vcpus({(S, R): (20.0, 0.1), (R, T): (20.0, 0.1)}, replace(SPEED, **slow))  # type: ignore[arg-type]
    answer = plan(grid, S, T, FASTEST, limits=ONE)
    assert answer.throughput_gbps == pytest.approx(gbps)
    assert violations(answer, grid, ONE) == []


def test_an_instance_counts_as_many_processors_as_it_runs_gateways() -> None:
    kind = InstanceType("aws", "large", 32, 50.0, 50.0, 64, 3.6, 8, speed=SPEED)
    assert kind.processor_gbps("sink") == pytest.approx(16.0)


def test_every_verb_keeps_to_it() -> None:
    grid = two_vcpus()
    assert direct(grid, S, T).throughput_gbps == pytest.approx(4.0)
    points = frontier(grid, S, T, limits=ONE)
    assert max(point.throughput_gbps for point in points) == pytest.approx(4.0)
    plans = [way.plan for way in compare(grid, S, T, limits=ONE).ways if way.plan is not None]
    assert max(one.throughput_gbps for one in plans) == pytest.approx(4.0)


def test_one_of_several_destinations_may_forward_what_it_writes() -> None:
    """A bit takes 1/2 s of a vCPU to write and 1/6 s to forward."""
    grid = two_vcpus({(S, T): (20.0, 0.1), (S, U): (20.0, 0.1), (T, U): (20.0, 0.0)})
    answer = multicast_plan(grid, S, [T, U], MinimizeCost(3.0, exactly=True), limits=ONE)
    assert multicast_violations(answer, grid, ONE) == []
    fastest = multicast_plan(grid, S, [T, U], FASTEST, limits=ONE)
    assert fastest.throughput_gbps == pytest.approx(3.0)


def test_gateways_of_one_region_read_and_write() -> None:
    grid = two_vcpus()
    answer = plan(grid, S, S, FASTEST, limits=ONE)
    assert answer.throughput_gbps == pytest.approx(2 / (1 / 3 + 1 / 2))
    assert answer.binding == (f"instance_quota {S}", f"processor {S}")


def test_the_plan_says_what_binds_and_where_it_was_measured() -> None:
    answer = plan(two_vcpus(), S, T, FASTEST, limits=ONE)
    assert answer.binding[-1] == f"processor {T}"
    assert describe_limit(f"processor {T}") == (
        f"what the gateways' processors carry in {T} (processor)"
    )
    assert {tag: group.processor_gbps for tag, group in answer.instances.items()} == {S: 6, T: 4}
    assert answer.grid.gateway_speed == "measured 2026-11-28 on 2 x Some CPU"
    assert plan(two_vcpus(speed=None), S, T, FASTEST).grid.gateway_speed == ""
    (sentence,) = explain_plan(two_vcpus(), answer, limits=ONE).rates
    assert sentence == (
        f"The gateway's processor binds in {T} before its network: as sink, 2 vCPUs of gcp-small"
        " carry 4 Gbit/s and the network 5 (measured 2026-11-28 on 2 x Some CPU)."
    )


def test_the_checker_finds_busy_processors() -> None:
    """A plan that was made without the speed breaks it."""
    bold = plan(two_vcpus(speed=None), S, T, FASTEST, limits=ONE)
    assert violations(bold, two_vcpus(), ONE) == [
        f"processors of {T}: 2.5 vCPUs busy where 2 run gateways"
    ]
