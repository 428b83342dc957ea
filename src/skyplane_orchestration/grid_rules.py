"""What completes a grid: regions and their distances, rates and round trips from a model.

Pure functions on plain data; `grids.loading` reads the files and calls them. Prices by
rule stand in `grids.prices`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

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


# ---------------------------------------------------------------- rates


def pairwise_distance_km(regions: Sequence[GridRegion]) -> Floats:
    """Great-circle distance between all regions, shape (V, V), haversine formula."""
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


def modelled_rtt_ms(model: Mapping[str, Any], distance_km: Floats) -> Floats:
    """Round trip from distance: a line."""
    line = model["rtt"]
    rtt: Floats = line["base_ms"] + line["ms_per_km"] * distance_km
    return rtt


def modelled_throughput_gbps(
    model: Mapping[str, Any], clouds: Sequence[str], rtt_ms: Floats
) -> Floats:
    """Rate of one instance pair over 64 connections, shape (V, V).

    One saturating curve per ordered pair of clouds; 0 (no edge) where the model has no
    curve, where the round trip is unknown, and on the diagonal.
    """
    rate = np.zeros_like(rtt_ms)
    names = np.array(clouds)
    for pair, curve in model["curves"].items():
        src, _, dst = pair.partition(">")
        chosen = (names[:, None] == src) & (names[None, :] == dst)
        relative = rtt_ms[chosen] / curve["half_rtt_ms"]
        rate[chosen] = curve["cap_gbps"] / (1.0 + relative ** curve["steepness"])
    np.fill_diagonal(rate, 0.0)
    return np.nan_to_num(rate, nan=0.0)
