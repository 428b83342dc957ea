"""The provenance of a grid's values: counts over all values, and details of one edge."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import numpy as np

from skyplane_orchestration.grids.distances import pairwise_distance_km
from skyplane_orchestration.grids.grid import (
    FROM_OVERRIDE,
    FROM_RULES,
    FROM_TABLE,
    LEARNED,
    MEASURED,
    MODELLED,
    UNKNOWN,
    Grid,
)
from skyplane_orchestration.grids.price_overrides import first_match
from skyplane_orchestration.grids.price_rules import applied_rule


def rate_provenance(grid: Grid, place: tuple[int, int]) -> tuple[str, str]:
    """`learned`, `measured` or `modelled`, and the date of the measurements."""
    if grid.measured[place]:
        edges = grid.edges()
        kind = LEARNED if edges.learned[place] else MEASURED
        return kind, str(edges.dates.rate[place]) or grid.as_of
    pair = ">".join(grid.regions[end].cloud for end in place)
    curve = grid.model.get("curves", {}).get(pair, {})
    return MODELLED, str(curve.get("as_of") or grid.model.get("as_of", ""))


def rtt_provenance(grid: Grid, place: tuple[int, int]) -> tuple[str, str]:
    """`measured`, `modelled`, or `unknown` where a region has no coordinates; and the date."""
    if grid.rtt_measured[place]:
        return MEASURED, str(grid.edges().dates.rtt[place]) or grid.as_of
    if np.isnan(grid.rtt_ms[place]):
        return UNKNOWN, ""
    return MODELLED, str(grid.model.get("as_of", ""))


def price_provenance(grid: Grid, place: tuple[int, int]) -> tuple[str, str]:
    """`override`, `table` or `rules`, and the date of the agreement or list."""
    source = str(grid.price_source[place])
    src, dst = grid.regions[place[0]], grid.regions[place[1]]
    if source == FROM_OVERRIDE:
        override = first_match(grid.overrides, src.tag, dst.tag)
        return source, override.as_of if override else ""
    if source == FROM_RULES:
        return source, applied_rule(grid.price_document, src, dst).as_of
    return source, str(grid.edges().dates.price[place]) or grid.as_of


def provenance_counts(grid: Grid) -> list[dict[str, Any]]:
    """How many values of each kind have which provenance: value, provenance, as_of, count."""
    kinds = {
        "rate": rate_provenance,
        "round trip": rtt_provenance,
        "egress price": price_provenance,
    }
    size = range(len(grid.tags))
    counts: Counter[tuple[str, str, str]] = Counter()
    for name, provenance in kinds.items():
        counts.update((name, *provenance(grid, (i, j))) for i in size for j in size if i != j)
    counts.update(("instance type", kind.provenance, kind.as_of) for kind in grid.types)
    requests = grid.price_document.get("requests") or {}
    dated = str(grid.price_document.get("requests_as_of", ""))
    counts.update(
        ("request price", FROM_RULES, dated) for verbs in requests.values() for _ in verbs
    )
    counts.update(("storage limit", FROM_TABLE, row.as_of) for row in grid.storage)
    counts.update(("vCPU quota", FROM_TABLE, row.as_of) for row in grid.quotas)
    return [
        {"value": value, "provenance": provenance, "as_of": as_of, "count": count}
        for (value, provenance, as_of), count in counts.items()
    ]


def edge_facts(grid: Grid, src_tag: str, dst_tag: str) -> dict[str, Any]:
    """All values of one edge, with provenance and date, as plain data. Raises UnknownRegion."""
    place = grid.index_of(src_tag), grid.index_of(dst_tag)
    distance_km = float(pairwise_distance_km([grid.regions[end] for end in place])[0, 1])
    return {
        "src": src_tag,
        "dst": dst_tag,
        "distance_km": None if np.isnan(distance_km) else round(distance_km, 1),
        "rate": _rate_facts(grid, place),
        "round_trip": _rtt_facts(grid, place),
        "price": _price_facts(grid, place),
        "ends": {tag: _end_facts(grid, tag) for tag in (src_tag, dst_tag)},
    }


def _rate_facts(grid: Grid, place: tuple[int, int]) -> dict[str, Any]:
    provenance, as_of = rate_provenance(grid, place)
    return {
        "gbps": float(grid.throughput_gbps[place]),
        "provenance": provenance,
        "as_of": as_of,
        "samples": int(grid.edges().dates.samples[place]) or None,
    }


def _rtt_facts(grid: Grid, place: tuple[int, int]) -> dict[str, Any]:
    provenance, as_of = rtt_provenance(grid, place)
    rtt_ms = float(grid.rtt_ms[place])
    return {"ms": None if np.isnan(rtt_ms) else rtt_ms, "provenance": provenance, "as_of": as_of}


def _price_facts(grid: Grid, place: tuple[int, int]) -> dict[str, Any]:
    provenance, as_of = price_provenance(grid, place)
    src, dst = grid.regions[place[0]], grid.regions[place[1]]
    usd_per_gb = float(grid.usd_per_gb[place])
    facts: dict[str, Any] = {
        "usd_per_gb": usd_per_gb,
        "provenance": provenance,
        "as_of": as_of,
        "billed_usd": usd_per_gb,
        "unit": "GB",
        "rule": "price.csv, taken at face value",
        "source": grid.source,
        "verified": True,
    }
    override = first_match(grid.overrides, src.tag, dst.tag)
    if provenance == FROM_OVERRIDE and override is not None:
        facts |= {"billed_usd": override.billed_usd, "unit": override.unit}
        facts |= {"rule": f"{override.edge} ({override.origin})", "source": override.reason}
    if provenance == FROM_RULES:
        rule = applied_rule(grid.price_document, src, dst)
        facts |= {"billed_usd": rule.billed_usd, "unit": rule.unit}
        facts |= {"rule": rule.rule, "source": rule.source, "verified": rule.is_verified}
    return facts


def _end_facts(grid: Grid, tag: str) -> dict[str, Any]:
    cloud = tag.partition(":")[0]
    read_gbps, write_gbps = grid.storage_limits(tag)
    return {
        "instance_types": [
            {
                name: value
                for name, value in asdict(grid.priced(tag, kind)).items()
                if name != "cloud"
            }
            for kind in grid.types
            if kind.cloud == cloud
        ],
        "request_usd_per_1000": dict(grid.request_prices(cloud)),
        "request_as_of": str(grid.price_document.get("requests_as_of", "")),
        "storage_read_gbps": read_gbps,
        "storage_write_gbps": write_gbps,
        "vcpu_quota": grid.vcpu_quota(tag),
    }
