"""Plans on measured rates: on the instances that run, within what the probe has left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from tests.planner.conftest import grid_of
from tests.transfer.samples import JOB

from skyplane_orchestration import planner
from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid, InstanceType
from skyplane_orchestration.grids.gateway_speed import GatewaySpeed
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.job import (
    ANY_REGION,
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
    Policy,
)
from skyplane_orchestration.model.plan import InstanceGroup, TransferPlan
from skyplane_orchestration.model.source_contents import SourceContents
from skyplane_orchestration.transfer.measured_plan import ProbeCost, plan_measured

S, R, OTHER, T = "aws:s", "azure:r", "azure:other", "gcp:t"
DIRECT, FIRST, SECOND = (S, T), (S, R), (R, T)

#: Over azure:r twice the direct path's rate, and over azure:other four times.
CARRIED = {
    DIRECT: (1.0, 0.10),
    FIRST: (2.0, 0.04),
    SECOND: (2.0, 0.08),
    (S, OTHER): (4.0, 0.04),
    (OTHER, T): (4.0, 0.08),
}
GRID = grid_of(CARRIED)
FASTEST = MaximizeThroughput(max_usd_per_gb=1.0)
ONE = Limits(instance_limit=1)
FREE = ProbeCost()


def plan_of(objective: Objective, grid: Grid = GRID, **policy: float) -> TransferPlan:
    """A plan over azure:r, since azure:other may not relay."""
    allowed = Policy(allow_regions=(R,), **policy)  # type: ignore[arg-type]
    return planner.plan(grid, S, T, objective, volume_gb=100.0, limits=ONE, policy=allowed)


def again(
    plan: TransferPlan,
    gbps: Mapping[tuple[str, str], float],
    spent: ProbeCost = FREE,
    policy: Policy = ANY_REGION,
) -> TransferPlan:
    """The plan after the probe, whose job allows every region and many instances."""
    measured = [EdgeMeasurement(*edge, gbps[edge], 64, 1, 3.0, 1, 0.0) for edge in gbps]
    return plan_measured(GRID, replace(JOB, policy=policy), plan, measured, spent, {})


def rates(plan: TransferPlan) -> dict[tuple[str, str], float]:
    return {(edge.src, edge.dst): round(edge.flow_gbps, 6) for edge in plan.edges}


def test_a_relay_that_is_slower_than_the_grid_says_is_left_out() -> None:
    plan = replace(plan_of(FASTEST), notes=("what held for the first plan",))
    assert plan.relays == (R,)
    found = again(plan, {DIRECT: 1.1, FIRST: 0.7, SECOND: 2.0})
    assert plan.notes[0] not in found.notes
    assert rates(found) == {DIRECT: 1.1}
    [edge] = found.edges
    assert edge.throughput == "measured"
    assert found.objective == plan.objective
    # A call that comes with the first plan finds the fleet.
    assert found.replaces == plan.shape
    # Another transfer has sent bytes since, so that the next tier of the month is cheaper.
    cheaper = [replace(edge, usd_per_gb=edge.usd_per_gb / 2) for edge in plan.edges]
    assert replace(plan, edges=tuple(cheaper)).shape == plan.shape


def test_processors_limit_a_plan_on_measured_rates_too() -> None:
    """A probe has no stores at its ends, so it does not show what reading and writing take."""
    speed = GatewaySpeed(4.0, 4.0, 0.2, "2026-11-28", "2 x Some CPU")
    grid = replace(GRID, types=tuple(replace(kind, speed=speed) for kind in GRID.types))
    plan = plan_of(FASTEST, grid)
    measured = [EdgeMeasurement(*edge, 9.0, 64, 1, 3.0, 1, 0.0) for edge in CARRIED]
    found = plan_measured(grid, JOB, plan, measured, FREE, {})
    assert found.throughput_gbps == pytest.approx(4 * 0.2)


def test_what_the_listing_has_shown_still_counts() -> None:
    """A half of the objects is in a class, whose retrieval costs a cent per GiB."""
    contents = SourceContents(1.0, {"STANDARD_IA": 0.5})
    prices = {"storage_classes": {"aws": {"STANDARD_IA": {"retrieval": 0.01, "read": 0.001}}}}
    grid = replace(GRID, price_document={**GRID.price_document, **prices})
    plan = plan_of(FASTEST, replace(grid, contents=contents))
    found = plan_measured(grid, JOB, plan, [], FREE, {})
    assert found.contents == contents
    retrieval = found.cost.other_usd["retrieval"]
    assert retrieval == plan.cost.other_usd["retrieval"] == pytest.approx(0.5 * 100e9 / 2**30 / 100)


def test_neither_another_region_nor_another_instance_comes_in() -> None:
    found = again(plan_of(FASTEST), {FIRST: 1.9, SECOND: 1.9})
    assert rates(found) == {FIRST: 1.9, SECOND: 1.9}
    assert {tag: group.count for tag, group in found.instances.items()} == {S: 1, R: 1, T: 1}
    direct = planner.plan(GRID, S, T, FASTEST, volume_gb=100.0, limits=replace(ONE, max_relays=0))
    assert rates(again(direct, {DIRECT: 0.5})) == {DIRECT: 0.5}


def test_a_measured_rate_near_a_modelled_one_is_drawn_to_it_and_one_far_away_is_not() -> None:
    """The model errs as much as the noise of a probe: .05 at a standard deviation."""
    modelled = replace(
        GRID.with_edges(measured=GRID.measured & False),
        model={
            "measured_over_modelled": {
                "levels": [0.16, 0.5],
                "rtt_ms": [0.0],
                "quantiles": {"aws>gcp": [[0.95, 1.0]]},
            }
        },
    )
    direct = planner.plan(GRID, S, T, FASTEST, volume_gb=100.0, limits=replace(ONE, max_relays=0))
    for gbps, used in ((1.04, 1.02), (0.5, 0.505)):
        one = EdgeMeasurement(*DIRECT, gbps, 64, 1, 3.0, 1, 0.0)
        found = plan_measured(modelled, JOB, direct, [one], FREE, {})
        assert rates(found) == {DIRECT: pytest.approx(used, abs=1e-6)}


@pytest.mark.parametrize("objective", [MinimizeCost(1.5), Deadline(700.0)])
def test_the_fastest_plan_takes_the_place_of_a_floor_that_does_not_hold(
    objective: Objective,
) -> None:
    plan = plan_of(objective)
    found = again(plan, {DIRECT: 0.4, FIRST: 0.6, SECOND: 2.0})
    assert found.throughput_gbps == pytest.approx(0.6)
    assert found.objective == plan.objective


def test_a_region_keeps_the_type_that_runs_there() -> None:
    """Types that other regions run were planned too, and then no plan was found."""
    large, small = (
        InstanceType("azure", name, 4, gbps, 10.0, 64, usd, 8)
        for name, gbps, usd in (("large", 5.0, 3.6), ("small", 1.0, 0.36))
    )
    grid = grid_of({**CARRIED, DIRECT: (0.5, 0.10)}, [large, small])
    plan = plan_of(FASTEST)
    relays = {R: InstanceGroup("large", 1, 3.6), OTHER: InstanceGroup("small", 1, 0.36)}
    plan = replace(plan, instances={**plan.instances, **relays})
    slow = EdgeMeasurement(*FIRST, 0.9, 64, 1, 3.0, 1, 0.0)
    found = plan_measured(grid, JOB, plan, [slow], FREE, {})
    assert found.instances == plan.instances
    # The small one carries 1 Gbit/s over a quarter of the source's connections.
    assert found.throughput_gbps == pytest.approx(1.0 + 0.75 * 0.9)


def test_egress_may_cost_what_the_job_has_left_beside_instances() -> None:
    plan = plan_of(MaximizeThroughput(max_usd_per_gb=0.13))
    # As many GB as are left were moved for a cent less each.
    for found, most in ((plan, 0.13), (again(plan, {}, ProbeCost(usd=12.0, gb=100.0)), 0.14)):
        instances = (found.cost.instance_usd or 0.0) / 100.0
        assert found.egress_ceiling_usd_per_gb == pytest.approx(most - instances, rel=1e-5)


def test_a_ceiling_counts_what_the_probe_has_cost() -> None:
    # Over the relay 0.12 USD per GB and its instances.
    plan = plan_of(MaximizeThroughput(max_cost_usd=13.5))
    assert plan.relays == (R,)
    same = {DIRECT: 1.0, FIRST: 2.0, SECOND: 2.0}
    total_usd = plan.cost.total_usd
    assert total_usd is not None
    left_usd = 13.5 - total_usd
    assert again(plan, same, ProbeCost(usd=0.9 * left_usd)).relays == (R,)
    cheaper = again(plan, same, ProbeCost(usd=left_usd + 0.5))
    assert cheaper.cost.total_usd is not None
    assert cheaper.cost.total_usd + left_usd + 0.5 <= 13.5
    with pytest.raises(PlanInfeasible):
        again(plan, same, ProbeCost(usd=13.0))
    with pytest.raises(PlanInfeasible, match="nothing is left of the cost"):
        again(plan, same, ProbeCost(usd=14.0))


def test_a_ceiling_per_gb_is_one_of_all_bytes_that_the_job_moves() -> None:
    # Over the relay 0.12 USD per GB, without instances.
    plan = plan_of(MaximizeThroughput(max_usd_per_gb=0.13))
    assert plan.relays == (R,)
    # So many GB as are left were moved, cheaply or for all that both halves may cost.
    assert again(plan, {}, ProbeCost(usd=10.0, gb=100.0)).relays == (R,)
    assert again(plan, {}, ProbeCost(usd=14.0, gb=100.0)).relays == ()
    with pytest.raises(PlanInfeasible, match="nothing is left of the price"):
        again(plan, {}, ProbeCost(usd=26.0, gb=100.0))


def test_the_budget_of_a_job_counts_what_the_probe_has_cost() -> None:
    plan = plan_of(FASTEST, max_job_usd=15.0)
    assert again(plan, {}, ProbeCost(usd=0.1), Policy(max_job_usd=15.0)).relays == (R,)
    with pytest.raises(PlanInfeasible):
        again(plan, {}, ProbeCost(usd=14.0), Policy(max_job_usd=15.0))


def test_a_deadline_counts_the_time_of_the_probe() -> None:
    # Without measured rates, as it is asked before a probe.
    plan = plan_of(Deadline(900.0))
    slack_s = 900.0 - (plan.provision_s + (plan.transfer_s or 0.0))
    fastest_s = plan_of(FASTEST).transfer_s or 0.0
    assert again(plan, {}, ProbeCost(seconds=5.0)).throughput_gbps >= plan.throughput_gbps
    with pytest.raises(PlanInfeasible):
        again(plan, {}, ProbeCost(seconds=slack_s + (plan.transfer_s or 0.0) - fastest_s + 1.0))
