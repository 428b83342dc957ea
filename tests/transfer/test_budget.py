"""What a transfer has cost over its epochs, and when that is too much."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from tests.manual_clock import ManualClock
from tests.transfer import samples
from tests.transfer.samples import GB, JOB, A, B, R, fleet_of

from skyplane_gateway.journal.totals import SentRow, Totals
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.fleet import FleetInstance
from skyplane_orchestration.model.plan import InstanceGroup, PlanCost, PlanEdge
from skyplane_orchestration.model.result import TransferResult
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.transfer.budget import Budget
from skyplane_orchestration.transfer.results import result_of

#: 0.36 USD per hour are 0.0001 USD per second, of which there are three.
PLAN = replace(
    samples.PLAN,
    volume_gb=10.0,
    cost=PlanCost(1.0, 0.1, 0.05, 1.15, 0.11, other_usd={"packet headers": 0.04, "disks": 0.02}),
    instances={A: InstanceGroup("x", 1, 0.36), R: InstanceGroup("y", 2, 0.36)},
    edges=(
        PlanEdge(A, B, 1.0, 64, 5.0, 0.09),
        PlanEdge(A, R, 1.0, 32, 5.0, 0.02),
        PlanEdge(R, B, 1.0, 32, 5.0, 0.05),
    ),
)
FLEET = fleet_of("ab", "arb", plan=PLAN, regions={"a": A, "r": R, "b": B}, provision_s=100.0)


#: Of the same prices, on instances of clouds; that of R was replaced after 5 s.
INSTANCES = (
    FleetInstance(f"{A}/0", A, "i-a", 1000.0),
    FleetInstance(f"{R}/0", R, "r-1", 1000.0),
    FleetInstance(f"{R}/1", R, "r-2", 1000.0, ended_unix_s=1005.0),
)
CLOUD_FLEET = replace(FLEET, provisioner="cloud", instances=INSTANCES)


def status(
    epoch: int, seconds: float, delivered: Mapping[int, int], copied: int = 0
) -> TransferStatus:
    return replace(
        TransferStatus("cd" * 16, epoch),
        seconds=seconds,
        delivered_bytes=delivered,
        copied=copied,
        objects=copied,
    )


def test_every_hop_every_instance_and_the_requests_once() -> None:
    budget = Budget(None)
    assert budget.cost.total_usd == 0.0
    budget.record(FLEET, status(1, 50.0, {0: 2 * GB, 1: 3 * GB}))
    assert budget.cost.egress_usd == pytest.approx(2 * 0.09 + 3 * (0.02 + 0.05))
    assert budget.cost.instance_usd == pytest.approx(0.0003 * (100 + 50))
    assert budget.cost.request_usd == 0.0
    budget.record(FLEET, status(1, 60.0, {0: 2 * GB, 1: 3 * GB}, copied=1))
    assert budget.cost.instance_usd == pytest.approx(0.0003 * (100 + 60)), "not added up"
    assert budget.cost.request_usd == 0.05
    headers, disks = budget.cost.other_usd["packet headers"], budget.cost.other_usd["disks"]
    assert headers == pytest.approx(0.04 * budget.cost.egress_usd / 1.0)
    assert disks == pytest.approx(0.02 * budget.cost.instance_usd / 0.1)
    items = (budget.cost.egress_usd, budget.cost.instance_usd, 0.05, headers, disks)
    assert budget.cost.total_usd == pytest.approx(sum(items)), "the limit is on all items"


def test_a_fleet_that_was_planned_again_pays_for_the_edges_it_left() -> None:
    probe = EdgeMeasurement(A, B, 1.0, 64, 1, 3.0, 1, 0.0, usd=7.0)
    budget, relayed = Budget(None), replace(FLEET, probes=(probe,))
    direct = fleet_of(
        "ab", plan=replace(PLAN, edges=PLAN.edges[:1]), regions={"a": A, "b": B}, probes=(probe,)
    )
    budget.record(relayed, status(1, 50.0, {0: 0, 1: 3 * GB}))
    last = status(2, 10.0, {0: 2 * GB})
    budget.record(direct, last)
    assert budget.cost.egress_usd == pytest.approx(7.0 + 3 * (0.02 + 0.05) + 2 * 0.09)
    found = budget.with_totals(result_of(JOB, direct, replace(last, state="succeeded")))
    assert [(edge.src, edge.dst, edge.planned_gbps, edge.sent_bytes) for edge in found.edges] == [
        (A, B, 1.0, 2 * GB),
        (A, R, 0.0, 3 * GB),
        (R, B, 0.0, 3 * GB),
    ]


def test_a_new_epoch_adds_to_what_the_old_ones_cost() -> None:
    budget = Budget(None)
    budget.record(FLEET, status(1, 50.0, {0: 2 * GB}, copied=1))
    budget.record(FLEET, status(2, 10.0, {0: 1 * GB}, copied=1))
    assert budget.cost.egress_usd == pytest.approx(3 * 0.09)
    # The fleet came up once, and the plan's requests are those of the whole job.
    assert budget.cost.instance_usd == pytest.approx(0.0003 * (100 + 50 + 10))
    assert budget.cost.request_usd == 0.05
    budget.record(replace(FLEET), status(3, 5.0, {}))
    assert budget.cost.instance_usd == pytest.approx(0.0003 * (2 * 100 + 50 + 10 + 5))


def test_the_totals_of_one_epoch_are_those_of_the_result() -> None:
    last = status(1, 50.0, {0: 2 * GB, 1: 3 * GB}, copied=4)
    result = result_of(JOB, FLEET, last)
    budget = Budget(None)
    assert budget.with_totals(result) is result, "there was no status"
    budget.record(FLEET, last)
    assert budget.with_totals(result) == result
    assert result.cost.total_usd > 0


def test_a_second_try_has_its_own_figures_and_the_totals() -> None:
    """It told the bytes of the whole, and the seconds, rate and cost of the retry alone."""
    earlier = Totals(40.0, (SentRow(A, B, 6 * GB), SentRow(A, R, 1 * GB), SentRow(R, B, 1 * GB)))
    last = replace(
        status(2, 10.0, {0: 2 * GB, 1: 1 * GB}, copied=10),
        copied_bytes=10 * GB,
        copied_earlier=7,
        copied_earlier_bytes=7 * GB,
        earlier=earlier,
    )
    budget = Budget(None)
    # Its lead has not read the journal yet.
    budget.record(FLEET, status(2, 0.1, {}))
    budget.record(FLEET, last)
    result = budget.with_totals(result_of(JOB, FLEET, last))
    assert (result.copied, result.copied_bytes, result.seconds) == (10, 10 * GB, 50.0)
    assert result.goodput_gbps == pytest.approx(8 * 10 / 50)
    assert {(e.src, e.dst): e.sent_bytes for e in result.edges} == {
        (A, B): 8 * GB,
        (A, R): 2 * GB,
        (R, B): 2 * GB,
    }
    assert result.edges[0].achieved_gbps == pytest.approx(8 * 8 / 50)
    assert result.cost.egress_usd == pytest.approx(8 * 0.09 + 2 * (0.02 + 0.05))
    # The fleet of this try came up in 100 s; the time of the others is not known.
    assert result.cost.instance_usd == pytest.approx(0.0003 * (100 + 10 + 40))
    assert result.cost.request_usd == 0.05
    own = result.this_try
    assert (own.copied, own.copied_bytes, own.seconds) == (3, 3 * GB, 10.0)
    assert own.goodput_gbps == pytest.approx(8 * 3 / 10)
    assert own.cost.egress_usd == pytest.approx(2 * 0.09 + (0.02 + 0.05))
    assert own.cost.instance_usd == pytest.approx(0.0003 * 110)
    assert own.cost == budget.cost, "a budget is for one try"
    assert result.warnings == ()
    assert TransferResult.from_dict(result.to_dict()) == result


def test_a_change_of_lead_is_the_same_try() -> None:
    """What the new lead finds in the journal is of this try, and counted already."""
    budget = Budget(None)
    budget.record(FLEET, replace(status(1, 40.0, {0: 4 * GB}, copied=4), copied_bytes=4 * GB))
    last = replace(
        status(2, 10.0, {0: 2 * GB}, copied=6),
        copied_bytes=6 * GB,
        copied_earlier=4,
        copied_earlier_bytes=4 * GB,
        earlier=Totals(39.5, (SentRow(A, B, 4 * GB),)),
    )
    budget.record(FLEET, last)
    result = budget.with_totals(result_of(JOB, FLEET, last))
    assert (result.seconds, result.edges[0].sent_bytes) == (50.0, 6 * GB)
    assert result.goodput_gbps == pytest.approx(8 * 6 / 50)
    own = result.this_try
    assert (own.copied, own.copied_bytes, own.seconds, own.cost) == (6, 6 * GB, 50.0, result.cost)


def test_earlier_bytes_without_a_price_make_a_warning() -> None:
    last = replace(status(2, 10.0, {}), earlier=Totals(5.0, (SentRow(B, A, 70), SentRow(A, B, GB))))
    budget = Budget(None)
    budget.record(FLEET, last)
    result = budget.with_totals(result_of(JOB, FLEET, last))
    assert result.cost.egress_usd == pytest.approx(0.09)
    (warning,) = result.warnings
    assert "70 bytes" in warning


def test_a_cost_equal_to_the_limit_exceeds_it() -> None:
    last = status(1, 50.0, {0: 2 * GB})
    spent = Budget(None)
    spent.record(FLEET, last)
    assert spent.exceeded() is None
    for max_usd, is_over in ((spent.cost.total_usd, True), (spent.cost.total_usd * 1.001, False)):
        budget = Budget(max_usd)
        budget.record(FLEET, last)
        error = budget.exceeded()
        assert (error is not None) is is_over
        if error is not None:
            assert error.is_permanent, "who retries by themselves must not"
            assert "max_job_usd" in error.message


def test_instances_are_billed_from_their_launch_and_for_the_minimum_of_their_cloud() -> None:
    clock = ManualClock(1000.0)
    clock.advance(10.0)
    budget = Budget(None, clock.clock)
    budget.record(CLOUD_FLEET, status(1, 0.5, {}))
    # AWS has a minimum of 60 s, Azure of 300 s.
    assert budget.cost.instance_usd == pytest.approx(0.0001 * (60 + 2 * 300))
    clock.advance(390.0)
    assert budget.cost.instance_usd == pytest.approx(0.0001 * (400 + 400 + 300))


def test_a_replaced_fleet_costs_what_both_have_cost() -> None:
    clock = ManualClock(1000.0)
    clock.advance(500.0)
    budget = Budget(None, clock.clock)
    budget.record(CLOUD_FLEET, status(1, 1.0, {}))
    again = FleetInstance(f"{A}/0", A, "i-b", 1400.0)
    budget.record(replace(CLOUD_FLEET, instances=(again, *INSTANCES[1:])), status(2, 1.0, {}))
    clock.advance(500.0)
    assert budget.cost.instance_usd == pytest.approx(0.0001 * (500 + 600 + 1000 + 300))


def test_a_second_try_pays_from_its_beginning_and_the_total_from_the_launch() -> None:
    clock = ManualClock(1000.0)
    clock.advance(1000.0)
    budget = Budget(None, clock.clock)
    last = replace(status(2, 10.0, {}), earlier=Totals(40.0, ()))
    budget.record(CLOUD_FLEET, last)
    clock.advance(10.0)
    result = budget.with_totals(result_of(JOB, CLOUD_FLEET, last))
    assert result.this_try.cost.instance_usd == pytest.approx(0.0001 * (10 + 10))
    assert result.cost.instance_usd == pytest.approx(0.0001 * (1010 + 1010 + 300))
    clock.advance(30.0)
    ended = budget.after_teardown(result)
    assert ended.this_try.cost.instance_usd == pytest.approx(0.0001 * (40 + 40))
    assert ended.cost.instance_usd == pytest.approx(0.0001 * (1040 + 1040 + 300))
    for cost in (result.cost, ended.cost, ended.this_try.cost):
        assert cost.other_usd["disks"] == pytest.approx(0.2 * cost.instance_usd)


@given(
    st.lists(
        st.tuples(st.integers(1, 4), st.integers(0, 10**12), st.floats(0, 1e6)),
        min_size=1,
        max_size=12,
    )
)
def test_it_never_falls_while_leads_report_more(rows: list[tuple[int, int, float]]) -> None:
    budget, before = Budget(None), 0.0
    most: dict[int, tuple[int, float]] = {}
    for epoch, size, seconds in sorted(rows, key=lambda row: row[0]):
        earlier = most.get(epoch, (0, 0.0))
        most[epoch] = (earlier[0] + size, earlier[1] + seconds)
        budget.record(FLEET, status(epoch, most[epoch][1], {0: most[epoch][0]}))
        assert budget.cost.total_usd >= before - 1e-9
        before = budget.cost.total_usd
