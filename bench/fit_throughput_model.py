"""Fits `throughput_model.json` to a measured grid directory.

    python -m bench.fit_throughput_model GRID_DIR --internal GRID_DIR \
        --out grids/skyplane_grids/throughput_model.json

The second grid has rates between internal addresses of Google Cloud, which its gateways use. Those
of the first grid are then of external addresses, and become the part `external`.

docs/internals/throughput-model.md states the model and what each coefficient means. Both halves
are penalised least squares in closed form, repeated a few times with weights that damp outliers, so
that a fit takes a fraction of a second:

1. Round trips: base, slope, a detour per pair of areas and one per region, on relative errors.
   A detour is pulled towards 0, so that one with little behind it stays near the common slope.
2. Rates: log(gbps) at the knots of one curve per ordered pair of clouds, over the *modelled*
   round trip, which is all that there is for an edge that nobody has measured. Its bends are
   penalised, and an estimate that is too high weighs more than one that is too low: a plan
   loses flow by the first, and little by the second.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.grids.distances import pairwise_distance_km
from skyplane_orchestration.grids.geography import GridRegion
from skyplane_orchestration.grids.loader import MODEL_FILE
from skyplane_orchestration.grids.tables import read_json, shipped_files
from skyplane_orchestration.grids.throughput_model import (
    area_pair,
    areas_of,
    modelled_rtt_ms,
    modelled_throughput_gbps,
)

#: Areas by country. Each pair of areas has a detour of its own.
AREAS = {
    "africa": ("ZA",),
    "east_asia": ("HK", "JP", "KR", "TW"),
    "europe": (
        *("AT", "BE", "CH", "DE", "DK", "ES", "FI", "FR", "GB"),
        *("IE", "IT", "NL", "NO", "PL", "SE"),
    ),
    "india": ("IN",),
    "middle_east": ("AE", "BH", "IL", "QA", "SA"),
    "north_america": ("CA", "MX", "US"),
    "oceania": ("AU", "NZ"),
    "south_america": ("BR", "CL"),
    "southeast_asia": ("ID", "MY", "SG", "TH"),
}
CLOUDS = ("aws", "gcp", "azure")
RTT_KNOTS_MS = (0.0, 15.0, 30.0, 50.0, 75.0, 100.0, 150.0, 200.0, 275.0, 400.0)

#: Weight of a squared detour, (ms per 1000 km)**2, against a squared relative error.
AREA_PENALTY, REGION_PENALTY = 0.02, 0.1
#: Below this a round trip's error counts in ms and no longer in per cent.
SHORT_RTT_MS = 10.0
#: Weight of a squared change of slope of log(gbps), per 30 ms, and of a squared slope.
BEND_PENALTY, SLOPE_PENALTY, SLOPE_UNIT_MS = 1.0, 1e-4, 30.0
#: A relative error far above this weighs like its size, not like its square.
SOFT_RTT_ERROR, SOFT_RATE_ERROR = 0.15, 0.05
#: The share of the weight of estimates that are too low; the rest is that of those too high.
WEIGHT_OF_LOW = 0.4
ROUNDS = 8
#: What an instance sends to external addresses (general knowledge, as in limits.csv).
EXTERNAL_GBPS = {"gcp": 7.0}
WITHIN_GOOGLE = "gcp>gcp"
KM_PER_UNIT = 1000.0


def solve_softly(
    columns: Floats,
    wanted: Floats,
    penalty: Floats,
    weight: Floats,
    *,
    soft_error: float,
    weight_of_low: float = 0.5,
) -> Floats:
    """argmin over b of sum (weight * (wanted - columns @ b))**2 + b @ penalty @ b, softened.

    Repeated with smaller weights for errors beyond `soft_error`, and with `weight_of_low` for an
    estimate that is too low.
    """
    found, each = np.zeros(len(penalty)), np.ones(len(wanted))
    for _ in range(ROUNDS):
        weighted = columns * (each * weight**2)[:, None]
        found[:] = np.linalg.solve(weighted.T @ columns + penalty, weighted.T @ wanted)
        error = (wanted - columns @ found) * weight
        balance = np.where(error < 0, 1.0 - weight_of_low, weight_of_low)
        each = 2.0 * balance / np.sqrt(1.0 + (error / soft_error) ** 2)
    return found


def fit_rtt(regions: Sequence[GridRegion], rtt_ms: Floats, known: Mask) -> dict[str, Any]:
    """The `rtt` part of the document, from the known round trips between the regions."""
    distance = pairwise_distance_km(regions) / KM_PER_UNIT
    row, column = np.nonzero(known & np.isfinite(distance))
    areas = np.array(areas_of(AREAS, regions))
    pairs = np.array([area_pair(*ends) for ends in zip(areas[row], areas[column], strict=True)])
    placed = (areas[row] != "") & (areas[column] != "")
    names = sorted(set(pairs[placed]))
    touched = sorted({*row.tolist(), *column.tolist()})
    apart = distance[row, column]
    columns = np.column_stack(
        [
            np.ones(len(row)),
            apart,
            *(apart * (placed & (pairs == name)) for name in names),
            *(apart * ((row == region).astype(float) + (column == region)) for region in touched),
        ]
    )
    penalty = [0.0, 0.0, *[AREA_PENALTY] * len(names), *[REGION_PENALTY] * len(touched)]
    found = solve_softly(
        columns,
        rtt_ms[row, column],
        np.diag(penalty),
        1.0 / (rtt_ms[row, column] + SHORT_RTT_MS),
        soft_error=SOFT_RTT_ERROR,
    )
    per_km = np.round(found[1:] / KM_PER_UNIT, 6).tolist()
    of_areas, of_regions = per_km[1 : 1 + len(names)], per_km[1 + len(names) :]
    return {
        "base_ms": round(float(found[0]), 3),
        "ms_per_km": per_km[0],
        "areas": {area: list(countries) for area, countries in AREAS.items()},
        "area_detour_ms_per_km": dict(zip(names, of_areas, strict=True)),
        "region_detour_ms_per_km": {
            regions[number].tag: own for number, own in zip(touched, of_regions, strict=True)
        },
    }


def fit_curve(rtt_ms: Floats, gbps: Floats) -> list[float]:
    """Rates at the knots of one pair of clouds, never rising with the round trip."""
    knots = np.array(RTT_KNOTS_MS)
    slopes = np.diff(np.eye(len(knots)), axis=0) / np.diff(knots)[:, None] * SLOPE_UNIT_MS
    bends = np.diff(slopes, axis=0)
    logs = solve_softly(
        np.array([np.interp(rtt_ms, knots, one) for one in np.eye(len(knots))]).T,
        np.log(gbps),
        BEND_PENALTY * bends.T @ bends + SLOPE_PENALTY * slopes.T @ slopes,
        np.ones_like(gbps),
        soft_error=SOFT_RATE_ERROR,
        weight_of_low=WEIGHT_OF_LOW,
    )
    return [round(rate, 3) for rate in np.exp(np.minimum.accumulate(logs)).tolist()]


def fit(grid: Grid) -> dict[str, Any]:
    """The whole model document, from measured rates and round trips only.

    A pair of clouds without a measured rate has no curve. A grid without measured round trips takes
    those of the shipped model.
    """
    if grid.rtt_measured.any():
        rtt = fit_rtt(grid.regions, grid.rtt_ms, grid.rtt_measured)
    else:
        rtt = (read_json(shipped_files(), MODEL_FILE) or {})["rtt"]
    rtt_ms = modelled_rtt_ms({"rtt": rtt}, grid.regions)
    clouds = np.array([region.cloud for region in grid.regions])
    usable = grid.measured & (grid.throughput_gbps > 0) & np.isfinite(rtt_ms)
    curves: dict[str, dict[str, Any]] = {}
    for src, dst in itertools.product(CLOUDS, repeat=2):
        chosen = usable & (clouds[:, None] == src) & (clouds[None, :] == dst)
        if chosen.any():
            most = np.inf
            if src != dst or not has_internal_addresses(grid):
                most = EXTERNAL_GBPS.get(src, np.inf)
            rates = fit_curve(rtt_ms[chosen], grid.throughput_gbps[chosen])
            curves[f"{src}>{dst}"] = {
                "gbps": [min(rate, most) for rate in rates],
                "edges": int(chosen.sum()),
            }
    model = {
        "kind": "modelled",
        "fitted_to": grid.name,
        "as_of": grid.as_of,
        "rtt": rtt,
        "rtt_knots_ms": list(RTT_KNOTS_MS),
        "curves": curves,
    }
    modelled = modelled_throughput_gbps(model, clouds.tolist(), rtt_ms)
    errors = np.abs(modelled[usable] / grid.throughput_gbps[usable] - 1.0)
    return {**model, "median_error": round(float(np.median(errors)), 3)}


def document_of(grid: Grid, internal: Grid | None = None) -> dict[str, Any]:
    """The model with the errors of its rates for regions that are not part of a fit.

    Args:
        internal: has the rates between internal addresses of Google Cloud.
    """
    # It fits models itself.
    from bench.cross_validation import held_out_ratios

    model, errors = fit(grid), held_out_ratios(grid)
    document = {**model, "measured_over_modelled": errors}
    if internal is None:
        return document
    inner, quantiles = fit(internal)["curves"][WITHIN_GOOGLE], errors["quantiles"]
    outside = model["curves"][WITHIN_GOOGLE], quantiles[WITHIN_GOOGLE]
    model["curves"][WITHIN_GOOGLE] = {**inner, "as_of": internal.as_of}
    quantiles[WITHIN_GOOGLE] = held_out_ratios(internal)["quantiles"][WITHIN_GOOGLE]
    document["external"] = {
        name: {WITHIN_GOOGLE: one}
        for name, one in zip(("curves", "quantiles"), outside, strict=True)
    }
    return document


def has_internal_addresses(grid: Grid) -> bool:
    """Whether rates within Google Cloud are above what an external address takes."""
    google = np.array([region.cloud == "gcp" for region in grid.regions])
    rates = grid.throughput_gbps[grid.measured & google[:, None] & google]
    return bool(len(rates)) and float(np.median(rates)) > EXTERNAL_GBPS["gcp"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grid", help="directory of a measured grid")
    parser.add_argument("--internal", help="one with rates between internal addresses of Google")
    # Not by a redirection: a shell empties the file before the grid, which has it, is read.
    parser.add_argument("--out", type=Path, help="the file to write; stdout without it")
    options = parser.parse_args(arguments)
    internal = load_grid(options.internal) if options.internal else None
    document = json.dumps(document_of(load_grid(options.grid), internal), indent=1) + "\n"
    if options.out is None:
        sys.stdout.write(document)
    else:
        options.out.write_text(document, encoding="utf-8")


if __name__ == "__main__":
    main()
