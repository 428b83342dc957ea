"""The share of a grid's rate that holds with a confidence.

A modelled rate is an estimate. The model states, by pair of clouds, how measured rates of regions
that were not part of its fit divide by the modelled ones. The rates of a grid directory are taken
as they are, and those of a probe with their noise.
"""

from __future__ import annotations

from bisect import bisect_left
from statistics import NormalDist
from typing import TYPE_CHECKING

from skyplane_orchestration.grids.grid import Grid

if TYPE_CHECKING:
    from skyplane_orchestration.grids.arrays import Floats


def promised_share(grid: Grid, pair: str, confidence: float) -> float:
    """The share of a modelled rate that at least `confidence` of edges reach, at most 1.

    Between the levels that the model states it is linear. It is 1 for a model without errors.

    Args:
        pair: the clouds of the edge, `aws>gcp`.
    """
    shares = grid.model_errors.get(pair)
    if shares is None:
        return 1.0
    levels, missed = grid.model_errors["levels"], 1 - confidence
    place = bisect_left(levels, missed)
    if place == 0 or place == len(levels):
        return float(min(1.0, shares[min(place, len(levels) - 1)]))
    low, high = levels[place - 1], levels[place]
    part = (missed - low) / (high - low)
    return float(min(1.0, shares[place - 1] + part * (shares[place] - shares[place - 1])))


def promised_shares(grid: Grid, confidence: float) -> Floats:
    """The share of every ordered pair of regions, modelled or measured, shape (V, V).

    The noise of measured rates is normal, with the grid's standard deviation.
    """
    import numpy as np

    clouds = [region.cloud for region in grid.regions]
    names, number = np.unique(clouds, return_inverse=True)
    by_pair = np.array(
        [[promised_share(grid, f"{src}>{dst}", confidence) for dst in names] for src in names]
    )
    measured = max(0.0, 1 + NormalDist().inv_cdf(1 - confidence) * grid.measured_noise)
    shares: Floats = np.where(grid.measured, measured, by_pair[np.ix_(number, number)])
    return shares
