"""The model for unmeasured edges: a round trip from the positions of the ends, and a rate.

    rtt_ms = base_ms + slope(u, v) * great-circle distance in km
    slope(u, v) = ms_per_km + area_detour(u, v) + region_detour(u) + region_detour(v)
    gbps = the curve of the ordered pair of clouds at rtt_ms

Cables follow coasts, so the slope depends on the pair of areas (roughly continents) of the ends,
plus a term per region. A curve is a list of rates at a few round trips, log-linear between them.
All coefficients are in `throughput_model.json`; `bench/fit_throughput_model.py` fits them to a
measured grid. See docs/internals/throughput-model.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids.arrays import Floats
from skyplane_orchestration.grids.distances import pairwise_distance_km
from skyplane_orchestration.grids.geography import GridRegion
from skyplane_orchestration.grids.grid import Grid

#: Round trip of light in fibre (refractive index 1.47): the smallest slope.
LEAST_MS_PER_KM = 0.0098
_NO_CURVES: Final[Mapping[str, Any]] = {"curves": {}, "quantiles": {}}
_REFIT = "docs/internals/throughput-model.md states the format and how to fit one"


def area_pair(first: str, second: str) -> str:
    """The name of an unordered pair of areas."""
    return "~".join(sorted((first, second)))


def require_model(model: Mapping[str, Any]) -> None:
    """Raises GridInvalid unless the document has all fields of the model."""
    try:
        line = model["rtt"]
        numbers = [line["base_ms"], line["ms_per_km"]]
        for part in ("area_detour_ms_per_km", "region_detour_ms_per_km"):
            numbers.extend(line.get(part, {}).values())
        areas_of(line.get("areas", {}), ())
        knots = np.array(model["rtt_knots_ms"], dtype=float)
        outside = model.get("external", _NO_CURVES)
        curves = [
            (pair, np.array(curve["gbps"], dtype=float))
            for part in (model, outside)
            for pair, curve in part["curves"].items()
        ]
        finite = np.isfinite(np.array(numbers, dtype=float)).all()
        errors = model.get("measured_over_modelled", {"levels": [], "rtt_ms": [], "quantiles": {}})
        rising = [np.array(errors[name], dtype=float) for name in ("levels", "rtt_ms")]
        for quantiles in (*errors["quantiles"].values(), *outside["quantiles"].values()):
            shape = len(errors["rtt_ms"]), len(errors["levels"])
            rising.append(np.array(quantiles, dtype=float).reshape(shape))
    except KeyError as error:
        raise GridInvalid(f"throughput_model.json lacks {error}; {_REFIT}") from error
    except (TypeError, ValueError, AttributeError) as error:
        raise GridInvalid(f"throughput_model.json: {error}; {_REFIT}") from error
    if not finite or knots.ndim != 1 or len(knots) == 0 or (np.diff(knots) <= 0).any():
        raise GridInvalid(
            f"throughput_model.json: rtt and rtt_knots_ms are no rising line; {_REFIT}"
        )
    if any(not (np.diff(one, prepend=0.0) >= 0).all() for one in rising):
        raise GridInvalid(
            f"throughput_model.json: measured_over_modelled has no rising quantiles; {_REFIT}"
        )
    for pair, rates in curves:
        if rates.shape != knots.shape or not (np.isfinite(rates) & (rates > 0)).all():
            raise GridInvalid(
                f"throughput_model.json: curve {pair} needs {len(knots)} rates above 0; {_REFIT}"
            )


def modelled_rtt_ms(model: Mapping[str, Any], regions: Sequence[GridRegion]) -> Floats:
    """Round trips between all regions, shape (V, V); nan where a position is unknown.

    A country or region that the model does not name has no detour.
    """
    line = model["rtt"]
    detours = line.get("region_detour_ms_per_km", {})
    own = np.array([detours.get(region.tag, 0.0) for region in regions])
    slope = line["ms_per_km"] + _area_detours(line, regions) + (own[:, None] + own[None, :])
    rtt: Floats = line["base_ms"] + np.maximum(slope, LEAST_MS_PER_KM) * pairwise_distance_km(
        regions
    )
    return rtt


def modelled_throughput_gbps(
    model: Mapping[str, Any], clouds: Sequence[str], rtt_ms: Floats
) -> Floats:
    """Rate of one instance pair over 64 connections, shape (V, V); 0 (no edge) where unknown."""
    rate = np.zeros_like(rtt_ms)
    names = np.array(clouds)
    for pair, curve in model["curves"].items():
        src, _, dst = pair.partition(">")
        chosen = (names[:, None] == src) & (names[None, :] == dst)
        logs = np.interp(rtt_ms[chosen], model["rtt_knots_ms"], np.log(curve["gbps"]))
        rate[chosen] = np.exp(logs)
    np.fill_diagonal(rate, 0.0)
    return np.nan_to_num(rate, nan=0.0)


def between_external_addresses(grid: Grid) -> Grid:
    """The same grid for gateways that reach each other by external addresses only.

    Within Google Cloud such an address takes 7 Gbit/s of an instance, and the way is another one.
    """
    model, outside = grid.model, grid.model.get("external", _NO_CURVES)
    rates = modelled_throughput_gbps(
        {**model, "curves": outside["curves"]}, [one.cloud for one in grid.regions], grid.rtt_ms
    )
    is_changed = (rates > 0) & (grid.throughput_gbps > 0) & ~grid.measured
    changed = np.where(is_changed, rates, grid.throughput_gbps)
    errors = dict(model.get("measured_over_modelled", {}))
    errors["quantiles"] = {**errors.get("quantiles", {}), **outside["quantiles"]}
    return replace(
        grid.with_edges(throughput_gbps=changed),
        model={
            **model,
            "curves": {**model["curves"], **outside["curves"]},
            "measured_over_modelled": errors,
        },
    )


def _area_detours(line: Mapping[str, Any], regions: Sequence[GridRegion]) -> Floats:
    """ms per km by pair of areas, (V, V)."""
    areas = areas_of(line.get("areas", {}), regions)
    known = line.get("area_detour_ms_per_km", {})
    names, number = np.unique(areas, return_inverse=True)
    by_area = np.array(
        [[known.get(area_pair(src, dst), 0.0) for dst in names] for src in names], dtype=float
    )
    detour: Floats = by_area[np.ix_(number, number)]
    return detour


def areas_of(
    countries_by_area: Mapping[str, Sequence[str]], regions: Sequence[GridRegion]
) -> list[str]:
    """The area of each region by its country; "" where the country is in no area."""
    area_by_country = {
        country: area for area, countries in countries_by_area.items() for country in countries
    }
    return [area_by_country.get(region.country, "") for region in regions]
