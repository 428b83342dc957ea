"""What a run has cost: as the run states it, and as clouds bill it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from strict_clouds.bill import Bill

#: Item of a bill -> item of a result.
_STATED: Final = {
    "egress": "egress_usd",
    "instances": "instance_usd",
    "requests": "request_usd",
    "addresses": "",
    "disks": "",
}


def cost_lines(result: Mapping[str, Any], bill: Bill) -> Iterator[str]:
    """The result of a run, as a command prints it, beside the bill."""
    stated = result["cost"]
    yield f"{'cost in USD':<12} {'stated':>9} {'billed':>9}"
    for item, billed in bill.by_item().items():
        name = _STATED[item]
        own = f"{stated[name]:9.5f}" if name else f"{'-':>9}"
        yield f"{item:<12} {own} {billed:9.5f}"
    yield f"{'total':<12} {stated['total_usd']:9.5f} {bill.total_usd:9.5f}"
    yield f"the stated cost is {deviation(result, bill):+.1%} from the bill"
    for line in bill.machines:
        region, kind = line.machine.region, line.machine.kind
        yield f"  {region:<20} {kind:<16} {line.billed_s:6.1f} s {line.usd:9.5f}"
    for way in bill.egress:
        size = f"{way.size_bytes / 1e6:.1f} MB"
        yield f"  {way.source:<20} > {way.target:<20} {size:>9} {way.usd:9.5f}"


def deviation(result: Mapping[str, Any], bill: Bill) -> float:
    """How far the stated cost is from the bill, as a share of the bill."""
    return float(result["cost"]["total_usd"]) / bill.total_usd - 1.0
