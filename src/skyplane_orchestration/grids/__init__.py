"""What the planner knows about the world: rates, round trips, prices, limits, by region.

`load_grid` reads a grid directory (docs/reference/grids.md has the format), or the one that ships,
and completes what is missing; every value of a `Grid` knows where it comes from.
"""

from __future__ import annotations

from skyplane_orchestration.geography import GridRegion, pairwise_distance_km
from skyplane_orchestration.grids.loading import SHIPPED, load_grid
from skyplane_orchestration.grids.overrides import PriceOverride, read_overrides
from skyplane_orchestration.grids.values import (
    FROM_OVERRIDE,
    FROM_RULES,
    FROM_TABLE,
    Grid,
    InstanceType,
    StorageLimit,
    VcpuQuota,
)

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
    "pairwise_distance_km",
    "read_overrides",
]
