"""The checker finds every lie that a plan can tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.grid import StorageLimit, VcpuQuota
from skyplane_orchestration.model.job import Limits, MinimizeCost
from skyplane_orchestration.model.plan import InstanceGroup, PlanPath, TransferPlan
from skyplane_orchestration.planner import plan, violations

S, T, R = "aws:s", "gcp:t", "azure:r"
Lie = Callable[[TransferPlan], TransferPlan]


@pytest.fixture(scope="module")
def honest(triangle: Grid) -> TransferPlan:
    """Both ways at once: direct, and over the relay."""
    return plan(triangle, S, T, MinimizeCost(3.2, exactly=True), limits=Limits(instance_limit=1))


def edge(answer: TransferPlan, dst: str, **changes: float) -> TransferPlan:
    """The plan with another edge from the source to `dst`."""
    return replace(
        answer,
        edges=tuple(
            replace(one, **changes) if (one.src, one.dst) == (S, dst) else one  # type: ignore[arg-type]
            for one in answer.edges
        ),
    )


def counts(answer: TransferPlan, **count: int) -> TransferPlan:
    letters = {"s": S, "t": T, "r": R}
    instances = dict(answer.instances)
    for letter, number in count.items():
        instances[letters[letter]] = InstanceGroup(instances[letters[letter]].type, number)
    return replace(answer, instances=instances)


def test_an_honest_plan_breaks_nothing(triangle: Grid, honest: TransferPlan) -> None:
    assert len(honest.paths) == 2
    assert violations(honest, triangle, Limits(instance_limit=1)) == []


@pytest.mark.parametrize(
    ("lie", "says"),
    [
        (lambda p: edge(p, R, connections=1), "(4b)"),
        (lambda p: edge(p, R, connections=0), "0 connections"),
        (lambda p: edge(p, T, connections=1.5), "1.5 connections"),
        (lambda p: edge(p, R, flow_gbps=1.0), "(4c-4e)"),
        (lambda p: replace(p, throughput_gbps=4.0), "(4c-4e) aws:s"),
        (lambda p: replace(p, throughput_gbps=4.0), "add up to the throughput"),
        (lambda p: edge(p, T, connections=65), "(4h) connections out of aws:s"),
        (lambda p: edge(p, T, connections=65), "(4i) connections in of gcp:t"),
        (lambda p: counts(p, s=0), "(4g) egress of aws:s"),
        (lambda p: counts(p, t=0), "(4f) ingress of gcp:t"),
        (lambda p: counts(p, r=2), "(4j) instances of azure:r"),
        (
            lambda p: replace(p, instances={S: p.instances[S], T: p.instances[T]}),
            "azure:r carries flow and has no instances",
        ),
        (lambda p: replace(p, cost=replace(p.cost, usd_per_gb=0.1)), "(4a)"),
        (lambda p: replace(p, paths=p.paths[:1]), "add up to the throughput"),
        (lambda p: replace(p, paths=(PlanPath((S, R), 3.2),)), "does not join"),
        (lambda p: replace(p, paths=(PlanPath((S, R, S, T), 3.2),)), "visits a region twice"),
        (lambda p: replace(p, paths=(PlanPath((S, T), 3.2),)), "do not add up to its flow"),
        (lambda p: replace(p, edges=p.edges[:1]), "which is no edge of the plan"),
    ],
)
def test_a_lie_is_found(triangle: Grid, honest: TransferPlan, lie: Lie, says: str) -> None:
    assert any(says in one for one in violations(lie(honest), triangle, Limits(instance_limit=1)))


def test_without_a_limit_of_its_own_the_grids_is_taken(
    triangle: Grid, honest: TransferPlan
) -> None:
    assert violations(counts(honest, r=8), triangle) != []  # the price is another one now
    assert not any("(4j)" in one for one in violations(counts(honest, r=8), triangle))
    assert any("(4j)" in one for one in violations(counts(honest, r=9), triangle))


def test_a_type_that_was_not_asked_for_is_found(triangle: Grid, honest: TransferPlan) -> None:
    asked = Limits(instance_limit=1, instance_types={"azure": "another"})
    assert any("another was asked for" in one for one in violations(honest, triangle, asked))


def test_vcpus_beyond_a_quota_are_found(triangle: Grid, honest: TransferPlan) -> None:
    """The job's quota and the account's, whichever is smaller; a plain instance has 4."""
    assert not any("vCPU" in one for one in violations(honest, triangle, Limits(vcpu_quota={})))
    by_job = violations(honest, triangle, Limits(vcpu_quota={"azure": 3}))
    assert by_job == ["vCPUs of azure:r: 4 where 3 is the quota"]
    account = replace(triangle, quotas=(VcpuQuota("azure:*", 3),))
    assert violations(honest, account, Limits(vcpu_quota={"azure": 8})) == by_job


def test_flow_within_the_margin_is_found(triangle: Grid, honest: TransferPlan) -> None:
    careful = violations(honest, triangle, Limits(instance_limit=1, safety_margin=0.2))
    assert {one.partition(" ")[0] for one in careful} == {"(4b)"}


def test_a_capacity_that_is_not_the_grids_is_found(triangle: Grid, honest: TransferPlan) -> None:
    lie = edge(honest, R, capacity_gbps=4.0)
    assert any("not the grid's 5" in one for one in violations(lie, triangle))


@pytest.mark.parametrize(
    ("limits", "says"),
    [
        (Limits(source_read_gbps=3.0), "storage read of aws:s: 3.2"),
        (Limits(destination_write_gbps=3.0), "storage write of gcp:t: 3.2"),
    ],
)
def test_more_than_a_store_gives_or_takes_is_found(
    triangle: Grid, honest: TransferPlan, limits: Limits, says: str
) -> None:
    assert any(says in one for one in violations(honest, triangle, limits))


def test_the_jobs_figure_for_a_store_goes_before_the_grids(
    triangle: Grid, honest: TransferPlan
) -> None:
    slow = replace(triangle, storage=(StorageLimit("aws:*", 1.0, 1.0),))
    assert any("storage read" in one for one in violations(honest, slow))
    assert violations(honest, slow, Limits(source_read_gbps=9.0)) == []


def test_more_relays_than_were_allowed_are_found(triangle: Grid, honest: TransferPlan) -> None:
    assert violations(honest, triangle, Limits(max_relays=1)) == []
    assert "1 relays where 0 is the limit" in violations(honest, triangle, Limits(max_relays=0))
