"""Grids: throughput, round trips, prices and limits by region.

`load_grid` reads a grid directory (docs/reference/grids.md has the format) or the shipped grid, and
completes missing values. Every value of a `Grid` has its provenance.
"""

from __future__ import annotations

from skyplane_orchestration.grids.geography import GridRegion
from skyplane_orchestration.grids.grid import FROM_RULES, FROM_TABLE, Grid, InstanceType
from skyplane_orchestration.grids.loader import SHIPPED, load_grid

__all__ = ["FROM_RULES", "FROM_TABLE", "SHIPPED", "Grid", "GridRegion", "InstanceType", "load_grid"]
