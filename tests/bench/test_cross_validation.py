"""Cross validation asks only about edges that the fit did not see."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from bench import cross_validation

from skyplane_orchestration.grids import Grid, load_grid


@pytest.fixture
def pretended() -> Grid:
    """The shipped grid, its modelled rates taken for measurements."""
    grid = load_grid()
    return grid.with_edges(measured=grid.throughput_gbps > 0)


def test_every_region_is_held_out_once() -> None:
    groups = cross_validation.held_out_groups(23, 5)
    assert np.sum(groups, axis=0).tolist() == [1] * 23


def test_the_fit_sees_no_edge_of_a_held_out_region(
    pretended: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Grid] = []

    def fit(known: Grid) -> dict[str, Any]:
        seen.append(known)
        return {
            "rtt": {"base_ms": 5.0, "ms_per_km": 0.02},
            "rtt_knots_ms": [0.0, 100.0],
            "curves": {
                f"{src}>{dst}": {"gbps": [1e-3, 1e-3]}
                for src in ("aws", "gcp", "azure")
                for dst in ("aws", "gcp", "azure")
            },
        }

    monkeypatch.setattr(cross_validation, "fit", fit)
    held = cross_validation.held_out_groups(len(pretended.regions), 10)[0]
    errors = cross_validation.held_out_errors(pretended, held)
    assert not seen[0].measured[held].any()
    assert not seen[0].rtt_measured[:, held].any()
    assert np.isnan(seen[0].throughput_gbps[held]).all()
    assert np.isnan(seen[0].rtt_ms[:, held]).all()
    assert seen[0].measured[np.ix_(~held, ~held)].any()
    outside = int((~held).sum())
    asked = np.isfinite(errors)
    assert asked.sum() == pretended.measured.sum() - outside * (outside - 1)
    assert errors[asked].min() > 0.99


def test_an_error_above_its_floor_does_not_hold(
    pretended: Grid, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        cross_validation, "held_out_errors", lambda *_: np.array([0.1, np.nan, 0.3, 0.2])
    )
    case = cross_validation.model_case(pretended, folds=4)
    assert case.value == pytest.approx(20.0)
    assert not case.holds
