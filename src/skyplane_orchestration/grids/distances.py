"""The distances between the regions of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from skyplane_orchestration.grids.arrays import Floats
from skyplane_orchestration.grids.geography import GridRegion

EARTH_RADIUS_KM: Final = 6371.0


def pairwise_distance_km(regions: Sequence[GridRegion]) -> Floats:
    """Great-circle distance between all regions, shape (V, V), by the haversine formula."""
    latitude = np.radians([region.latitude for region in regions])
    longitude = np.radians([region.longitude for region in regions])
    half_chord = (
        np.sin((latitude[:, None] - latitude[None, :]) / 2) ** 2
        + np.cos(latitude[:, None])
        * np.cos(latitude[None, :])
        * np.sin((longitude[:, None] - longitude[None, :]) / 2) ** 2
    )
    distance: Floats = 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.clip(half_chord, 0.0, 1.0)))
    return distance
