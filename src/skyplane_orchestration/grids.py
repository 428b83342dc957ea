"""Loads, validates and completes a grid: what the planner knows about the world.

A grid is a directory (`load_grid(path)`) or the one that ships (`load_grid("shipped")`):

    grid.json        name, as_of, source, licence, notes
    regions.csv      region,city,country,latitude,longitude[,price_class,price_verified,state]
    throughput.csv   src,dst,gbps          rate of one instance pair over 64 connections
    latency.csv      src,dst,rtt_ms
    price.csv        src,dst,usd_per_gb    taken at face value
    limits.csv       cloud,instance_type,vcpus,egress_gbps,ingress_gbps,connection_limit,
                     usd_per_hour,instance_limit      (first type of a cloud = its default)
    price_rules.yaml, throughput_model.json           as shipped, in place of the shipped

Any file may be missing: prices come from the rules, rates from the model, the rest from
the shipped grid, and every edge remembers which. A bad row is refused with file and row.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray

from skyplane_orchestration.errors import GridInvalid, InvalidLocation, UnknownRegion
from skyplane_orchestration.grid_rules import (
    FROM_RULES,
    EdgePrice,
    Floats,
    GridRegion,
    edge_price,
    modelled_rtt_ms,
    modelled_throughput_gbps,
    pairwise_distance_km,
)
from skyplane_orchestration.region import KNOWN_CLOUDS, nearest_names, parse_region_tag

__all__ = [
    "SHIPPED",
    "Grid",
    "GridRegion",
    "InstanceType",
    "load_grid",
    "pairwise_distance_km",
]

SHIPPED = "shipped"
FROM_TABLE = "table"

Mask = NDArray[np.bool_]
Row = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One row of limits.csv. Rates are per instance, across the region's border."""

    cloud: str
    name: str
    vcpus: int
    egress_gbps: float
    ingress_gbps: float
    connection_limit: int
    usd_per_hour: float
    instance_limit: int


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """An immutable grid over V regions; arrays are (V, V), row = from, column = to.

    Attributes:
        throughput_gbps: rate of one instance pair over 64 connections; 0 = no such edge.
        measured: True where the rate was measured, False where a model supplied it.
        rtt_ms, rtt_measured: the same for round trips (nan where nothing is known).
        usd_per_gb: egress price per 1e9 bytes.
        price_source: `table`, `rules` or `override` per edge.
        types: instance types, a cloud's first one is its default.
        price_document: the rules behind modelled prices, with the prices of requests.
    """

    name: str
    as_of: str
    source: str
    licence: str
    notes: tuple[str, ...]
    regions: tuple[GridRegion, ...]
    throughput_gbps: Floats
    measured: Mask
    rtt_ms: Floats
    rtt_measured: Mask
    usd_per_gb: Floats
    price_source: NDArray[np.str_]
    types: tuple[InstanceType, ...]
    price_document: Mapping[str, Any]
    index: Mapping[str, int]

    @property
    def tags(self) -> tuple[str, ...]:
        return tuple(region.tag for region in self.regions)

    def index_of(self, tag: str) -> int:
        """Row and column of a region. Raises UnknownRegion, offering the nearest names."""
        found = self.index.get(tag)
        if found is None:
            near = nearest_names(tag, self.index)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise UnknownRegion(f"grid {self.name!r} has no region {tag!r}{hint}")
        return found

    def instance_type(self, cloud: str, name: str | None = None) -> InstanceType:
        """A cloud's default type, or the one of that name. Raises GridInvalid if unknown."""
        of_cloud = [kind for kind in self.types if kind.cloud == cloud]
        for kind in of_cloud:
            if name is None or kind.name == name:
                return kind
        offered = ", ".join(kind.name for kind in of_cloud) or "none"
        raise GridInvalid(
            f"limits.csv of grid {self.name!r} has no instance type {name or 'at all'!r}"
            f" for {cloud}; it has: {offered}"
        )

    def request_prices(self, cloud: str) -> Mapping[str, float]:
        """USD per 1000 requests by verb (`read`, `write`, `list`); empty where unknown."""
        prices: Mapping[str, float] = (self.price_document.get("requests") or {}).get(cloud, {})
        return prices

    def egress_price(self, src_tag: str, dst_tag: str) -> float:
        """USD per GB from a region to any place; a place off the grid is the internet."""
        if src_tag in self.index and dst_tag in self.index:
            return float(self.usd_per_gb[self.index[src_tag], self.index[dst_tag]])
        src = self._region(src_tag)
        return edge_price(self.price_document, src, self._region(dst_tag)).usd_per_gb

    def _region(self, tag: str) -> GridRegion:
        return self.regions[self.index[tag]] if tag in self.index else GridRegion(tag)


def load_grid(name_or_dir: str | Path = SHIPPED) -> Grid:
    """The grid of that name or directory, complete and checked.

    Raises GridInvalid for an unknown name, a missing directory or a bad row.
    """
    if str(name_or_dir) == SHIPPED:
        return _shipped_grid()
    directory = Path(name_or_dir)
    if not directory.is_dir():
        raise GridInvalid(
            f"no grid {str(name_or_dir)!r}: give {SHIPPED!r} or the path of a grid directory"
        )
    return _load(directory)


