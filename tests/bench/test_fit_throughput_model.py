"""A fit finds the law behind measurements that follow one."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.fit_throughput_model import (
    AREAS,
    RTT_KNOTS_MS,
    WITHIN_GOOGLE,
    document_of,
    fit,
    fit_curve,
    has_internal_addresses,
    main,
)

from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.grids.throughput_model import (
    between_external_addresses,
    modelled_rtt_ms,
    modelled_throughput_gbps,
)

CLOUDS = ("aws", "gcp", "azure")
#: Slow and far: a law unlike the one that ships.
LAW: dict[str, Any] = {
    "rtt": {
        "base_ms": 8.0,
        "ms_per_km": 0.02,
        "areas": AREAS,
        "area_detour_ms_per_km": {"europe~north_america": 0.006},
        "region_detour_ms_per_km": {"aws:sa-east-1": 0.008},
    },
    "rtt_knots_ms": [0.0, 100.0, 400.0],
    "curves": {
        f"{src}>{dst}": {"gbps": [4.0 + number, 3.0 + number / 2, 0.5]}
        for number, (src, dst) in enumerate((src, dst) for src in CLOUDS for dst in CLOUDS)
    },
}


@pytest.fixture(scope="module")
def lawful() -> Grid:
    """The shipped regions, every third of them, measured as the law says."""
    shipped = load_grid()
    kept = np.arange(len(shipped.regions)) % 3 == 0
    regions = tuple(shipped.regions[number] for number in np.flatnonzero(kept))
    sao_paulo = shipped.regions[shipped.index_of("aws:sa-east-1")]
    regions = tuple(dict.fromkeys((*regions, sao_paulo)))
    rtt_ms = modelled_rtt_ms(LAW, regions)
    rates = modelled_throughput_gbps(LAW, [region.cloud for region in regions], rtt_ms)
    every = rates > 0
    index = {region.tag: number for number, region in enumerate(regions)}
    return replace(shipped, regions=regions, index=index).with_edges(
        throughput_gbps=rates, measured=every, rtt_ms=rtt_ms, rtt_measured=every
    )


def rates_of(model: dict[str, Any], grid: Grid) -> np.ndarray[Any, np.dtype[np.float64]]:
    rtt_ms = modelled_rtt_ms(model, grid.regions)
    return modelled_throughput_gbps(model, [region.cloud for region in grid.regions], rtt_ms)


def test_a_law_of_the_model_s_form_is_found(lawful: Grid) -> None:
    found = fit(lawful)
    off_diagonal = lawful.measured
    rtt_ms = modelled_rtt_ms(found, lawful.regions)
    assert found["rtt"]["base_ms"] == pytest.approx(8.0, abs=1.0)
    late = np.abs(rtt_ms[off_diagonal] / lawful.rtt_ms[off_diagonal] - 1)
    assert float(np.median(late)) < 0.01
    off = np.abs(rates_of(found, lawful)[off_diagonal] / lawful.throughput_gbps[off_diagonal] - 1)
    assert float(np.median(off)) < 0.01
    assert found["median_error"] < 0.01
    for pair, curve in LAW["curves"].items():
        wanted = np.exp(np.interp(50.0, LAW["rtt_knots_ms"], np.log(curve["gbps"])))
        at_50 = found["curves"][pair]["gbps"][RTT_KNOTS_MS.index(50.0)]
        assert at_50 == pytest.approx(wanted, rel=0.03)


def test_the_detour_of_a_region_is_found_and_not_overdone(lawful: Grid) -> None:
    detours = fit(lawful)["rtt"]["region_detour_ms_per_km"]
    own = detours.pop("aws:sa-east-1")
    assert 0.002 < own <= 0.008
    assert max(detours.values()) < own / 2


def test_the_detour_of_a_pair_of_areas_is_found(lawful: Grid) -> None:
    line = fit(lawful)["rtt"]
    across = line["ms_per_km"] + line["area_detour_ms_per_km"]["europe~north_america"]
    assert across == pytest.approx(0.026, rel=0.02)


def test_a_few_bad_measurements_bend_nothing(lawful: Grid) -> None:
    rates, rtt_ms = lawful.throughput_gbps.copy(), lawful.rtt_ms.copy()
    row, column = np.nonzero(lawful.measured)
    rates[row[::40], column[::40]] /= 10.0
    rtt_ms[row[::41], column[::41]] *= 5.0
    found = fit(lawful.with_edges(throughput_gbps=rates, rtt_ms=rtt_ms))
    error = np.abs(
        rates_of(found, lawful)[lawful.measured] / lawful.throughput_gbps[lawful.measured] - 1
    )
    assert float(np.median(error)) < 0.04


def test_what_was_not_measured_takes_no_part(lawful: Grid) -> None:
    hidden = np.zeros_like(lawful.measured)
    hidden[:5], hidden[:, :5] = True, True
    known = lawful.with_edges(
        measured=lawful.measured & ~hidden, rtt_measured=lawful.rtt_measured & ~hidden
    )
    wild = known.with_edges(
        throughput_gbps=np.where(hidden, 99.0, known.throughput_gbps),
        rtt_ms=np.where(hidden, np.nan, known.rtt_ms),
    )
    assert fit(wild) == fit(known)


def test_clouds_that_nobody_measured_have_no_curve(lawful: Grid) -> None:
    clouds = np.array([region.cloud for region in lawful.regions])
    known = lawful.with_edges(measured=lawful.measured & (clouds == "aws")[:, None])
    assert set(fit(known)["curves"]) == {"aws>aws", "aws>gcp", "aws>azure"}


def test_without_round_trips_those_of_the_shipped_model_are_taken(lawful: Grid) -> None:
    nothing = np.zeros_like(lawful.rtt_measured)
    blind = lawful.with_edges(rtt_measured=nothing, rtt_ms=np.full(nothing.shape, np.nan))
    shipped = json.loads(
        (files("skyplane_grids") / "throughput_model.json").read_text(encoding="utf-8")
    )
    assert fit(blind)["rtt"] == shipped["rtt"]
    assert set(fit(blind)["curves"]) == set(LAW["curves"])


def test_a_model_is_written_over_the_one_that_the_grid_has(tmp_path: Path) -> None:
    (tmp_path / "throughput.csv").write_text(
        "src,dst,gbps\naws:us-east-1,gcp:us-east1,2.5\n", encoding="utf-8"
    )
    out = tmp_path / "throughput_model.json"
    main([str(tmp_path), "--out", str(out)])
    main([str(tmp_path), "--out", str(out)])
    written = json.loads(out.read_text(encoding="utf-8"))
    assert written["curves"] == {
        "aws>gcp": {"gbps": pytest.approx([2.5] * len(RTT_KNOTS_MS)), "edges": 1}
    }
    assert load_grid(tmp_path).throughput_gbps[0, 1] == 2.5


def test_a_curve_never_rises_whatever_the_measurements_say() -> None:
    rtt_ms = np.linspace(5.0, 350.0, 40)
    noisy = 3.0 + np.sin(rtt_ms / 20.0) + rtt_ms / 200.0
    curve = fit_curve(rtt_ms, noisy)
    assert curve == sorted(curve, reverse=True)


def test_an_estimate_that_is_too_high_weighs_more() -> None:
    rtt_ms = np.full(100, 50.0)
    halves = np.where(np.arange(100) % 2 == 0, 2.0, 2.2)
    at_50 = fit_curve(rtt_ms, halves)[RTT_KNOTS_MS.index(50.0)]
    assert 2.0 < at_50 < np.sqrt(2.0 * 2.2)


def test_one_measurement_is_enough_for_a_curve() -> None:
    assert fit_curve(np.array([80.0]), np.array([3.0])) == pytest.approx([3.0] * len(RTT_KNOTS_MS))


@pytest.fixture(scope="module")
def january(shared_dir: Path) -> Grid:
    return load_grid(shared_dir / "grids" / "skyplane-2022-01")


@pytest.fixture
def shipped_model() -> Any:
    """With the rates of January within Google Cloud, which are of external addresses."""
    shipped = json.loads(
        (files("skyplane_grids") / "throughput_model.json").read_text(encoding="utf-8")
    )
    inner, outer = shipped["curves"][WITHIN_GOOGLE], shipped.pop("external")
    assert inner["as_of"] == "2022-11-28"
    shipped["curves"].update(outer["curves"])
    shipped["measured_over_modelled"]["quantiles"].update(outer["quantiles"])
    return shipped


def test_the_model_that_ships_is_the_fit_to_january(january: Grid, shipped_model: Any) -> None:
    shipped, found = shipped_model, json.loads(json.dumps(fit(january)))
    assert found.keys() | {"measured_over_modelled"} == shipped.keys()
    assert found["rtt"]["areas"] == shipped["rtt"]["areas"]
    assert found["rtt"]["base_ms"] == pytest.approx(shipped["rtt"]["base_ms"], abs=2e-3)
    for part in ("area_detour_ms_per_km", "region_detour_ms_per_km"):
        assert found["rtt"][part] == pytest.approx(shipped["rtt"][part], abs=2e-6)
    for pair, curve in shipped["curves"].items():
        assert found["curves"][pair]["gbps"] == pytest.approx(curve["gbps"], abs=2e-3)


@pytest.mark.long
def test_the_errors_that_ship_are_of_regions_that_took_no_part(
    january: Grid, shipped_model: Any
) -> None:
    """A fit without each group of regions that is held out."""
    found = document_of(january)["measured_over_modelled"]
    shipped = shipped_model["measured_over_modelled"]
    assert found.keys() == shipped.keys()
    assert found["quantiles"].keys() == shipped["quantiles"].keys()
    for pair, shares in shipped["quantiles"].items():
        assert np.array(found["quantiles"][pair]) == pytest.approx(np.array(shares), abs=3e-3)


@pytest.mark.long
def test_rates_within_google_are_those_of_the_grid_with_internal_addresses() -> None:
    outer = load_grid()
    outer = between_external_addresses(outer).with_edges(measured=outer.throughput_gbps > 0)
    inner = outer.with_edges(throughput_gbps=5 * outer.throughput_gbps)
    assert (has_internal_addresses(outer), has_internal_addresses(inner)) == (False, True)
    made, alone = document_of(outer, inner), document_of(outer)
    for name, of_alone in (
        ("curves", alone["curves"]),
        ("quantiles", alone["measured_over_modelled"]["quantiles"]),
    ):
        assert made["external"][name] == {WITHIN_GOOGLE: of_alone[WITHIN_GOOGLE]}
    assert made["curves"]["gcp>aws"] == alone["curves"]["gcp>aws"]
    assert max(alone["curves"]["gcp>aws"]["gbps"]) <= 7 < made["curves"][WITHIN_GOOGLE]["gbps"][0]
