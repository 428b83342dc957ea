"""The tables of docs/reference/costs.md: typical jobs, priced on the shipped grid."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Final

from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.grids.price_rules import applied_rule
from skyplane_orchestration.model.job import NO_LIMITS, MinimizeCost
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import direct, plan
from skyplane_orchestration.planner.pricing.transfer_services import quote_services

#: From, to: within a cloud, and between each pair of the three.
_ROUTES: Final = (
    ("aws:us-east-1", "aws:eu-west-1"),
    ("aws:us-east-1", "gcp:us-east4"),
    ("gcp:europe-west1", "azure:westeurope"),
    ("azure:eastus", "aws:ap-southeast-2"),
)
_VOLUMES_GB: Final = (100, 1_000, 10_000)
#: Average object of a job.
_OBJECT_GB: Final = 0.1
#: Floor of the plan beside the direct path.
_FLOOR_GBPS: Final = 10.0
_HEAD: Final = (
    "volume",
    "way",
    "Gbit/s",
    "time",
    "egress",
    "instances",
    "requests",
    "other",
    "fee",
    "total",
)


@cache
def typical_costs() -> str:
    """A section for each route: its egress price, and a table of ways and volumes."""
    grid = load_grid()
    return "\n\n".join(_section(grid, src, dst) for src, dst in _ROUTES)


def _section(grid: Grid, src: str, dst: str) -> str:
    rule = applied_rule(grid.price_document, grid.region(src), grid.region(dst))
    lines = [
        f"## {src} to {dst}",
        "",
        f"Egress of the direct path: ${rule.usd_per_gb:.4f} per GB ({rule.rule}, {rule.as_of}).",
        "",
        f"| {' | '.join(_HEAD)} |",
        f"|{'---|' * len(_HEAD)}",
        *(f"| {' | '.join(row)} |" for row in _rows(grid, src, dst)),
    ]
    return "\n".join(lines)


def _rows(grid: Grid, src: str, dst: str) -> Iterator[tuple[str, ...]]:
    for volume_gb in _VOLUMES_GB:
        objects = round(volume_gb / _OBJECT_GB)
        size = f"{volume_gb} GB" if volume_gb < 1_000 else f"{volume_gb // 1_000} TB"
        alone = direct(grid, src, dst, 1, volume_gb=volume_gb, objects=objects)
        yield (size, "direct, one instance per end", *_figures(alone))
        cheapest = plan(
            grid,
            src,
            dst,
            MinimizeCost(_FLOOR_GBPS),
            volume_gb=volume_gb,
            objects=objects,
            limits=NO_LIMITS,
        )
        yield (size, _way(cheapest), *_figures(cheapest))
        quotes = [
            quote
            for quote in quote_services(grid, src, dst, volume_gb, objects)
            if quote.total_usd is not None
        ]
        for quote in sorted(quotes, key=lambda quote: quote.total_usd or 0.0)[:1]:
            money = (
                quote.egress_usd,
                None,
                quote.request_usd,
                None,
                quote.service_usd,
                quote.total_usd,
            )
            yield (size, quote.title, "", "", *(_usd(each) for each in money))


def _way(found: TransferPlan) -> str:
    over = f", over {', '.join(found.relays)}" if found.relays else ", direct"
    return f"cheapest from {_FLOOR_GBPS:g} Gbit/s{over}; {found.instance_count} instances"


def _figures(found: TransferPlan) -> tuple[str, ...]:
    cost = found.cost
    parts = (cost.instance_usd, cost.boot_usd, cost.minimum_billing_usd)
    instances = sum(part or 0.0 for part in parts)
    other = sum(cost.other_usd.values())
    money = (cost.egress_usd, instances, cost.request_usd, other, None, cost.total_usd)
    return (
        f"{found.throughput_gbps:.1f}",
        _time((found.transfer_s or 0.0) + found.provision_s),
        *(_usd(each) for each in money),
    )


def _usd(amount: float | None) -> str:
    return "" if amount is None else f"${amount:,.2f}"


def _time(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min"
