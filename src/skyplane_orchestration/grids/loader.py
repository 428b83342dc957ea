"""Loads a grid directory and completes it; docs/reference/grids.md states the format.

Any file may be missing. Prices then come from the rules, rates and round trips from the model, the
rest from the shipped grid, and every value records its provenance. A bad row is refused with file
and row.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import lru_cache
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.arrays import Floats, Mask, Names
from skyplane_orchestration.grids.geography import GridRegion
from skyplane_orchestration.grids.grid import (
    FROM_OVERRIDE,
    FROM_RULES,
    FROM_TABLE,
    Grid,
    InstanceType,
    ValueDates,
)
from skyplane_orchestration.grids.price_overrides import (
    OVERRIDE_FILES,
    PriceOverride,
    overrides_of,
    read_overrides,
    require_edges,
)
from skyplane_orchestration.grids.price_rules import prices_by_rule
from skyplane_orchestration.grids.rows import Findings, read_text
from skyplane_orchestration.grids.tables import (
    Matrix,
    read_matrix,
    read_quotas,
    read_regions,
    read_storage,
    read_types,
    shipped_files,
)
from skyplane_orchestration.grids.throughput_model import (
    modelled_rtt_ms,
    modelled_throughput_gbps,
    require_model,
)

SHIPPED = "shipped"
MODEL_FILE = "throughput_model.json"
PRICE_FILE = "price_rules.yaml"

#: The C loader is ten times as fast, but not every installation has it.
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Overrides = str | Path | Sequence[PriceOverride]


def load_grid(
    name_or_dir: str | Path = SHIPPED, *, price_overrides: Overrides | None = None
) -> Grid:
    """The grid of that name or directory, complete and validated.

    Args:
        price_overrides: a file of agreed prices, or the result of `read_overrides`; they take
            precedence over those of the grid.

    Raises GridInvalid for an unknown name, a missing directory, a bad row, or an override that
    matches no edge.
    """
    if str(name_or_dir) == SHIPPED:
        grid = _shipped_grid()
    else:
        directory = Path(name_or_dir)
        if not directory.is_dir():
            raise GridInvalid(
                f"no grid {str(name_or_dir)!r}: give {SHIPPED!r} or the path of a grid directory"
            )
        grid = read_grid(directory, Findings())
    if price_overrides is None:
        return grid
    if isinstance(price_overrides, str | Path):
        price_overrides = read_overrides(price_overrides)
    return with_overrides(grid, price_overrides)


@lru_cache(maxsize=1)
def _shipped_grid() -> Grid:
    return read_grid(shipped_files(), Findings())


def with_overrides(grid: Grid, overrides: Sequence[PriceOverride]) -> Grid:
    """The same grid with agreed prices on top. Raises GridInvalid."""
    require_edges(overrides, grid.tags)
    price, source = grid.usd_per_gb.copy(), grid.price_source.copy()
    # In reverse order, so that the first entry of the file wins.
    for one in reversed(overrides):
        src_glob, dst_glob = one.ends
        chosen = _matching(grid.tags, src_glob)[:, None] & _matching(grid.tags, dst_glob)[None, :]
        np.fill_diagonal(chosen, False)
        price[chosen] = one.usd_per_gb
        source[chosen] = FROM_OVERRIDE
    for array in (price, source):
        array.setflags(write=False)
    return replace(
        grid,
        usd_per_gb=price,
        price_source=source,
        overrides=(*overrides, *grid.overrides),
    )


def _matching(tags: Sequence[str], glob: str) -> Mask:
    return np.array([fnmatchcase(tag, glob) for tag in tags], dtype=bool)


def read_grid(directory: Traversable, findings: Findings) -> Grid:
    """The grid in a directory; bad rows go to `findings`, other faults are raised.

    Raises GridInvalid.
    """
    about = read_json(directory, "grid.json") or {}
    base = about.get("base")
    if base not in (None, SHIPPED):
        raise GridInvalid(f"grid.json: base is {base!r}; it can be {SHIPPED!r} or left out")
    regions = read_regions(directory, findings, is_on_shipped=base == SHIPPED)
    index = {region.tag: number for number, region in enumerate(regions)}
    types = read_types(directory, findings)
    rtt = read_matrix(directory, "latency.csv", "rtt_ms", index, findings)
    rate = read_matrix(directory, "throughput.csv", "gbps", index, findings)
    listed = read_matrix(directory, "price.csv", "usd_per_gb", index, findings)
    model = read_json(directory, MODEL_FILE) or read_json(shipped_files(), MODEL_FILE) or {}
    require_model(model)
    rtt_ms = np.where(rtt.known, rtt.values, modelled_rtt_ms(model, regions))
    document = _read_price_rules(directory)
    price, source = _complete_prices(listed, regions, document)
    grid = Grid(
        name=str(about.get("name", directory.name)),
        as_of=str(about.get("as_of", "unknown")),
        source=str(about.get("source", "")),
        licence=str(about.get("licence", "")),
        notes=_as_notes(about.get("notes", ())),
        regions=regions,
        throughput_gbps=_complete_rates(rate, regions, types, model, rtt_ms),
        measured=rate.known,
        rtt_ms=rtt_ms,
        rtt_measured=rtt.known,
        usd_per_gb=price,
        price_source=source,
        types=types,
        price_document=document,
        index=index,
        dates=ValueDates(rate.as_of, rtt.as_of, listed.as_of, rate.samples),
        model_as_of=str(model.get("as_of", "")),
        storage=read_storage(directory, findings),
        quotas=read_quotas(directory, findings),
        input=about.get("input") or {},
    )
    tables = (rate.known, rtt.known, rate.as_of, rtt.as_of, listed.as_of, rate.samples)
    for array in (grid.throughput_gbps, grid.rtt_ms, price, source, *tables):
        array.setflags(write=False)
    agreed: tuple[PriceOverride, ...] = ()
    with findings.catching():
        agreed = _own_overrides(directory, document, grid.tags)
    return with_overrides(grid, agreed)


def _own_overrides(
    directory: Traversable, document: Mapping[str, Any], tags: Sequence[str]
) -> tuple[PriceOverride, ...]:
    """The agreed prices in the grid's own files. Raises GridInvalid."""
    found: list[PriceOverride] = []
    for name in OVERRIDE_FILES:
        if (directory / name).is_file():
            found.extend(read_overrides(directory / name))
    found.extend(overrides_of(document.get("overrides"), PRICE_FILE))
    require_edges(found, tags)
    return tuple(found)


