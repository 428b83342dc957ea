"""Loads a grid directory and completes it; docs/reference/grids.md states the format.

Any file may be missing. Prices then come from the rules, rates and round trips from the model, the
rest from the shipped grid, and every value records its provenance. A bad row is refused with file
and row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

import yaml

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.grid import EdgeValues, Grid
from skyplane_orchestration.grids.price_overrides import (
    OVERRIDE_FILES,
    PriceOverride,
    overrides_of,
    read_overrides,
    require_edges,
)
from skyplane_orchestration.grids.rows import Findings, parsed_text, read_text
from skyplane_orchestration.grids.tables import (
    read_json,
    read_price_ratios,
    read_quotas,
    read_regions,
    read_storage,
    read_types,
    shipped_files,
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


@cache
def _shipped_grid() -> Grid:
    return _read_grid(shipped_files(), Findings())


def with_overrides(grid: Grid, overrides: Sequence[PriceOverride]) -> Grid:
    """The same grid with agreed prices on top. Raises GridInvalid."""
    if not overrides:
        return grid
    require_edges(overrides, grid.tags)

    def edges() -> EdgeValues:
        from skyplane_orchestration.grids.edge_values import with_agreed_prices

        return with_agreed_prices(grid.edges(), grid.tags, overrides)

    return replace(grid, edges=cache(edges), overrides=(*overrides, *grid.overrides))


def read_grid(directory: Traversable, findings: Findings) -> Grid:
    """The grid in a directory; bad rows go to `findings`, other faults are raised.

    Raises GridInvalid.
    """
    grid = _read_grid(directory, findings)
    grid.edges()
    return grid


def _read_grid(directory: Traversable, findings: Findings) -> Grid:
    """The grid in a directory, whose values by pair are still to be read."""
    about = read_json(directory, "grid.json") or {}
    base = about.get("base")
    if base not in (None, SHIPPED):
        raise GridInvalid(f"grid.json: base is {base!r}; it can be {SHIPPED!r} or left out")
    regions = read_regions(directory, findings, is_on_shipped=base == SHIPPED)
    types = read_types(directory, findings)
    model = read_json(directory, MODEL_FILE) or read_json(shipped_files(), MODEL_FILE) or {}
    document = _read_price_rules(directory)
    notes = about.get("notes", ())

    def edges() -> EdgeValues:
        from skyplane_orchestration.grids.edge_values import read_edges

        return read_edges(directory, regions, model, document, findings)

    grid = Grid(
        name=str(about.get("name", directory.name)),
        as_of=str(about.get("as_of", "unknown")),
        source=str(about.get("source", "")),
        licence=str(about.get("licence", "")),
        notes=(notes,) if isinstance(notes, str) else tuple(map(str, notes)),
        regions=regions,
        types=types,
        price_document=document,
        has_own_prices=(directory / "price.csv").is_file(),
        index={region.tag: number for number, region in enumerate(regions)},
        edges=cache(edges),
        model=model,
        storage=read_storage(directory, findings),
        quotas=read_quotas(directory, findings),
        price_ratios=read_price_ratios(directory, types, findings),
        input=about.get("input") or {},
    )
    agreed: tuple[PriceOverride, ...] = ()
    with findings.catching():
        # The agreed prices in the grid's own files.
        found: list[PriceOverride] = []
        for name in OVERRIDE_FILES:
            if (directory / name).is_file():
                found.extend(read_overrides(directory / name))
        found.extend(overrides_of(document.get("overrides"), PRICE_FILE))
        require_edges(found, grid.tags)
        agreed = tuple(found)
    return with_overrides(grid, agreed)


# ---------------------------------------------------------------- documents


def _read_price_rules(directory: Traversable) -> Mapping[str, Any]:
    file = directory / PRICE_FILE
    if not file.is_file():
        file = shipped_files() / PRICE_FILE
    load = partial(yaml.load, Loader=_YAML)
    loaded = parsed_text(read_text(file, PRICE_FILE), PRICE_FILE, load)
    if not isinstance(loaded, dict) or not isinstance(loaded.get("clouds"), dict):
        raise GridInvalid(f"{PRICE_FILE} must be a mapping with `clouds`")
    return loaded
