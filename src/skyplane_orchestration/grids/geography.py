"""The regions of a grid and the distances between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from skyplane_orchestration.grids.arrays import Floats

EARTH_RADIUS_KM = 6371.0


@dataclass(frozen=True, slots=True)
class GridRegion:
    """One region of a grid. Latitude and longitude are degrees of the city."""

    tag: str
    city: str = ""
    country: str = ""
    latitude: float = float("nan")
    longitude: float = float("nan")
    price_class: str = ""
    price_verified: bool = True
    state: str = ""

    @property
    def cloud(self) -> str:
        return self.tag.partition(":")[0]

    @property
    def name(self) -> str:
        return self.tag.partition(":")[2]


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
