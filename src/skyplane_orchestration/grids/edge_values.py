"""The values of a grid by pair of regions: read from tables, completed by rules and model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from importlib.resources.abc import Traversable
from typing import Any

import numpy as np

from skyplane_orchestration.grids.arrays import Floats, Ints, Mask, Names
from skyplane_orchestration.grids.geography import GridRegion
from skyplane_orchestration.grids.grid import (
    FROM_OVERRIDE,
    FROM_RULES,
    FROM_TABLE,
    EdgeValues,
    Grid,
    InstanceType,
    ValueDates,
)
from skyplane_orchestration.grids.monthly_volume import NOTHING_SENT, MonthlyVolume
from skyplane_orchestration.grids.price_overrides import PriceOverride
from skyplane_orchestration.grids.price_rules import (
    applied_rule,
    first_tier_gb,
    price_key,
    standard_tier_rule,
)
from skyplane_orchestration.grids.rows import Findings, read_rows
from skyplane_orchestration.grids.throughput_model import (
    modelled_rtt_ms,
    modelled_throughput_gbps,
    require_model,
)


def read_edges(
    directory: Traversable,
    regions: Sequence[GridRegion],
    model: Mapping[str, Any],
    document: Mapping[str, Any],
    findings: Findings,
) -> EdgeValues:
    """The values of all pairs; bad rows go to `findings`. Raises GridInvalid for other faults.

    Args:
        model, document: the throughput model and the price rules.
    """
    index = {region.tag: number for number, region in enumerate(regions)}
    rtt = read_matrix(directory, "latency.csv", "rtt_ms", index, findings)
    rate = read_matrix(directory, "throughput.csv", "gbps", index, findings)
    listed = read_matrix(directory, "price.csv", "usd_per_gb", index, findings)
    require_model(model)
    rtt_ms = np.where(rtt.known, rtt.values, modelled_rtt_ms(model, regions))
    throughput_gbps = rate.values
    if not rate.known[~np.eye(len(regions), dtype=bool)].all():
        modelled = modelled_throughput_gbps(model, [region.cloud for region in regions], rtt_ms)
        throughput_gbps = np.where(rate.known, rate.values, modelled)
    # By table, else by rule.
    source = np.where(listed.known, FROM_TABLE, FROM_RULES).astype("<U8")
    missing = ~listed.known
    np.fill_diagonal(missing, False)
    price = np.where(listed.known, listed.values, prices_by_rule(document, regions, missing))
    np.fill_diagonal(price, 0.0)
    dates = ValueDates(rate.as_of, rtt.as_of, listed.as_of, rate.samples)
    learned = np.zeros_like(rate.known)
    return read_only(
        EdgeValues(throughput_gbps, rate.known, rtt_ms, rtt.known, price, source, dates, learned)
    )


def with_agreed_prices(
    edges: EdgeValues, tags: Sequence[str], overrides: Sequence[PriceOverride]
) -> EdgeValues:
    """The same values with agreed prices on top; the first match wins."""
    price, source = edges.usd_per_gb.copy(), edges.price_source.copy()
    for one in reversed(overrides):
        src_glob, dst_glob = one.ends
        chosen = _matching(tags, src_glob)[:, None] & _matching(tags, dst_glob)[None, :]
        np.fill_diagonal(chosen, False)
        price[chosen] = one.usd_per_gb
        source[chosen] = FROM_OVERRIDE
    return read_only(replace(edges, usd_per_gb=price, price_source=source))


def with_standard_tier(grid: Grid, tags: Collection[str]) -> EdgeValues:
    """The values where these regions send to other clouds by the standard tier.

    Only prices that come from rules change.
    """
    edges = grid.edges()
    price = edges.usd_per_gb.copy()
    leaves = _leaving_by_rule(grid, edges)
    for tag in tags:
        row = grid.index[tag]
        region = grid.regions[row]
        rule = standard_tier_rule(grid.price_document, region, grid.month_of(region.cloud))
        price[row, leaves[row]] = rule.usd_per_gb
    return read_only(replace(edges, usd_per_gb=price))


def with_monthly_volume(grid: Grid, month: MonthlyVolume) -> EdgeValues:
    """The values with tiered prices for a volume; only prices that come from rules change."""
    edges, document = grid.edges(), grid.price_document
    already_gb = month.already_gb
    if already_gb is None:
        already_gb = max(edges.sent_gb.values(), default=0.0)
    if already_gb + month.volume_gb <= first_tier_gb(document):
        return edges
    leaves = _leaving_by_rule(grid, edges)
    month_of = replace(grid, month=month).month_of
    tiered = prices_by_rule(document, grid.regions, leaves, month_of)
    return read_only(replace(edges, usd_per_gb=np.where(leaves, tiered, edges.usd_per_gb)))


def _leaving_by_rule(grid: Grid, edges: EdgeValues) -> Mask:
    """The edges to another cloud whose price comes from rules, (V, V)."""
    clouds = np.array([region.cloud for region in grid.regions])
    leaves: Mask = (clouds[:, None] != clouds[None, :]) & (edges.price_source == FROM_RULES)
    return leaves


def _matching(tags: Sequence[str], glob: str) -> Mask:
    return np.array([fnmatchcase(tag, glob) for tag in tags], dtype=bool)


def read_only(edges: EdgeValues) -> EdgeValues:
    """The same values, whose arrays nobody can change."""
    for values in (edges, edges.dates):
        for one in fields(values):
            if isinstance(array := getattr(values, one.name), np.ndarray):
                array.setflags(write=False)
    return edges


# ---------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """Values by ordered pair, arrays (V, V); `known` marks the pairs in the file."""

    values: Floats
    known: Mask
    as_of: Names
    samples: Ints


def read_matrix(
    directory: Traversable, name: str, column: str, index: Mapping[str, int], findings: Findings
) -> Matrix:
    """A file of src, dst and one value, with optional samples and as_of."""
    shape = (len(index), len(index))
    values = np.full(shape, np.nan)
    known = np.zeros(shape, dtype=bool)
    as_of = np.full(shape, "", dtype="<U10")
    samples = np.zeros(shape, dtype=np.int64)
    for row in read_rows(directory, name, ("src", "dst", column), findings):
        with findings.catching():
            for end in ("src", "dst"):
                if row[end] not in index:
                    raise row.bad(f"{end} {row[end]!r} is not a region of this grid")
            if row["src"] == row["dst"]:
                raise row.bad(f"src and dst are both {row['src']!r}")
            pair = index[row["src"]], index[row["dst"]]
            if known[pair]:
                raise row.bad(f"{row['src']} -> {row['dst']} is listed twice")
            values[pair] = row.quantity(column)
            as_of[pair] = row.day("as_of")
            if row.get("samples"):
                samples[pair] = row.whole("samples", low=1)
            known[pair] = True
    return Matrix(values, known, as_of, samples)


# ---------------------------------------------------------------- completion


def pair_caps(regions: Sequence[GridRegion], types: Sequence[InstanceType]) -> Floats:
    """The rate (V, V) that a pair of default instances can use."""
    egress: dict[str, float] = {}
    ingress: dict[str, float] = {}
    for kind in types:
        egress.setdefault(kind.cloud, kind.egress_gbps)
        ingress.setdefault(kind.cloud, kind.ingress_gbps)
    outward = np.array([egress.get(region.cloud, 0.0) for region in regions])
    inward = np.array([ingress.get(region.cloud, 0.0) for region in regions])
    caps: Floats = np.minimum(outward[:, None], inward[None, :])
    return caps


def prices_by_rule(
    document: Mapping[str, Any],
    regions: Sequence[GridRegion],
    wanted: Mask,
    month_of: Callable[[str], MonthlyVolume] = lambda _: NOTHING_SENT,
) -> Floats:
    """USD per GB of the wanted edges (V, V), nan elsewhere, by the volume of the cloud's month.

    Raises as `applied_rule`.
    """
    prices = np.full(wanted.shape, np.nan)
    known: dict[tuple[str, ...], float] = {}
    for row, column in np.argwhere(wanted).tolist():
        src, dst = regions[row], regions[column]
        key = price_key(document, src, dst)
        if key not in known:
            known[key] = applied_rule(document, src, dst, month_of(src.cloud)).usd_per_gb
        prices[row, column] = known[key]
    return prices
