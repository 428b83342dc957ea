"""The share of a grid's rate that holds with a confidence.

A modelled rate is an estimate. The model states, by pair of clouds and round trip, how measured
rates of regions that were not part of its fit divide by the modelled ones: near edges err by a few
per cent, far ones out of Azure by half. The rates of a grid directory are taken as they are, and
those of a probe with their noise.
"""

from __future__ import annotations

from statistics import NormalDist
from typing import TYPE_CHECKING

from skyplane_orchestration.grids.grid import Grid

if TYPE_CHECKING:
    from skyplane_orchestration.grids.arrays import Floats


def promised_shares(grid: Grid, confidence: float) -> Floats:
    """The share of each rate that at least `confidence` of such edges reach, shape (V, V).

    It is linear between the levels and the round trips that the model states, at most 1, and 1 for
    a pair of clouds without errors. The noise of measured rates is normal, with the grid's standard
    deviation.
    """
    import numpy as np

    shares = np.ones_like(grid.rtt_ms)
    rtt_ms = np.nan_to_num(grid.rtt_ms, nan=np.inf)  # What is nowhere counts as far.
    clouds = np.array([region.cloud for region in grid.regions])
    errors = grid.model.get("measured_over_modelled", {})
    for pair, quantiles in errors.get("quantiles", {}).items():
        src, _, dst = pair.partition(">")
        chosen = (clouds[:, None] == src) & (clouds[None, :] == dst)
        reached = [np.interp(1 - confidence, errors["levels"], one) for one in quantiles]
        shares[chosen] = np.interp(rtt_ms[chosen], errors["rtt_ms"], reached)
    measured = max(0.0, 1 + NormalDist().inv_cdf(1 - confidence) * grid.measured_noise)
    found: Floats = np.where(grid.measured, measured, np.minimum(1.0, shares))
    return found
