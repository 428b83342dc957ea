"""What a run costs: as its plan estimates it, as the run states it, and as clouds bill it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from example_dags.demo_support.estimate import estimate, planned_times

from skyplane_orchestration.model.plan import TransferPlan
from strict_clouds.bill import Bill

#: Items of a bill that a result states as other ones -> their name there.
_OTHERS: Final = {"addresses": "public IPv4 addresses", "disks": "disks"}
_STATED: Final = {
    "egress": "egress_usd",
    "instances": "instance_usd",
    "requests": "request_usd",
}


def cost_lines(plan: TransferPlan, result: Mapping[str, Any], bill: Bill) -> Iterator[str]:
    """The estimate of a plan and the result of its run, as commands print them, beside the bill."""
    planned, stated = estimate(plan, planned_times(plan)), result["cost"]
    yield f"{'cost in USD':<12} {'estimated':>9} {'stated':>9} {'billed':>9}"
    for item, billed in bill.by_item().items():
        other = stated["other_usd"].get(_OTHERS.get(item, ""), 0.0)
        own = stated[_STATED[item]] if item in _STATED else other
        yield f"{item:<12} {planned[item]:9.5f} {own:9.5f} {billed:9.5f}"
    totals = f"{plan.cost.total_usd:9.5f} {stated['total_usd']:9.5f} {bill.total_usd:9.5f}"
    yield f"{'total':<12} {totals}"
    of_plan, of_run = deviations(plan, result, bill)
    yield f"from the bill: the estimate {of_plan:+.1%}, the stated cost {of_run:+.1%}"
    for line in bill.machines:
        region, kind = line.machine.region, line.machine.kind
        yield f"  {region:<20} {kind:<16} {line.billed_s:6.1f} s {line.usd:9.5f}"
    for way in bill.egress:
        size = f"{way.size_bytes / 1e6:.1f} MB"
        yield f"  {way.source:<20} > {way.target:<20} {size:>9} {way.usd:9.5f}"


def deviations(plan: TransferPlan, result: Mapping[str, Any], bill: Bill) -> tuple[float, float]:
    """How far the estimate and the stated cost are from the bill, as shares of the bill.

    Raises ValueError for a plan without a volume.
    """
    if plan.cost.total_usd is None:
        raise ValueError("the plan has no volume")
    stated = float(result["cost"]["total_usd"])
    return plan.cost.total_usd / bill.total_usd - 1.0, stated / bill.total_usd - 1.0
