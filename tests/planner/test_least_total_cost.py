"""Objectives in USD of the whole job, against plans that are counted out by hand here.

On three regions every plan is x Gbit/s direct and y over the relay with the fewest
connections and instances that carry them: the rates lie on a raster, so none of the
plans can be better than the proven one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import strategies as st
from tests.planner.conftest import grid_of
from tests.planner.random_laws import CLOUDS, instance_type, law, tenths, thousandths

from skyplane_orchestration.errors import PlanInfeasible
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
from skyplane_orchestration.planner import plan, violations

S, T, R = "aws:s", "gcp:t", "azure:r"
WAIT_S = {"aws": 75.0, "gcp": 75.0, "azure": 120.0}
MINIMUM_S = {"aws": 60.0, "gcp": 60.0, "azure": 300.0}
NEARLY = 1 + 1e-5
#: What a search of limited time may leave open on these worlds, where instances are dear.
ABOUT, CENT = 1.1, 0.01
#: Steps of the raster per axis.
STEPS = 24


@dataclass(frozen=True)
class World:
    """Rates and prices of s-t, s-r and r-t, an instance type per cloud, and a volume."""

    edges: dict[tuple[str, str], tuple[float, float]]
    types: dict[str, InstanceType]
    volume_gb: float

    @property
    def grid(self) -> Grid:
        return grid_of(self.edges, list(self.types.values()))


@st.composite
def worlds(draw: st.DrawFn) -> World:
    edges = {
        edge: (draw(tenths(5, 60)), draw(thousandths(0, 150))) for edge in ((S, T), (S, R), (R, T))
    }
    types = {
        cloud: instance_type(
            draw,
            cloud,
            f"{cloud}-any",
            egress_gbps=st.integers(3, 10).map(float),
            ingress_gbps=st.integers(3, 10).map(float),
            connection_limit=st.just(64),
            usd_per_hour=st.sampled_from([0.2, 1.5, 20.0]),
        )
        for cloud in CLOUDS
    }
    return World(edges, types, draw(st.sampled_from([1.0, 20.0, 300.0, 10_000.0])))


@dataclass(frozen=True)
class Counted:
    """One plan of the raster."""

    gbps: float
    usd_per_gb: float
    total_usd: float
    done_s: float


def raster(world: World) -> Iterator[Counted]:
    most = max(kind.egress_gbps * kind.instance_limit for kind in world.types.values())
    ticks = [most * number / STEPS for number in range(STEPS + 1)]
    exact = [rate * count for rate, _ in world.edges.values() for count in (1, 2, 3)]
    for direct in [*ticks, *exact]:
        for relayed in [*ticks, *exact]:
            made = counted(world, direct, relayed) if direct + relayed > 0.11 else None
            if made is not None:
                yield made


def counted(world: World, direct: float, relayed: float) -> Counted | None:
    """The plan of both two flows; None where the instances do not suffice."""
    flows = {(S, T): direct, (S, R): relayed, (R, T): relayed}
    wires = {
        edge: math.ceil(64 * flow / world.edges[edge][0] - 1e-9) for edge, flow in flows.items()
    }
    gbps = direct + relayed
    transfer_s = world.volume_gb * 8 / gbps
    wait_s = WAIT_S["azure"] if relayed > 0 else WAIT_S["aws"]
    egress = sum(flow * world.edges[edge][1] for edge, flow in flows.items()) / gbps
    total, moving = egress * world.volume_gb, 0.0
    for tag in (S, T, R) if relayed > 0 else (S, T):
        kind = world.types[tag.partition(":")[0]]
        out = [edge for edge in flows if edge[0] == tag]
        into = [edge for edge in flows if edge[1] == tag]
        count = max(
            math.ceil(sum(flows[e] for e in out) / kind.egress_gbps - 1e-9),
            math.ceil(sum(flows[e] for e in into) / kind.ingress_gbps - 1e-9),
            math.ceil(sum(wires[e] for e in out) / 64),
            math.ceil(sum(wires[e] for e in into) / 64),
        )
        if count > kind.instance_limit:
            return None
        usd_per_s = count * kind.usd_per_hour / 3600
        moving += usd_per_s * transfer_s
        total += usd_per_s * max(wait_s + transfer_s, MINIMUM_S[kind.cloud])
    return Counted(gbps, egress + moving / world.volume_gb, total, wait_s + transfer_s)


def asked(world: World, objective: Objective, **more: Any) -> TransferPlan:
    """A plan that holds, and whose items add up."""
    answer = plan(world.grid, S, T, objective, volume_gb=world.volume_gb, **more)
    assert violations(answer, world.grid, more.get("limits", Limits())) == []
    cost = answer.cost
    items = (cost.egress_usd, cost.instance_usd, cost.boot_usd, cost.minimum_billing_usd)
    amounts = [amount for amount in items if amount is not None]
    assert len(amounts) == 4
    assert min(amounts) >= 0
    assert cost.total_usd == pytest.approx(sum(amounts) + (cost.request_usd or 0.0))
    assert amounts[0] + amounts[1] == pytest.approx(cost.usd_per_gb * world.volume_gb)
    return answer


def refusal(world: World, objective: Objective, **more: Any) -> PlanInfeasible | None:
    try:
        asked(world, objective, **more)
    except PlanInfeasible as error:
        return error
    return None


@law(6, world=worlds(), floor=tenths(2, 60))
def test_nothing_at_the_floor_or_above_is_cheaper_than_what_was_proven(
    world: World, floor: float
) -> None:
    others = [other for other in raster(world) if other.gbps >= floor]
    try:
        answer = asked(world, MinimizeCost(floor))
    except PlanInfeasible:
        assert others == []
        return
    assert answer.throughput_gbps >= floor * (1 - 1e-9)
    assert answer.cost.total_usd is not None
    assert answer.solver.bound <= answer.cost.total_usd * NEARLY
    for other in others:
        assert other.total_usd * NEARLY >= answer.solver.bound
        assert answer.cost.total_usd <= other.total_usd * ABOUT + CENT


@law(6, world=worlds(), share=st.sampled_from([0.7, 1.0, 1.02, 1.2, 3.0]))
def test_a_ceiling_in_usd_is_kept_and_nothing_under_it_is_faster_than_proven(
    world: World, share: float
) -> None:
    every = list(raster(world))
    ceiling = share * min(other.total_usd for other in every) + 1e-6
    under = [other for other in every if other.total_usd <= ceiling]
    refused = refusal(world, MaximizeThroughput(max_cost_usd=ceiling))
    if refused is not None:
        assert refused.binding == ("cost_ceiling",)
        assert refused.least_usd is not None
        assert refused.least_usd > ceiling
        assert all(other.total_usd > ceiling / NEARLY for other in every)
        accepted = asked(world, MaximizeThroughput(max_cost_usd=refused.least_usd))
        assert accepted.cost.total_usd is not None
        assert accepted.cost.total_usd <= refused.least_usd
        return
    answer = asked(world, MaximizeThroughput(max_cost_usd=ceiling))
    assert answer.cost.total_usd is not None
    assert answer.cost.total_usd <= ceiling
    assert answer.solver.bound >= answer.throughput_gbps / NEARLY
    for other in under:
        assert other.gbps <= answer.solver.bound * NEARLY
        assert other.gbps <= answer.throughput_gbps * ABOUT


@law(6, world=worlds(), seconds=st.sampled_from([70, 100, 130, 200, 500, 3000, 40_000]))
def test_a_deadline_is_met_at_a_cost_that_nothing_in_time_beats(
    world: World, seconds: float
) -> None:
    in_time = [other for other in raster(world) if other.done_s <= seconds]
    refused = refusal(world, Deadline(seconds))
    if refused is not None:
        assert in_time == []
        assert refused.binding[0] == "deadline"
        assert refused.least_s is not None
        assert refused.least_s > seconds
        late = asked(world, Deadline(refused.least_s))
        assert late.transfer_s is not None
        assert late.provision_s + late.transfer_s <= refused.least_s
        return
    answer = asked(world, Deadline(seconds))
    assert answer.transfer_s is not None
    assert answer.provision_s + answer.transfer_s <= seconds
    for other in in_time:
        assert other.total_usd * NEARLY >= answer.solver.bound


@law(6, world=worlds(), share=st.sampled_from([0.5, 0.95, 1.05]))
def test_the_policy_refuses_a_job_that_costs_more_and_names_what_would_do(
    world: World, share: float
) -> None:
    free = asked(world, MinimizeCost(0.5))
    assert free.cost.total_usd is not None
    most = share * free.cost.total_usd
    refused = refusal(world, MinimizeCost(0.5), policy=Policy(max_job_usd=most))
    if share > 1:
        assert refused is None
        return
    assert refused is not None
    assert refused.binding == ("policy max_job_usd",)
    assert refused.least_usd is not None
    assert refused.least_usd >= free.cost.total_usd
    second = Policy(max_job_usd=refused.least_usd)
    assert refusal(world, MinimizeCost(0.5), policy=second) is None


@law(6, world=worlds(), per_gb=st.sampled_from([1.0, 1.1, 2.0]), total=st.sampled_from([1.0, 1.1]))
def test_both_ceilings_hold_at_once(world: World, per_gb: float, total: float) -> None:
    every = list(raster(world))
    price = per_gb * min(other.usd_per_gb for other in every) + 1e-6
    usd = total * min(other.total_usd for other in every) + 1e-6
    policy = Policy(max_job_usd=usd)
    objective = MaximizeThroughput(max_usd_per_gb=price)
    refused = refusal(world, objective, policy=policy)
    if refused is not None:
        assert refused.binding[0] in ("cost_ceiling", "policy max_job_usd")
        return
    answer = asked(world, objective, policy=policy)
    assert answer.cost.usd_per_gb <= price
    assert answer.cost.total_usd is not None
    assert answer.cost.total_usd <= usd
    for other in every:
        if other.usd_per_gb <= price and other.total_usd <= usd:
            assert other.gbps <= answer.solver.bound * NEARLY


@pytest.mark.parametrize(
    ("src", "dst", "limits"),
    [
        ("azure:westcentralus", "gcp:australia-southeast1", Limits(instance_limit=2)),
        ("azure:westus2", "aws:me-south-1", Limits(max_relays=1, source_read_gbps=0.5)),
        (
            "azure:jioindiacentral",
            "azure:belgiumcentral",
            Limits(safety_margin=0.99, destination_write_gbps=0.5),
        ),
    ],
)
def test_the_smallest_price_that_a_refusal_names_is_accepted(
    shipped: Grid, src: str, dst: str, limits: Limits
) -> None:
    with pytest.raises(PlanInfeasible) as refused:
        plan(shipped, src, dst, MaximizeThroughput(max_usd_per_gb=0.001), limits=limits)
    least = refused.value.least_usd_per_gb
    assert refused.value.binding == ("cost_ceiling",)
    assert least is not None
    accepted = plan(shipped, src, dst, MaximizeThroughput(max_usd_per_gb=least), limits=limits)
    assert accepted.cost.usd_per_gb <= least
    assert accepted.solver.bound >= accepted.throughput_gbps
    with pytest.raises(PlanInfeasible):
        plan(shipped, src, dst, MaximizeThroughput(max_usd_per_gb=least * 0.9999), limits=limits)


def test_a_job_of_some_bytes_has_no_relay(shipped: Grid) -> None:
    """A search that ends for a gain of less than a cent began with a relay."""
    ends = "aws:ap-southeast-2", "aws:eu-west-3"
    limits = Limits(instance_limit=1, confidence=0.5)
    found = plan(shipped, *ends, MinimizeCost(2.2), volume_gb=3e-9, limits=limits)
    assert found.relays == ()
