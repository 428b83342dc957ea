"""A floor and a deadline hold at promised rates; ceilings count expected ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from skyplane_orchestration.errors import ConfigurationInvalid, PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import (
    Deadline,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Objective,
)
from skyplane_orchestration.planner import plan

S, T, R = "aws:s", "gcp:t", "azure:r"
ONE = Limits(instance_limit=1)
GridOf = Callable[..., Grid]


def errors(
    levels: Sequence[float], quantiles: Mapping[str, Sequence[float]]
) -> dict[str, dict[str, Any]]:
    """A model that errs alike at all round trips."""
    by_rtt = {pair: [list(one)] for pair, one in quantiles.items()}
    return {"measured_over_modelled": {"levels": levels, "rtt_ms": [0.0], "quantiles": by_rtt}}


@pytest.fixture
def modelled(small_grid: GridOf) -> Grid:
    """Directly 4 Gbit/s of which 3 are sure, and over a dear relay 3.6 of which all are sure."""
    grid = small_grid({(S, T): (4.0, 0.05), (S, R): (3.6, 0.05), (R, T): (3.6, 0.05)})
    return replace(
        grid.with_edges(measured=grid.measured & False),
        model=errors((0.1, 0.3, 0.5), {"aws>gcp": (0.75, 0.9, 1.0)}),
    )


@pytest.mark.parametrize(
    ("objective", "volume_gb"),
    [(MinimizeCost(3.3), None), (Deadline(75 + 8 * 330 / 3.3 + 1), 330)],
)
def test_a_floor_and_a_deadline_are_promised(
    modelled: Grid, objective: Objective, volume_gb: float | None
) -> None:
    sure = plan(modelled, S, T, objective, limits=ONE, volume_gb=volume_gb)
    assert sure.relays == (R,)
    assert (sure.promised_gbps or 0.0) >= 3.29
    likely = plan(
        modelled, S, T, objective, limits=replace(ONE, confidence=0.5), volume_gb=volume_gb
    )
    assert likely.relays == ()
    assert likely.expected_gbps == pytest.approx(4.0)


def test_a_ceiling_counts_expected_rates(modelled: Grid) -> None:
    found = plan(modelled, S, T, MaximizeThroughput(max_usd_per_gb=0.08), limits=ONE)
    assert found.relays == ()
    assert found.expected_gbps == pytest.approx(found.throughput_gbps)
    assert found.promised_gbps == pytest.approx(3.0, rel=1e-3)
    assert found.confidence == 0.9


def test_without_a_floor_of_the_user_the_direct_rate_is_expected(modelled: Grid) -> None:
    assert plan(modelled, S, T, MinimizeCost(), limits=ONE).relays == ()


def test_what_nothing_promises_is_planned_with_less_confidence_and_said(modelled: Grid) -> None:
    found = plan(modelled, S, T, MinimizeCost(3.7), limits=ONE)
    (note,) = [note for note in found.notes if "promises" in note]
    assert note.startswith("no plan promises 3.7 Gbit/s with a confidence of 0.9")
    assert (found.promised_gbps or 0.0) < 3.7 <= (found.expected_gbps or 0.0)
    with pytest.raises(PlanInfeasible, match="no plan moves"):
        plan(modelled, S, T, MinimizeCost(4.5), limits=ONE)


def test_what_several_paths_lack_adds_up_in_squares(small_grid: GridOf) -> None:
    """Both paths may be slow, but seldom at once."""
    halves = errors((0.1, 0.5), {"aws>gcp": (0.5, 1.0), "aws>azure": (0.5, 1.0)})
    rates = small_grid({(S, T): (2.0, 0.05), (S, R): (4.0, 0.05), (R, T): (4.0, 0.05)})
    grid = replace(rates.with_edges(measured=rates.measured & False), model=halves)
    found = plan(grid, S, T, MaximizeThroughput(max_usd_per_gb=0.075), limits=ONE)
    lost = [path.flow_gbps / 2 for path in found.paths]
    assert len(lost) == 2
    assert found.expected_gbps is not None
    promised = found.expected_gbps - sum(one**2 for one in lost) ** 0.5
    assert found.promised_gbps == pytest.approx(promised, rel=0.02)


def test_rates_that_were_measured_are_promised(modelled: Grid) -> None:
    measured = modelled.with_edges(measured=~modelled.measured)
    found = plan(measured, S, T, MinimizeCost(3.3), limits=ONE)
    assert found.relays == ()
    assert found.promised_gbps == found.expected_gbps


@pytest.mark.parametrize("confidence", [0.4, 1.0, 2.0])
def test_a_confidence_is_a_share(confidence: float) -> None:
    with pytest.raises(ConfigurationInvalid, match="confidence must be a number"):
        Limits(confidence=confidence)
