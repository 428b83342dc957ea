"""The tables of docs/reference/bills.md: bills made by hand, beside what a plan says."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.model.job import MinimizeCost, Policy
from skyplane_orchestration.model.plan import PlanCost
from skyplane_orchestration.planner import direct, plan

_FILE: Final = Path(__file__).with_name("bills.yaml")
_ENDS: Final = ("src", "dst", "volume_gb", "objects")


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a bill: `amount` units at `usd_per_unit`."""

    amount: float
    unit: str
    usd_per_unit: float
    what: str
    source: str

    @property
    def usd(self) -> float:
        return self.amount * self.usd_per_unit


@dataclass(frozen=True, slots=True)
class Bill:
    """A job, its lines by hand, the sum of a second reckoning, and the plan's cost."""

    title: str
    lines: tuple[Line, ...]
    stated_usd: float
    planned: PlanCost
    remark: str

    @property
    def usd(self) -> float:
        return sum(line.usd for line in self.lines)

    @property
    def ratio(self) -> float:
        """The plan's total over the bill."""
        return (self.planned.total_usd or 0.0) / self.usd


@cache
def bills() -> tuple[Bill, ...]:
    """All bills; each plan is the cheapest at the rate of one instance at each end."""
    document = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return tuple(_bill(each, document["sources"]) for each in document["bills"])


def _bill(document: dict[str, Any], sources: dict[str, str]) -> Bill:
    job = dict(document["job"])
    src, dst, volume_gb, objects = (job.pop(name) for name in _ENDS)
    grid = load_grid()
    rate = direct(grid, src, dst).throughput_gbps
    found = plan(
        grid,
        src,
        dst,
        MinimizeCost(rate),
        volume_gb=float(volume_gb),
        objects=objects,
        policy=Policy(**job),
    )
    return Bill(
        document["title"],
        tuple(
            Line(amount, unit, usd, what, sources[source])
            for amount, unit, usd, what, source in document["lines"]
        ),
        document["stated_usd"],
        found.cost,
        document.get("remark", ""),
    )


def bill_tables() -> str:
    """A section for each bill: the plan's items, and the lines by hand with their sources."""
    return "\n\n".join(_section(bill) for bill in bills())


def _section(bill: Bill) -> str:
    items = {
        "egress": bill.planned.egress_usd,
        "instances": bill.planned.instance_usd,
        "boot": bill.planned.boot_usd,
        "requests": bill.planned.request_usd,
        **bill.planned.other_usd,
    }
    counted = ", ".join(f"{name} ${usd:,.2f}" for name, usd in items.items() if usd)
    rows = [
        f"| {line.amount:,g} {line.unit} | {line.usd_per_unit:g} | ${line.usd:,.2f} | {line.what}"
        f" | {line.source} |"
        for line in bill.lines
    ]
    return "\n".join(
        [
            f"## {bill.title}",
            "",
            f"By hand **${bill.usd:,.2f}**, by the plan **${bill.planned.total_usd:,.2f}**"
            f" ({bill.ratio - 1:+.1%}).",
            *([bill.remark.strip()] if bill.remark else []),
            "",
            "| amount | USD | sum | pays | source |",
            "|---|---|---|---|---|",
            *rows,
            "",
            f"The plan: {counted}.",
        ]
    )
