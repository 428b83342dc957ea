"""A promise takes off a rate what its kind of edge was seen to lack."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.grids.loader import MODEL_FILE
from skyplane_orchestration.grids.promised import promised_shares
from skyplane_orchestration.grids.tables import shipped_files

NEAR, FAR = ("aws:us-east-1", "gcp:us-east4"), ("aws:us-east-1", "gcp:asia-southeast2")
ERRORS = {
    "levels": [0.05, 0.1, 0.5],
    "rtt_ms": [10.0, 200.0],
    "quantiles": {"aws>gcp": [[0.6, 0.8, 1.2], [0.2, 0.4, 0.9]]},
}


@pytest.fixture
def grid(shipped_grid: Grid) -> Grid:
    return replace(shipped_grid, model={"measured_over_modelled": ERRORS})


@pytest.fixture(scope="module")
def shipped_grid() -> Grid:
    return load_grid()


def share(grid: Grid, edge: tuple[str, str], confidence: float) -> float:
    src, dst = map(grid.index_of, edge)
    return float(promised_shares(grid, confidence)[src, dst])


@pytest.mark.parametrize(
    ("confidence", "expected"),
    [(0.9, 0.8), (0.7, 1.0), (0.95, 0.6), (0.99, 0.6), (0.925, 0.7), (0.85, 0.85), (0.5, 1.0)],
)
def test_between_two_levels_a_share_is_linear_and_never_above_one(
    grid: Grid, confidence: float, expected: float
) -> None:
    assert share(grid, NEAR, confidence) == pytest.approx(expected)


def test_between_two_round_trips_a_share_is_linear_and_an_unknown_one_is_far(grid: Grid) -> None:
    assert share(grid, FAR, 0.9) == pytest.approx(0.4)
    for rtt_ms, expected in ((105.0, 0.6), (np.nan, 0.4)):
        there = grid.with_edges(rtt_ms=np.full_like(grid.rtt_ms, rtt_ms))
        assert share(there, NEAR, 0.9) == pytest.approx(expected)


def test_a_model_without_errors_and_a_rate_of_a_grid_are_taken_as_they_are(grid: Grid) -> None:
    assert share(grid, NEAR[::-1], 0.9) == 1.0
    src, dst = map(grid.index_of, NEAR)
    measured = grid.measured.copy()
    measured[src, dst] = True
    known = grid.with_edges(measured=measured)
    assert share(known, NEAR, 0.9) == 1.0
    # 1.2816 standard deviations are below a tenth of a normal distribution.
    noisy = replace(known, measured_noise=0.05)
    assert share(noisy, NEAR, 0.9) == pytest.approx(1 - 0.05 * 1.2816, abs=1e-4)
    assert share(noisy, NEAR, 0.5) == pytest.approx(1.0)


def test_the_shipped_model_states_its_errors_for_every_pair_of_clouds(shipped_grid: Grid) -> None:
    shares = promised_shares(shipped_grid, 0.9)
    np.fill_diagonal(shares, 0.9)
    assert ((shares > 0.4) & (shares < 1)).all()


def test_errors_that_do_not_rise_are_refused(tmp_path: Path) -> None:
    model = json.loads((shipped_files() / MODEL_FILE).read_text(encoding="utf-8"))
    model["measured_over_modelled"]["quantiles"]["aws>gcp"][2].reverse()
    (tmp_path / MODEL_FILE).write_text(json.dumps(model), encoding="utf-8")
    regions = (shipped_files() / "regions.csv").read_text(encoding="utf-8")
    (tmp_path / "regions.csv").write_text(regions, encoding="utf-8")
    with pytest.raises(GridInvalid, match="no rising quantiles"):
        load_grid(tmp_path)
