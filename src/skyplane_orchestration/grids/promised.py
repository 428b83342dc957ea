"""The share of a grid's rate that holds with a confidence.

A modelled rate is an estimate. The model states, by pair of clouds, how measured rates of regions
that were not part of its fit divide by the modelled ones. The rates of a grid directory are taken
as they are, and those of a probe with their noise.
"""

from __future__ import annotations

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
    import numpy as np

    shares = grid.model_errors.get(pair)
    if shares is None:
        return 1.0
    return min(1.0, float(np.interp(1 - confidence, grid.model_errors["levels"], shares)))


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
