"""Grids: throughput, round trips, prices and limits by region.

`load_grid` reads a grid directory (docs/reference/grids.md has the format) or the shipped grid, and
completes missing values. Every value of a `Grid` has its provenance.
"""

from __future__ import annotations

from skyplane_orchestration.grids.geography import GridRegion
from skyplane_orchestration.grids.grid import (
    FROM_OVERRIDE,
    FROM_RULES,
    FROM_TABLE,
    Grid,
    InstanceType,
    StorageLimit,
    VcpuQuota,
)
from skyplane_orchestration.grids.loader import SHIPPED, load_grid
from skyplane_orchestration.grids.price_overrides import PriceOverride, read_overrides

__all__ = [
    "FROM_OVERRIDE",
    "FROM_RULES",
    "FROM_TABLE",
    "SHIPPED",
    "Grid",
    "GridRegion",
    "InstanceType",
    "PriceOverride",
    "StorageLimit",
    "VcpuQuota",
    "load_grid",
    "read_overrides",
]