# ---------------------------------------------------------------- completion


def _complete_rates(
    rate: Matrix,
    regions: Sequence[GridRegion],
    types: Sequence[InstanceType],
    model: Mapping[str, Any],
    rtt_ms: Floats,
) -> Floats:
    if rate.known[~np.eye(len(regions), dtype=bool)].all():
        return rate.values
    modelled = modelled_throughput_gbps(model, [region.cloud for region in regions], rtt_ms)
    completed: Floats = np.where(
        rate.known, rate.values, np.minimum(modelled, pair_caps(regions, types))
    )
    return completed


def pair_caps(regions: Sequence[GridRegion], types: Sequence[InstanceType]) -> Floats:
    """The limit of a pair of default instances, which bounds modelled rates."""
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
    listed: Matrix, regions: Sequence[GridRegion], document: Mapping[str, Any]
) -> tuple[Floats, Names]:
    """Prices by table, else by rule; raises GridInvalid if there is neither."""
    source = np.where(listed.known, FROM_TABLE, FROM_RULES).astype("<U8")
    missing = ~listed.known
    np.fill_diagonal(missing, False)
    price = np.where(listed.known, listed.values, prices_by_rule(document, regions, missing))
    np.fill_diagonal(price, 0.0)
    return price, source


# ---------------------------------------------------------------- documents


def read_json(directory: Traversable, name: str) -> Mapping[str, Any] | None:
    """A JSON object of the directory; None without that file. Raises GridInvalid."""
    file = directory / name
    if not file.is_file():
        return None
    try:
        loaded = json.loads(read_text(file, name))
    except (ValueError, RecursionError) as error:
        raise GridInvalid(f"{name} is not JSON: {error}") from error
    if not isinstance(loaded, dict):
        raise GridInvalid(f"{name} must hold one JSON object")
    return loaded


def _read_price_rules(directory: Traversable) -> Mapping[str, Any]:
    file = directory / PRICE_FILE
    if not file.is_file():
        file = shipped_files() / PRICE_FILE
    try:
        loaded = yaml.load(read_text(file, PRICE_FILE), Loader=_YAML)
    except yaml.YAMLError as error:
        raise GridInvalid(f"{PRICE_FILE} is not YAML: {error}") from error
    if not isinstance(loaded, dict) or not isinstance(loaded.get("clouds"), dict):
        raise GridInvalid(f"{PRICE_FILE} must be a mapping with `clouds`")
    return loaded


def _as_notes(notes: str | Sequence[object]) -> tuple[str, ...]:
    return (notes,) if isinstance(notes, str) else tuple(map(str, notes))
