"""The model of edges that nobody has measured, as a formula and as the document that ships."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids import load_grid
from skyplane_orchestration.grids.distances import pairwise_distance_km
from skyplane_orchestration.grids.geography import GridRegion
from skyplane_orchestration.grids.promised import promised_shares
from skyplane_orchestration.grids.throughput_model import (
    LEAST_MS_PER_KM,
    between_external_addresses,
    modelled_rtt_ms,
    modelled_throughput_gbps,
    require_model,
)

PARIS = GridRegion("aws:paris", country="FR", latitude=48.86, longitude=2.35)
TOKYO = GridRegion("gcp:tokyo", country="JP", latitude=35.68, longitude=139.69)
OSAKA = GridRegion("aws:osaka", country="JP", latitude=34.69, longitude=135.50)
NOWHERE = GridRegion("azure:nowhere")
REGIONS = (PARIS, TOKYO, OSAKA, NOWHERE)

MODEL: dict[str, Any] = {
    "rtt": {
        "base_ms": 4.0,
        "ms_per_km": 0.015,
        "areas": {"europe": ["FR"], "asia": ["JP"]},
        "area_detour_ms_per_km": {"asia~europe": 0.01},
        "region_detour_ms_per_km": {"gcp:tokyo": 0.002},
    },
    "rtt_knots_ms": [0.0, 100.0, 200.0],
    "curves": {"aws>gcp": {"gbps": [8.0, 4.0, 1.0]}, "gcp>aws": {"gbps": [7.0, 7.0, 2.0]}},
}


@pytest.fixture(scope="module")
def shipped() -> dict[str, Any]:
    text = (files("skyplane_grids") / "throughput_model.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


def test_the_round_trip_is_the_base_and_the_slope_of_areas_and_regions() -> None:
    distance = pairwise_distance_km(REGIONS)
    rtt = modelled_rtt_ms(MODEL, REGIONS)
    assert rtt[0, 2] == pytest.approx(4.0 + (0.015 + 0.01) * distance[0, 2])
    assert rtt[0, 1] == pytest.approx(4.0 + (0.015 + 0.01 + 0.002) * distance[0, 1])
    assert rtt[1, 2] == pytest.approx(4.0 + (0.015 + 0.002) * distance[1, 2])
    assert rtt[:3, :3] == pytest.approx(rtt[:3, :3].T)


def test_an_unknown_place_has_no_round_trip_and_no_edge() -> None:
    rtt = modelled_rtt_ms(MODEL, REGIONS)
    assert np.isnan(rtt[3, :3]).all()
    rates = modelled_throughput_gbps(MODEL, ["aws", "gcp", "aws", "gcp"], rtt)
    assert (rates[3] == 0).all()
    assert (rates[:, 3] == 0).all()


def test_no_round_trip_is_shorter_than_light_in_fibre() -> None:
    fast = {**MODEL["rtt"], "region_detour_ms_per_km": {"gcp:tokyo": -0.1}}
    rtt = modelled_rtt_ms({"rtt": fast}, REGIONS[:3])
    assert rtt[0, 1] == pytest.approx(4.0 + LEAST_MS_PER_KM * pairwise_distance_km(REGIONS)[0, 1])


def test_between_knots_the_logarithm_of_the_rate_is_a_line_and_outside_it_is_flat() -> None:
    rtt = np.array([[0.0, 50.0], [500.0, 0.0]])
    rates = modelled_throughput_gbps(MODEL, ["aws", "gcp"], rtt)
    assert rates[0, 1] == pytest.approx(np.sqrt(8.0 * 4.0))
    assert rates[1, 0] == pytest.approx(2.0)


def test_clouds_without_a_curve_and_the_diagonal_have_no_edge() -> None:
    rates = modelled_throughput_gbps(MODEL, ["aws", "aws"], np.full((2, 2), 10.0))
    assert (rates == 0).all()


def test_the_shipped_curves_never_rise_with_the_round_trip(shipped: dict[str, Any]) -> None:
    knots = shipped["rtt_knots_ms"]
    assert knots[0] == 0
    assert knots == sorted(set(knots))
    clouds = ("aws", "gcp", "azure")
    assert set(shipped["curves"]) == {f"{src}>{dst}" for src in clouds for dst in clouds}
    for curve in shipped["curves"].values():
        assert len(curve["gbps"]) == len(knots)
        assert curve["gbps"] == sorted(curve["gbps"], reverse=True)
        assert curve["gbps"][-1] > 0


def test_every_shipped_country_is_in_exactly_one_area_and_every_pair_has_a_detour(
    shipped: dict[str, Any],
) -> None:
    areas = shipped["rtt"]["areas"]
    listed = [country for countries in areas.values() for country in countries]
    assert len(listed) == len(set(listed))
    assert {region.country for region in load_grid().regions} <= set(listed)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("rtt", {"base_ms": 4.0}),
        ("rtt", {"base_ms": 4.0, "ms_per_km": float("nan")}),
        ("rtt", [4.0, 0.015]),
        ("rtt_knots_ms", [0.0, 100.0, 100.0]),
        ("rtt_knots_ms", "often"),
        ("curves", {"aws>gcp": {"gbps": [8.0, 4.0]}}),
        ("curves", {"aws>gcp": {"gbps": [8.0, 4.0, 0.0]}}),
        ("curves", {"aws>gcp": {"cap_gbps": 8.0}}),
    ],
)
def test_a_document_that_is_no_model_is_refused_in_one_line(part: str, value: object) -> None:
    require_model(MODEL)
    with pytest.raises(GridInvalid, match=r"throughput_model\.json") as refused:
        require_model({**MODEL, part: value})
    assert "\n" not in str(refused.value)


def test_a_grid_directory_with_a_model_of_its_own_is_completed_by_it(tmp_path: Path) -> None:
    (tmp_path / "regions.csv").write_text("region\naws:us-east-1\ngcp:us-east1\n", encoding="utf-8")
    flat = {**MODEL, "curves": {"aws>gcp": {"gbps": [3.0, 3.0, 3.0]}}}
    (tmp_path / "throughput_model.json").write_text(json.dumps(flat), encoding="utf-8")
    grid = load_grid(tmp_path)
    assert grid.throughput_gbps[0, 1] == pytest.approx(3.0)
    assert grid.throughput_gbps[1, 0] == 0.0
    (tmp_path / "throughput_model.json").write_text('{"curves": {}}', encoding="utf-8")
    with pytest.raises(GridInvalid, match="lacks 'rtt'"):
        load_grid(tmp_path)


def test_between_external_addresses_google_is_slower_and_measured_rates_stay() -> None:
    grid = load_grid()
    google, west, aws = map(grid.index_of, ("gcp:us-east1", "gcp:us-west1", "aws:us-east-1"))
    measured = grid.measured.copy()
    measured[west, google] = True
    outer = between_external_addresses(grid.with_edges(measured=measured))
    assert outer.throughput_gbps[google, west] < 7 < grid.throughput_gbps[google, west]
    for place in ((west, google), (google, aws), (aws, google)):
        assert outer.throughput_gbps[place] == grid.throughput_gbps[place]
    shares = promised_shares(outer, 0.9), promised_shares(grid, 0.9)
    assert shares[0][google, west] != shares[1][google, west]
    assert shares[0][google, aws] == shares[1][google, aws]