@lru_cache(maxsize=1)
def _shipped_grid() -> Grid:
    return _load(files("skyplane_grids"))


def _load(directory: Traversable) -> Grid:
    about = _read_json(directory, "grid.json") or {}
    regions = _read_regions(directory)
    index = {region.tag: number for number, region in enumerate(regions)}
    types = _read_types(directory)
    rtt_ms, rtt_measured = _read_matrix(directory, "latency.csv", "rtt_ms", index)
    gbps, measured = _read_matrix(directory, "throughput.csv", "gbps", index)
    model = _read_json(directory, "throughput_model.json") or _shipped_json("throughput_model.json")
    rtt_ms = np.where(rtt_measured, rtt_ms, modelled_rtt_ms(model, pairwise_distance_km(regions)))
    if not _off_diagonal(measured).all():
        modelled = modelled_throughput_gbps(model, [region.cloud for region in regions], rtt_ms)
        gbps = np.where(measured, gbps, np.minimum(modelled, _pair_caps(regions, types)))
    document = _read_price_rules(directory)
    price, source = _complete_prices(directory, regions, index, document)
    for array in (rtt_ms, gbps, measured, rtt_measured, price, source):
        array.setflags(write=False)
    return Grid(
        name=str(about.get("name", directory.name)),
        as_of=str(about.get("as_of", "unknown")),
        source=str(about.get("source", "")),
        licence=str(about.get("licence", "")),
        notes=_as_notes(about.get("notes", ())),
        regions=regions,
        throughput_gbps=gbps,
        measured=measured,
        rtt_ms=rtt_ms,
        rtt_measured=rtt_measured,
        usd_per_gb=price,
        price_source=source,
        types=types,
        price_document=document,
        index=index,
    )


# ---------------------------------------------------------------- completion


def _off_diagonal(mask: Mask) -> Mask:
    off: Mask = mask[~np.eye(len(mask), dtype=bool)]
    return off


def _pair_caps(regions: Sequence[GridRegion], types: Sequence[InstanceType]) -> Floats:
    """What a pair of default instances can do at most, so that a modelled rate is honest."""
    egress: dict[str, float] = {}
    ingress: dict[str, float] = {}
    for kind in types:
        egress.setdefault(kind.cloud, kind.egress_gbps)
        ingress.setdefault(kind.cloud, kind.ingress_gbps)
    outward = np.array([egress.get(region.cloud, 0.0) for region in regions])
    inward = np.array([ingress.get(region.cloud, 0.0) for region in regions])
    caps: Floats = np.minimum(outward[:, None], inward[None, :])
    return caps


def _complete_prices(
    directory: Traversable,
    regions: Sequence[GridRegion],
    index: Mapping[str, int],
    document: Mapping[str, Any],
) -> tuple[Floats, NDArray[np.str_]]:
    price, known = _read_matrix(directory, "price.csv", "usd_per_gb", index)
    source = np.where(known, FROM_TABLE, FROM_RULES).astype("<U8")
    np.fill_diagonal(price, 0.0)
    np.fill_diagonal(known, True)
    for row, column in np.argwhere(~known):
        found: EdgePrice = edge_price(document, regions[row], regions[column])
        price[row, column] = found.usd_per_gb
        source[row, column] = found.source
    return price, source


# ---------------------------------------------------------------- files


def _shipped_json(name: str) -> Mapping[str, Any]:
    return _read_json(files("skyplane_grids"), name) or {}


def _read_json(directory: Traversable, name: str) -> Mapping[str, Any] | None:
    file = directory / name
    if not file.is_file():
        return None
    try:
        loaded = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise GridInvalid(f"{name} is not JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise GridInvalid(f"{name} must hold one JSON object")
    return loaded


def _read_price_rules(directory: Traversable) -> Mapping[str, Any]:
    file = directory / "price_rules.yaml"
    if not file.is_file():
        file = files("skyplane_grids") / "price_rules.yaml"
    try:
        loaded = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise GridInvalid(f"price_rules.yaml is not YAML: {error}") from error
    if not isinstance(loaded, dict) or not isinstance(loaded.get("clouds"), dict):
        raise GridInvalid("price_rules.yaml must be a mapping with `clouds`")
    return loaded


def _as_notes(notes: str | Sequence[object]) -> tuple[str, ...]:
    return (notes,) if isinstance(notes, str) else tuple(map(str, notes))


def _rows(directory: Traversable, name: str, columns: Sequence[str]) -> Iterator[tuple[str, Row]]:
    """Rows of a CSV file with the place to blame; nothing when the file is missing."""
    file = directory / name
    if not file.is_file():
        return
    with file.open(encoding="utf-8") as stream:
        reader = csv.DictReader(stream)
        missing = set(columns) - set(reader.fieldnames or ())
        if missing:
            raise GridInvalid(f"{name} row 1: the header lacks {', '.join(sorted(missing))}")
        for row in reader:
            place = f"{name} row {reader.line_num}"
            if None in row or any(row[column] is None for column in columns):
                raise GridInvalid(f"{place}: the number of fields differs from the header")
            yield place, row


def _number(place: str, row: Row, column: str, *, low: float = 0.0) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= low):
        raise GridInvalid(f"{place}: {column} is {row[column]!r}, not a number from {low:g} up")
    return value


