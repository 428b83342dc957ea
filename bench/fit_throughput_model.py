"""Fits `throughput_model.json` to a measured grid directory.

    python -m bench.fit_throughput_model GRID_DIR > grids/skyplane_grids/throughput_model.json

The model has one curve per ordered pair of clouds,
    gbps = cap_gbps / (1 + (rtt_ms / half_rtt_ms) ** steepness),
and one line for the round trip, rtt_ms = base_ms + ms_per_km * great-circle distance.
Robust least squares on log(gbps): a few bad measurements must not bend a curve.
"""

from __future__ import annotations

import argparse
import itertools
import json

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from skyplane_orchestration.grids import Grid, load_grid, pairwise_distance_km

STARTS = tuple(itertools.product((0.6, 0.9), (50.0, 200.0, 400.0), (1.0, 2.0)))
SOFT_ERROR = 0.15

Floats = NDArray[np.float64]


def fit_rtt(distance_km: Floats, rtt_ms: Floats) -> tuple[float, float]:
    """Base and slope of the round trip, relative errors, outliers damped."""

    def residual(line: Floats) -> Floats:
        relative: Floats = (line[0] + line[1] * distance_km - rtt_ms) / (rtt_ms + 5.0)
        return relative

    found = least_squares(residual, [5.0, 0.015], loss="soft_l1", f_scale=0.1)
    return float(found.x[0]), float(found.x[1])


def fit_curve(rtt_ms: Floats, gbps: Floats) -> tuple[float, float, float]:
    """cap_gbps, half_rtt_ms and steepness of one pair of clouds; best of several starts."""

    def residual(logs: Floats) -> Floats:
        cap, half, steep = np.exp(logs)
        error: Floats = np.log(cap / (1.0 + (rtt_ms / half) ** steep)) - np.log(gbps)
        return error

    fits = [
        least_squares(
            residual,
            np.log([np.quantile(gbps, quantile), half, steep]),
            loss="soft_l1",
            f_scale=SOFT_ERROR,
            bounds=([-5.0, 0.0, -2.0], [5.0, 10.0, 3.0]),
        )
        for quantile, half, steep in STARTS
    ]
    cap, half, steep = np.exp(min(fits, key=lambda fit: float(fit.cost)).x)
    return float(cap), float(half), float(steep)


def fit(grid: Grid) -> dict[str, object]:
    """The whole model document; only measured rates and round trips take part."""
    distance = pairwise_distance_km(grid.regions)
    known_rtt = grid.rtt_measured
    base_ms, ms_per_km = fit_rtt(distance[known_rtt], grid.rtt_ms[known_rtt])
    rtt_ms = base_ms + ms_per_km * distance
    clouds = np.array([region.cloud for region in grid.regions])
    curves: dict[str, dict[str, float]] = {}
    errors: list[float] = []
    for src, dst in itertools.product(("aws", "gcp", "azure"), repeat=2):
        chosen = grid.measured & (clouds[:, None] == src) & (clouds[None, :] == dst)
        gbps = grid.throughput_gbps[chosen]
        cap, half, steep = fit_curve(rtt_ms[chosen], gbps)
        predicted = cap / (1.0 + (rtt_ms[chosen] / half) ** steep)
        relative = np.abs(predicted / gbps - 1.0)
        errors.extend(relative.tolist())
        curves[f"{src}>{dst}"] = {
            "cap_gbps": round(cap, 3),
            "half_rtt_ms": round(half, 1),
            "steepness": round(steep, 3),
            "median_error": round(float(np.median(relative)), 3),
            "edges": int(chosen.sum()),
        }
    return {
        "kind": "modelled",
        "fitted_to": grid.name,
        "as_of": grid.as_of,
        "median_error": round(float(np.median(errors)), 3),
        "rtt": {"base_ms": round(base_ms, 3), "ms_per_km": round(ms_per_km, 6)},
        "curves": curves,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grid", help="directory of a measured grid")
    print(json.dumps(fit(load_grid(parser.parse_args().grid)), indent=2))


if __name__ == "__main__":
    main()
