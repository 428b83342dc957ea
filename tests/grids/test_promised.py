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
from skyplane_orchestration.grids.promised import promised_share, promised_shares
from skyplane_orchestration.grids.tables import shipped_files

ERRORS = {"levels": (0.05, 0.1, 0.5), "aws>gcp": (0.6, 0.8, 1.2)}


@pytest.fixture
def grid(shipped_grid: Grid) -> Grid:
    return replace(shipped_grid, model_errors=ERRORS)


@pytest.fixture(scope="module")
def shipped_grid() -> Grid:
    return load_grid()


@pytest.mark.parametrize(
    ("confidence", "share"),
    [(0.9, 0.8), (0.7, 1.0), (0.95, 0.6), (0.99, 0.6), (0.925, 0.7), (0.85, 0.85), (0.5, 1.0)],
)
def test_between_two_levels_a_share_is_linear_and_never_above_one(
    grid: Grid, confidence: float, share: float
) -> None:
    assert promised_share(grid, "aws>gcp", confidence) == pytest.approx(share)


def test_a_model_without_errors_and_a_rate_of_a_grid_are_taken_as_they_are(grid: Grid) -> None:
    assert promised_share(grid, "gcp>aws", 0.9) == 1.0
    src, dst = grid.index_of("aws:us-east-1"), grid.index_of("gcp:us-east1")
    assert promised_shares(grid, 0.9)[src, dst] == pytest.approx(0.8)
    measured = grid.measured.copy()
    measured[src, dst] = True
    known = grid.with_edges(measured=measured)
    assert promised_shares(known, 0.9)[src, dst] == 1.0
    # 1.2816 standard deviations are below a tenth of a normal distribution.
    noisy = replace(known, measured_noise=0.05)
    assert promised_shares(noisy, 0.9)[src, dst] == pytest.approx(1 - 0.05 * 1.2816, abs=1e-4)
    assert promised_shares(noisy, 0.5)[src, dst] == pytest.approx(1.0)


def test_the_shipped_model_states_its_errors_for_every_pair_of_clouds(shipped_grid: Grid) -> None:
    shares = promised_shares(shipped_grid, 0.9)
    np.fill_diagonal(shares, 0.9)
    assert ((shares > 0.4) & (shares < 1)).all()


def test_errors_that_do_not_rise_are_refused(tmp_path: Path) -> None:
    model = json.loads((shipped_files() / MODEL_FILE).read_text(encoding="utf-8"))
    model["measured_over_modelled"]["aws>gcp"].reverse()
    (tmp_path / MODEL_FILE).write_text(json.dumps(model), encoding="utf-8")
    regions = (shipped_files() / "regions.csv").read_text(encoding="utf-8")
    (tmp_path / "regions.csv").write_text(regions, encoding="utf-8")
    with pytest.raises(GridInvalid, match="no rising quantiles"):
        load_grid(tmp_path)
