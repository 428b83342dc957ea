"""Validates a grid directory: all bad rows, and suspicious values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.grids.distances import pairwise_distance_km
from skyplane_orchestration.grids.grid import FROM_OVERRIDE, Grid
from skyplane_orchestration.grids.loader import read_grid
from skyplane_orchestration.grids.rows import BadRow, Findings

#: Light in glass: 299 792 km/s through a refractive index of 1.468, in km per ms.
LIGHT_IN_FIBRE_KM_PER_MS = 204.2

#: Data centres of a region may be this far from the city whose coordinates it has.
CITY_RADIUS_KM = 100.0

#: Pairs that one warning names.
NAMED_PAIRS = 3


@dataclass(frozen=True, slots=True)
class GridFinding:
    """One error or warning; file and row are "" and 0 if it concerns the whole grid."""

    message: str
    file: str = ""
    row: int = 0


@dataclass(frozen=True, slots=True)
class Audit:
    """The findings. `grid` is None when there are errors."""

    errors: tuple[GridFinding, ...]
    warnings: tuple[GridFinding, ...]
    grid: Grid | None

    @property
    def is_valid(self) -> bool:
        return not self.errors


def audit_grid(directory: Path) -> Audit:
    """All errors of a directory; if there are none, its warnings.

    Raises GridInvalid when there is no such directory.
    """
    if not directory.is_dir():
        raise GridInvalid(f"no grid {str(directory)!r}: give the path of a grid directory")
    findings = Findings(is_strict=False)
    grid: Grid | None = None
    with findings.catching():
        grid = read_grid(directory, findings)
    # Two readers of one file find the same error; it is reported once.
    errors = tuple(dict.fromkeys(map(_finding, findings.errors)))
    if errors or grid is None:
        return Audit(errors, (), None)
    return Audit((), tuple(map(GridFinding, warnings_about(grid))), grid)


def _finding(error: GridInvalid) -> GridFinding:
    if isinstance(error, BadRow):
        return GridFinding(error.message, error.file, error.row)
    return GridFinding(error.message)


def warnings_about(grid: Grid) -> Iterator[str]:
    """Valid but suspicious values of a loaded grid."""
    off = ~np.eye(len(grid.tags), dtype=bool)
    yield from _lost_regions(grid)
    missing = off & ~grid.measured
    if grid.measured.any():
        yield from _pairs(grid, missing, "not measured, the rate is modelled")
    caps = _most_gbps(grid)
    over = grid.measured & (grid.throughput_gbps > caps + 1e-9)
    yield from _pairs(grid, over, "the rate is above what any instance type of the ends can do")
    dead = off & (grid.throughput_gbps == 0)
    yield from _pairs(grid, dead, "the rate is 0, no edge goes there")
    far_km = np.maximum(pairwise_distance_km(grid.regions) - 2 * CITY_RADIUS_KM, 0.0)
    fast = grid.rtt_measured & (grid.rtt_ms < 2 * far_km / LIGHT_IN_FIBRE_KM_PER_MS)
    yield from _pairs(grid, fast, "the round trip is faster than light in fibre")
    clouds = np.array([region.cloud for region in grid.regions])
    free = (grid.usd_per_gb == 0) & (clouds[:, None] != clouds[None, :])
    free &= (clouds != "local")[:, None] & (grid.price_source != FROM_OVERRIDE)
    yield from _pairs(grid, free, "the price is 0 although the cloud is left")


def _lost_regions(grid: Grid) -> Iterator[str]:
    typed = {kind.cloud for kind in grid.types}
    for region in grid.regions:
        if np.isnan(region.latitude) or np.isnan(region.longitude):
            yield f"{region.tag} has no coordinates: no rate and no round trip is modelled for it"
        if region.cloud not in typed:
            yield f"{region.tag}: limits.csv has no instance type for {region.cloud}"
        if not region.price_verified:
            yield f"{region.tag}: its price class {region.price_class} is a guess"
    for row in grid.storage:
        if not any(row.matches(tag) for tag in grid.tags):
            yield f"storage.csv: {row.region_glob!r} matches no region of the grid"
    for quota in grid.quotas:
        if not any(quota.matches(tag) for tag in grid.tags):
            yield f"quotas.csv: {quota.region_glob!r} matches no region of the grid"


def _most_gbps(grid: Grid) -> Floats:
    """The largest rate between the best instance types of the two clouds."""
    out = {kind.cloud: 0.0 for kind in grid.types}
    into = dict(out)
    for kind in grid.types:
        out[kind.cloud] = max(out[kind.cloud], kind.egress_gbps)
        into[kind.cloud] = max(into[kind.cloud], kind.ingress_gbps)
    outward = np.array([out.get(region.cloud, np.inf) for region in grid.regions])
    inward = np.array([into.get(region.cloud, np.inf) for region in grid.regions])
    most: Floats = np.minimum(outward[:, None], inward[None, :])
    return most


def _pairs(grid: Grid, chosen: Mask, text: str) -> Iterator[str]:
    found = np.argwhere(chosen)
    if len(found):
        named = [f"{grid.tags[i]} -> {grid.tags[j]}" for i, j in found[:NAMED_PAIRS]]
        rest = ", ..." if len(found) > NAMED_PAIRS else ""
        size = len(grid.tags)
        yield f"{len(found)} of {size * (size - 1)} pairs: {text} ({', '.join(named)}{rest})"
