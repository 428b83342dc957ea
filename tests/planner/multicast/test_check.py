"""The checker finds every lie that a plan for several destinations can tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.model.job import Limits, MinimizeCost
from skyplane_orchestration.model.plan import InstanceGroup, PlanTree, TransferPlan
from skyplane_orchestration.planner import multicast_plan, multicast_violations

S, A, B, R = "aws:s", "gcp:a", "gcp:b", "azure:r"
Lie = Callable[[TransferPlan], TransferPlan]
LIMITS = Limits(instance_limit=1, max_relays=1)


@pytest.fixture(scope="module")
def world(small_grid: Callable[..., Grid]) -> Grid:
    """Over the relay, and straight for what that cannot carry."""
    return small_grid(
        {
            (S, A): (2.0, 0.10),
            (S, B): (2.0, 0.10),
            (S, R): (2.5, 0.02),
            (R, A): (5.0, 0.02),
            (R, B): (5.0, 0.02),
        },
        [InstanceType("gcp", "gcp-wide", 4, 5.0, 10.0, 128, 3.6, 8)],
    )


@pytest.fixture(scope="module")
def honest(world: Grid) -> TransferPlan:
    return multicast_plan(world, S, [A, B], MinimizeCost(1.2, exactly=True), limits=LIMITS)


def edge(plan: TransferPlan, src: str, dst: str, **changes: float) -> TransferPlan:
    return replace(
        plan,
        edges=tuple(
            replace(one, **changes) if (one.src, one.dst) == (src, dst) else one  # type: ignore[arg-type]
            for one in plan.edges
        ),
    )


def counts(plan: TransferPlan, tag: str, count: float) -> TransferPlan:
    group = InstanceGroup(plan.instances[tag].type, count)  # type: ignore[arg-type]
    return replace(plan, instances={**plan.instances, tag: group})


def tree(plan: TransferPlan, *edges: tuple[str, str]) -> TransferPlan:
    return replace(plan, trees=(PlanTree(edges, plan.throughput_gbps),))


def test_an_honest_plan_breaks_nothing(world: Grid, honest: TransferPlan) -> None:
    assert honest.relays == (R,)
    assert multicast_violations(honest, world, LIMITS) == []


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        (lambda p: tree(p, (S, R), (R, A), (S, A), (R, B)), "enters gcp:a 2 times"),
        (lambda p: tree(p, (S, R), (R, A), (R, B), (A, S)), "enters the source"),
        (lambda p: tree(p, (S, R), (R, A)), "does not reach gcp:b"),
        (lambda p: tree(p, (S, A), (S, B), (S, R)), "ends in azure:r"),
        (lambda p: tree(p, (S, A), (S, B), (R, "aws:x")), "hang together at azure:r"),
        (lambda p: tree(p, (S, A), (A, B)), "which is no edge of the plan"),
        (lambda p: tree(p, (S, A), (S, B)), "do not add up to its flow"),
        (lambda p: replace(p, trees=(PlanTree(p.trees[0].edges, 0.0),)), "carries 0 Gbit/s"),
        (lambda p: replace(p, throughput_gbps=4.0), "add up to the throughput"),
        (lambda p: edge(p, S, R, connections=1), "(4b)"),
        (lambda p: edge(p, S, R, connections=1.5), "1.5 connections"),
        (lambda p: edge(p, S, R, connections=65), "(4h) connections out of aws:s"),
        (lambda p: edge(p, R, A, connections=129), "(4i) connections in of gcp:a"),
        (lambda p: edge(p, R, A, flow_gbps=11.0), "(4f) ingress of gcp:a"),
        (lambda p: edge(p, R, A, flow_gbps=11.0), "(4g) egress of azure:r"),
        (lambda p: counts(p, R, 2), "(4j) instances of azure:r"),
        (lambda p: counts(p, A, 0.5), "0.5 instances"),
        (
            lambda p: replace(
                p, instances={tag: group for tag, group in p.instances.items() if tag != R}
            ),
            "azure:r carries flow and has no instances",
        ),
        (lambda p: replace(p, cost=replace(p.cost, usd_per_gb=0.1)), "(4a)"),
    ],
)
def test_a_lie_is_found(world: Grid, honest: TransferPlan, lie: Lie, says: str) -> None:
    assert any(says in one for one in multicast_violations(lie(honest), world, LIMITS))


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(max_relays=0), "1 relays where 0"),
        (Limits(source_read_gbps=1.0), "storage read of aws:s: 1.2"),
        (Limits(destination_write_gbps=1.0), "storage write of gcp:a: 1.2"),
        (Limits(vcpu_quota={"gcp": 3}), "vCPUs of gcp:a: 4 where 3"),
        (Limits(safety_margin=0.9), "(4b)"),
    ],
)
def test_limits_that_the_plan_was_not_made_with_are_broken(
    world: Grid, honest: TransferPlan, limits: Limits, says: str
) -> None:
    assert any(says in one for one in multicast_violations(honest, world, limits))
