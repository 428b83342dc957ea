"""Reads the public throughput, latency and price tables of the Skyplane project.

Columns as in that project's repository (profiles/*.csv, 2022): a row is one run of iperf3 (64
connections, 5 s) or ping between two instances. GCP regions appear as zones, rates are bit/s. The
receiver's rate counts: the sender's includes bytes that were still in its buffers at the end.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.importers.measurements import (
    Measurements,
    Pair,
    Samples,
    named_region,
)
from skyplane_orchestration.grids.rows import Findings, Row, read_text, rows_of
from skyplane_orchestration.units import BITS_PER_GBIT

TIERS: Final = ("PREMIUM", "STANDARD")

#: Both spellings exist; the first is the project's own.
_RECEIVED: Final = ("throughput_recieved", "throughput_received")
_SAME_REGION: Final = "rows inside one region"


def read_skyplane(
    source: Path, *, tier: str = "PREMIUM", latency: Path | None = None, prices: Path | None = None
) -> Measurements:
    """Measurements in a throughput table; round trips and prices if files are given.

    `tier` is the network tier of GCP ends. Raises GridInvalid for a bad row, by file and row, and
    if nothing remains to import.
    """
    skipped: Counter[str] = Counter()
    rates = Samples()
    header = _header(source)
    received = next((name for name in _RECEIVED if name in header), _RECEIVED[0])
    for row in _rows(source, ("src_region", "dst_region", received)):
        pair = _pair(row, "src_region", "dst_region")
        reason = _reason_to_skip(row, pair, tier)
        if reason:
            skipped[reason] += 1
        else:
            rates.add(pair, row.quantity(received) / BITS_PER_GBIT)
    if not len(rates):
        raise GridInvalid(f"{source.name} has no row of tier {tier} between two regions")
    regions = {tag for pair in rates.by_pair for tag in pair}
    return Measurements(
        rates,
        kind="a throughput table of the Skyplane project",
        sha256=hashlib.sha256(source.read_bytes()).hexdigest(),
        skipped=skipped,
        rtts=_latency(latency, tier, regions) if latency else Samples(),
        prices=_prices(prices, regions) if prices else Samples(),
        notes=(
            f"Rates are what the receiver counted, network tier {tier}",
            "Zones of GCP are folded into their regions",
            "Several measurements of one pair became their median",
        ),
    )


def _header(source: Path) -> list[str]:
    return read_text(source, source.name).partition("\n")[0].strip().split(",")


def _rows(source: Path, columns: tuple[str, ...]) -> Iterator[Row]:
    return rows_of(read_text(source, source.name), source.name, columns, Findings())


def _pair(row: Row, src: str, dst: str) -> Pair:
    place = f"{row.file} row {row.number}"
    return named_region(place, row[src]), named_region(place, row[dst])


def _reason_to_skip(row: Row, pair: Pair, tier: str) -> str:
    if pair[0] == pair[1]:
        return _SAME_REGION
    if not _has_tier(row, pair, tier):
        return f"rows of another tier than {tier}"
    return "runs that failed" if row.get("success").lower() == "false" else ""


def _has_tier(row: Row, pair: Pair, tier: str) -> bool:
    return all(
        (row.get(f"{end}_tier") or TIERS[0]).upper() == tier
        for end, tag in zip(("src", "dst"), pair, strict=True)
        if tag.startswith("gcp:")
    )


def _latency(source: Path, tier: str, regions: set[str]) -> Samples:
    """Mean round trips in ms; rows without one (failed runs) are skipped."""
    found = Samples()
    for row in _rows(source, ("src_region", "dst_region", "avg_rtt")):
        pair = _pair(row, "src_region", "dst_region")
        if _reason_to_skip(row, pair, tier) or not row["avg_rtt"] or not regions.issuperset(pair):
            continue
        found.add(pair, row.quantity("avg_rtt"))
    return found


def _prices(source: Path, regions: set[str]) -> Samples:
    """USD per GB as in the table."""
    has_own_names = "src_region" in _header(source)
    src, dst = ("src_region", "dst_region") if has_own_names else ("src", "dst")
    found = Samples()
    for row in _rows(source, (src, dst, "cost")):
        pair = _pair(row, src, dst)
        if pair[0] == pair[1] or not _has_tier(row, pair, TIERS[0]) or not regions.issuperset(pair):
            continue
        price = row.quantity("cost")
        if any(known != price for known in found.by_pair.get(pair, [])):
            raise row.bad(f"{pair[0]} -> {pair[1]} has another price further up")
        found.add(pair, price)
    return found