def _checked_tag(place: str, text: str) -> str:
    try:
        return parse_region_tag(text).tag
    except InvalidLocation as error:
        raise GridInvalid(f"{place}: {error}") from error


def _read_matrix(
    directory: Traversable, name: str, column: str, index: Mapping[str, int]
) -> tuple[Floats, Mask]:
    """Values by ordered pair and a mask of the pairs that the file gives."""
    values = np.full((len(index), len(index)), np.nan)
    known = np.zeros_like(values, dtype=bool)
    for place, row in _rows(directory, name, ("src", "dst", column)):
        pair = tuple(index.get(row[end], -1) for end in ("src", "dst"))
        if -1 in pair:
            end = ("src", "dst")[pair.index(-1)]
            raise GridInvalid(f"{place}: {end} {row[end]!r} is not a region of this grid")
        if pair[0] == pair[1]:
            raise GridInvalid(f"{place}: src and dst are both {row['src']!r}")
        if known[pair]:
            raise GridInvalid(f"{place}: {row['src']} -> {row['dst']} stands there twice")
        values[pair] = _number(place, row, column)
        known[pair] = True
    return values, known


def _read_regions(directory: Traversable) -> tuple[GridRegion, ...]:
    """regions.csv, or the regions that throughput.csv names; gaps filled from the shipped."""
    shipped = files("skyplane_grids")
    known = {
        row["region"]: row for _, row in _rows(shipped, "regions.csv", ("region", "price_class"))
    }
    found: dict[str, GridRegion] = {}
    for place, row in _rows(directory, "regions.csv", ("region",)):
        tag = _checked_tag(place, row["region"])
        if tag in found:
            raise GridInvalid(f"{place}: {tag} stands there twice")
        found[tag] = _region(place, tag, {**known.get(tag, {}), **row})
    if not found:
        for place, row in _rows(directory, "throughput.csv", ("src", "dst")):
            for tag in (row["src"], row["dst"]):
                found.setdefault(tag, _region(place, _checked_tag(place, tag), known.get(tag, {})))
    if not found:
        raise GridInvalid("the grid has no region: give it a regions.csv or a throughput.csv")
    return tuple(found.values())


def _region(place: str, tag: str, row: Row) -> GridRegion:
    return GridRegion(
        tag=tag,
        city=row.get("city") or "",
        country=row.get("country") or "",
        latitude=_degrees(place, row, "latitude", 90.0),
        longitude=_degrees(place, row, "longitude", 180.0),
        price_class=row.get("price_class") or "",
        price_verified=(row.get("price_verified") or "yes") == "yes",
        state=row.get("state") or "",
    )


def _degrees(place: str, row: Row, column: str, limit: float) -> float:
    """A coordinate; nan when the grid does not say where the region is."""
    if not row.get(column):
        return math.nan
    degrees = _number(place, row, column, low=-limit)
    if degrees > limit:
        raise GridInvalid(f"{place}: {column} is {degrees:g}, above {limit:g} degrees")
    return degrees


_TYPE_COLUMNS = (
    "cloud",
    "instance_type",
    "vcpus",
    "egress_gbps",
    "ingress_gbps",
    "connection_limit",
    "usd_per_hour",
    "instance_limit",
)


def _read_types(directory: Traversable) -> tuple[InstanceType, ...]:
    """limits.csv; a cloud that it does not name keeps the shipped types."""
    own = [
        _instance_type(place, row) for place, row in _rows(directory, "limits.csv", _TYPE_COLUMNS)
    ]
    named = {kind.cloud for kind in own}
    shipped = [
        _instance_type(place, row)
        for place, row in _rows(files("skyplane_grids"), "limits.csv", _TYPE_COLUMNS)
    ]
    return (*own, *(kind for kind in shipped if kind.cloud not in named))


def _instance_type(place: str, row: Row) -> InstanceType:
    if row["cloud"] not in KNOWN_CLOUDS:
        raise GridInvalid(
            f"{place}: unknown cloud {row['cloud']!r}; use one of {', '.join(KNOWN_CLOUDS)}"
        )
    return InstanceType(
        cloud=row["cloud"],
        name=row["instance_type"],
        vcpus=int(_number(place, row, "vcpus")),
        egress_gbps=_number(place, row, "egress_gbps"),
        ingress_gbps=_number(place, row, "ingress_gbps"),
        connection_limit=int(_number(place, row, "connection_limit", low=1)),
        usd_per_hour=_number(place, row, "usd_per_hour"),
        instance_limit=int(_number(place, row, "instance_limit")),
    )
