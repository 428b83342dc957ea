"""Transfers that run one after another on one fleet have costs that add up."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.transfer import samples

from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.fleet import Fleet, FleetInstance
from skyplane_orchestration.model.plan import InstanceGroup
from skyplane_orchestration.model.result import CostOutcome, TransferResult, TryOutcome
from skyplane_orchestration.transfer.actual_cost import cost_of, own_costs

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
