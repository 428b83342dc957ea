"""Transfers that run one after another on one fleet have costs that add up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.transfer import samples

from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.fleet import Fleet, FleetInstance
from skyplane_orchestration.model.plan import InstanceGroup, PlanCost
from skyplane_orchestration.model.result import CostOutcome, TransferResult, TryOutcome
from skyplane_orchestration.transfer.actual_cost import (
    SPENT,
    cost_of,
    own_costs,
    with_other_items,
)

PLAN = replace(samples.PLAN, instances={samples.A: InstanceGroup("c7gn.large", 1, 36.0)})
LOCAL = samples.fleet_of("ab", plan=PLAN, provision_s=20.0)
RENTED = replace(LOCAL, instances=(FleetInstance("a/0", samples.A, "i-1", 0.0),))


def ended(instance_usd: float, copied: int = 10) -> TransferResult:
    cost = CostOutcome(1.0, instance_usd, 3.0 if copied else 0.0)
    return samples.result(copied=copied, cost=cost, this_try=TryOutcome(cost=cost))


def instance_usd(*done: tuple[Fleet, TransferResult]) -> list[float]:
    found = own_costs(done)
    assert [one.this_try.cost for one in found] == [one.cost for one in found]
    return [round(one.cost.instance_usd, 9) for one in found]


def test_instances_are_paid_from_the_end_of_the_transfer_before() -> None:
    assert instance_usd((RENTED, ended(2.0)), (RENTED, ended(5.0)), (RENTED, ended(5.5))) == [
        2.0, 3.0, 0.5,
    ]  # fmt: skip


def test_another_fleet_is_paid_from_its_launch() -> None:
    other = replace(RENTED, key="ef" * 16)
    assert instance_usd((RENTED, ended(2.0)), (other, ended(1.0))) == [2.0, 1.0]


def test_the_time_in_which_a_fleet_came_up_is_paid_once() -> None:
    # 0.01 USD per second, 20 seconds.
    assert instance_usd((LOCAL, ended(0.3)), (LOCAL, ended(0.3))) == [0.3, 0.1]


def test_requests_follow_the_copied_objects() -> None:
    done = [(RENTED, ended(1.0, copied)) for copied in (10, 0, 5)]
    requests = [one.cost.request_usd for one in own_costs(done)]
    assert requests == pytest.approx([2.0, 0.0, 1.0])


#: 10 GB for 2 USD of egress, instances for 1 USD with boot and minimum, requests for 4 USD.
ITEMS = {"packet headers": 0.2, "retrieval": 5.0, "key requests": 3.0, "disks": 0.5}
BILLED = replace(
    PLAN,
    volume_gb=10.0,
    transfer_s=80.0,
    cost=PlanCost(2.0, 0.5, 4.0, 15.7, 0.3, 0.25, 0.25, ITEMS),
)


@pytest.mark.parametrize(
    ("spent", "copied_gb", "items"),
    [
        (CostOutcome(0.0, 0.0, 0.0), 0, [0.0, 0.0, 0.0, 0.0]),
        # As planned.
        (CostOutcome(2.0, 1.0, 4.0), 10, [0.2, 5.0, 3.0, 0.5]),
        # Half of the bytes, in twice the time.
        (CostOutcome(1.0, 2.0, 4.0), 5, [0.1, 2.5, 3.0, 1.0]),
        # The instances came up, and nothing moved.
        (CostOutcome(0.0, 0.25, 0.0), 0, [0.0, 0.0, 0.0, 0.125]),
    ],
)
def test_other_items_follow_what_they_are_billed_by(
    spent: CostOutcome, copied_gb: int, items: list[float]
) -> None:
    cost = with_other_items(spent, BILLED, copied_gb * samples.GB)
    assert list(cost.other_usd.values()) == pytest.approx(items)
    assert cost.total_usd == pytest.approx(spent.total_usd + sum(items))
    assert with_other_items(cost, BILLED, copied_gb * samples.GB) == cost, "counted once"
    # What a plan of mid-transfer says was spent before it is in the cost already.
    later = {**BILLED.cost.other_usd, SPENT: 9.0}
    moved = replace(BILLED, cost=replace(BILLED.cost, other_usd=later))
    assert with_other_items(spent, moved, copied_gb * samples.GB) == cost


def test_a_plan_without_a_price_of_instances_has_none_of_the_hour() -> None:
    free = replace(BILLED, cost=replace(BILLED.cost, instance_usd=0.0, boot_usd=0.0))
    free = replace(free, cost=replace(free.cost, minimum_billing_usd=0.0))
    assert with_other_items(CostOutcome(2.0, 0.0, 0.0), free, 0).other_usd["disks"] == 0.0


def test_transfers_on_one_fleet_share_the_other_items() -> None:
    fleet = replace(RENTED, plan=BILLED)
    done = [(fleet, replace(ended(usd), copied_bytes=size)) for usd, size in ((1.0, 4), (3.0, 6))]
    found = [one.cost.other_usd for one in own_costs(done)]
    assert [one["disks"] for one in found] == pytest.approx([0.5, 1.0])
    assert [one["key requests"] for one in found] == pytest.approx([1.125, 1.125])
    assert [one["retrieval"] for one in found] == pytest.approx([2e-9, 3e-9])


def test_one_transfer_keeps_its_cost() -> None:
    assert own_costs([(RENTED, ended(2.0))]) == [ended(2.0)]


def test_the_first_transfer_pays_for_the_probe() -> None:
    probed = replace(
        samples.fleet_of("ab", plan=samples.PRICED_PLAN),
        probes=(EdgeMeasurement(samples.A, samples.B, 1.0, 64, 1, 3.0, 1, 0.0, usd=0.4),),
    )
    status = samples.status(delivered_bytes={0: samples.GB})
    first, later = (cost_of(probed, status, is_first=one).egress_usd for one in (True, False))
    assert first == pytest.approx(later + 0.4)
    done = own_costs([(probed, ended(1.0)), (probed, ended(1.0))])
    assert [one.cost.egress_usd for one in done] == [1.0, pytest.approx(0.6)]
