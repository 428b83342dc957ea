"""Grids: throughput, round trips, prices and limits by region.

`load_grid` reads a grid directory (docs/reference/grids.md has the format) or the shipped grid, and
completes missing values. Every value of a `Grid` has its provenance.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from skyplane_orchestration.grids.geography import GridRegion
    from skyplane_orchestration.grids.grid import FROM_RULES, FROM_TABLE, Grid, InstanceType
    from skyplane_orchestration.grids.loader import SHIPPED, load_grid

__all__ = ["FROM_RULES", "FROM_TABLE", "SHIPPED", "Grid", "GridRegion", "InstanceType", "load_grid"]

_HOMES: Final = {"GridRegion": "geography", "SHIPPED": "loader", "load_grid": "loader"}


def __getattr__(name: str) -> Any:
    """A run with nothing to do reads names of regions, and no grid."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'grid')}"), name)
