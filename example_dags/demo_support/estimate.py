"""Why a plan's estimate differs from a bill: the plan's formula at the measured times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner.pricing import instance_billing
from skyplane_orchestration.units import usd_per_hour_to_usd_per_s
from strict_clouds.bill import Bill


@dataclass(frozen=True, slots=True)
class Times:
    """The seconds that instances of a plan are billed for.

    Args:
        wait_s: from the launch until the transfer begins; measured ones include the teardown.
        transfer_s: while bytes move.
    """

    wait_s: float
    transfer_s: float


def planned_times(plan: TransferPlan) -> Times:
    """The times that the plan assumes. Raises ValueError for a plan without a volume."""
    if plan.transfer_s is None:
        raise ValueError("the plan has no volume")
    return Times(plan.provision_s, plan.transfer_s)


def measured_times(bill: Bill, transfer_s: float) -> Times:
    """The times of the instance that lived longest; all have ended."""
    lives_s = [
        line.machine.ended_unix_s - line.machine.began_unix_s
        for line in bill.machines
        if line.machine.ended_unix_s is not None
    ]
    return Times(max(lives_s) - transfer_s, transfer_s)


def estimate(plan: TransferPlan, times: Times) -> dict[str, float]:
    """Item of a bill -> USD by the plan's formula and prices, at these times."""
    return {
        "egress": plan.cost.egress_usd or 0.0,
        "instances": sum(
            group.count
            * usd_per_hour_to_usd_per_s(group.usd_per_hour)
            * instance_billing.billed_s(region, times.transfer_s, times.wait_s)
            for region, group in plan.instances.items()
        ),
        "requests": plan.cost.request_usd or 0.0,
        "addresses": plan.cost.other_usd.get("public IPv4 addresses", 0.0),
        "disks": plan.cost.other_usd.get("disks", 0.0),
    }


def cause_lines(plan: TransferPlan, bill: Bill, measured: Times) -> Iterator[str]:
    """The difference between the plan's estimate and the bill, by cause."""
    planned = planned_times(plan)
    steps = (planned, Times(measured.wait_s, planned.transfer_s), measured)
    totals = [sum(estimate(plan, times).values()) for times in steps]
    yield "what the plan estimates more than the bill, by cause:"
    waits = f"boot and teardown: {measured.wait_s:.1f} s, planned {planned.wait_s:.1f} s"
    moves = f"transfer: {measured.transfer_s:.1f} s, planned {planned.transfer_s:.1f} s"
    yield f"  {waits:<52} {totals[0] - totals[1]:+9.5f}"
    yield f"  {moves:<52} {totals[1] - totals[2]:+9.5f}"
    found = estimate(plan, measured)
    for item, billed in bill.by_item().items():
        what = f"{item} at these times" if item in found else f"{item}, which no plan counts"
        yield f"  {what:<52} {found.get(item, 0.0) - billed:+9.5f}"
    headers = "packet headers, which the fakes do not bill"
    yield f"  {headers:<52} {plan.cost.other_usd.get('packet headers', 0.0):+9.5f}"
