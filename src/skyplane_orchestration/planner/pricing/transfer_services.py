"""Prices of AWS DataSync, Google Storage Transfer Service and AzCopy for a job.

The facts are in `services.yaml` of the shipped grid, each with its source, the date of that source,
and whether it was read there. Egress and request prices are those of the planner's grid. No service
publishes a rate, so a quote has no throughput.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml

from skyplane_orchestration.grids import Grid
from skyplane_orchestration.planner.pricing.instance_billing import cloud_of
from skyplane_orchestration.planner.pricing.other_items import other_items
from skyplane_orchestration.planner.pricing.plan_cost import request_usd
from skyplane_orchestration.planner.pricing.way import SERVICE, Evidence, Way
from skyplane_orchestration.units import usd_per_gib_to_usd_per_gb


@dataclass(frozen=True, slots=True)
class ServiceOffer:
    """One mode of one service.

    Attributes:
        title: a short name.
        routes: `source>destination` by cloud -> a condition for that route.
        usd_per_gb, usd_per_task: the service's own fee.
        part_mib: size of the parts that it writes; None if not published.
        commit_writes: writes that complete a multipart object.
    """

    name: str
    title: str
    routes: Mapping[str, str]
    usd_per_gb: float
    usd_per_task: float
    part_mib: int | None
    commit_writes: int
    notes: tuple[str, ...]
    fee: Evidence
    served: Evidence


@dataclass(frozen=True, slots=True)
class TransferService:
    """A service with its offers, and the reasons for routes it does not serve (glob, reason)."""

    name: str
    title: str
    offers: tuple[ServiceOffer, ...]
    refusals: tuple[tuple[str, str], ...]


def quote_services(
    grid: Grid, src: str, dst: str, volume_gb: float | None = None, objects: int | None = None
) -> tuple[Way, ...]:
    """The price of each service from one region tag to another, at the grid's egress prices.

    A service has one quote for each offer on the route, or one quote with the reason if it does not
    serve the route. Raises UnknownRegion for a region that the grid does not have.
    """
    for tag in (src, dst):
        if cloud_of(tag) != "local":
            grid.index_of(tag)
    route = f"{cloud_of(src)}>{cloud_of(dst)}"
    quotes: list[Way] = []
    for service in load_services():
        offers = [offer for offer in service.offers if route in offer.routes]
        quotes += [_quote(grid, offer, src, dst, volume_gb, objects) for offer in offers]
        if not offers:
            reason = next(why for glob, why in service.refusals if fnmatchcase(route, glob))
            quotes.append(Way(service.name, service.title, SERVICE, reason=reason))
    return tuple(quotes)


def _quote(
    grid: Grid,
    offer: ServiceOffer,
    src: str,
    dst: str,
    volume_gb: float | None,
    objects: int | None,
) -> Way:
    egress = 0.0 if src == dst else grid.egress_price(src, dst)
    requests = None
    if objects is not None:
        requests = request_usd(
            grid, src, (dst,), objects, volume_gb, offer.part_mib, offer.commit_writes
        )
    read = sum(other_items(grid, src, (dst,), objects, volume_gb).fixed_usd.values())
    fee = None if volume_gb is None else offer.usd_per_gb * volume_gb + offer.usd_per_task
    bytes_out = None if volume_gb is None else egress * volume_gb
    total = None if fee is None or bytes_out is None else fee + bytes_out + (requests or 0.0) + read
    return Way(
        name=offer.name,
        title=offer.title,
        kind=SERVICE,
        usd_per_gb=offer.usd_per_gb + egress,
        service_usd=fee,
        egress_usd=bytes_out,
        request_usd=requests,
        other_usd=read or None,
        total_usd=total,
        notes=_notes(grid, offer, src, dst),
        fee=offer.fee,
        served=offer.served,
    )


def _notes(grid: Grid, offer: ServiceOffer, src: str, dst: str) -> tuple[str, ...]:
    route = offer.routes[f"{cloud_of(src)}>{cloud_of(dst)}"]
    facts = {"fee": offer.fee, "routes": offer.served}
    unread = [f"{what}: general knowledge" for what, fact in facts.items() if not fact.is_verified]
    guessed = [
        f"prices of {tag} were never verified: a neighbour's are used"
        for tag in (src, dst)
        if tag in grid.index and not grid.regions[grid.index[tag]].price_verified
    ]
    return (
        f"fee of {offer.fee.as_of}",
        *unread,
        *([route] if route else []),
        *offer.notes,
        *guessed,
    )


# ---------------------------------------------------------------- the file


@lru_cache(maxsize=1)
def load_services() -> tuple[TransferService, ...]:
    """The services of `services.yaml`, in its order."""
    text = (files("skyplane_grids") / "services.yaml").read_text(encoding="utf-8")
    return tuple(_service(document) for document in yaml.safe_load(text)["services"])


def _service(document: Mapping[str, Any]) -> TransferService:
    return TransferService(
        name=document["name"],
        title=document["title"],
        offers=tuple(_offer(document, offer) for offer in document["offers"]),
        refusals=tuple((row["route"], row["reason"]) for row in document["cannot"]),
    )


def _offer(service: Mapping[str, Any], document: Mapping[str, Any]) -> ServiceOffer:
    fee, routes, requests = document["fee"], document["routes"], document["requests"]
    per_unit = float(fee["usd_per_unit"])
    return ServiceOffer(
        name=_with_mode(service["name"], document),
        title=_with_mode(service["title"], document),
        routes=dict(routes["served"]),
        usd_per_gb=usd_per_gib_to_usd_per_gb(per_unit) if fee["unit"] == "GiB" else per_unit,
        usd_per_task=float(fee["usd_per_task"]),
        part_mib=requests["part_mib"],
        commit_writes=requests["commit_writes"],
        notes=tuple(document["notes"]),
        fee=_evidence(fee),
        served=_evidence(routes),
    )


def _with_mode(name: str, offer: Mapping[str, Any]) -> str:
    return f"{name}, {offer['mode']}" if offer["mode"] else str(name)


def _evidence(document: Mapping[str, Any]) -> Evidence:
    return Evidence(document["source"], str(document["as_of"]), document["verified"])
