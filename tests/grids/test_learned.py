"""Rates that a deployment has measured itself, laid over a grid."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.grids.learned import HALF_LIFE_S, weighted_median, with_learned
from skyplane_orchestration.grids.provenance import edge_facts
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.job import MinimizeCost
from skyplane_orchestration.planner import plan

A, B, C = "aws:us-east-1", "azure:eastus", "gcp:us-east4"
NOW_S = datetime(2026, 11, 20, 12, 0, tzinfo=UTC).timestamp()
SAMPLE = EdgeMeasurement(A, C, 2.0, 64, 1, 30.0, 7_500_000_000, NOW_S, "achieved")


def laid_over(*samples: EdgeMeasurement, remark: str = "") -> Grid:
    return with_learned(load_grid(), lambda: (samples, {}, remark), NOW_S)


def rate(*samples: EdgeMeasurement) -> float:
    facts = edge_facts(laid_over(*samples), A, C)
    return float(facts["rate"]["gbps"])


def test_a_learned_edge_says_so_with_samples_and_date() -> None:
    grid = laid_over(SAMPLE, replace(SAMPLE, at_unix_s=NOW_S - 86400))
    assert edge_facts(grid, A, C)["rate"] == {
        "gbps": 2.0,
        "provenance": "learned",
        "as_of": "2026-11-20",
        "samples": 2,
    }
    # The other direction, and every other edge, is as it was.
    assert edge_facts(grid, C, A)["rate"] == edge_facts(load_grid(), C, A)["rate"]
    assert not load_grid().measured.any()


def test_the_rate_is_of_one_pair_with_64_connections() -> None:
    three = replace(SAMPLE, gbps=6.0, connections=192, instances=3)
    assert rate(three) == 2.0
    few = replace(SAMPLE, gbps=0.5, connections=16)
    assert rate(few) == 2.0
    # One connection at 1 Gbit/s does not promise 64: the default types of the pair carry 5.
    assert rate(replace(SAMPLE, gbps=1.0, connections=1)) == 5.0
    # What was measured is never cut.
    assert rate(replace(SAMPLE, gbps=9.0)) == 9.0


def test_older_samples_count_less() -> None:
    old = [replace(SAMPLE, gbps=1.0, at_unix_s=NOW_S - 2 * HALF_LIFE_S)] * 3
    assert rate(*old, replace(SAMPLE, gbps=4.0)) == 4.0  # 3/4 against 1
    recent = [replace(one, at_unix_s=NOW_S - HALF_LIFE_S) for one in old]
    assert rate(*recent, replace(SAMPLE, gbps=4.0)) == 1.0  # 3/2 against 1


def test_one_strange_sample_changes_nothing() -> None:
    assert rate(SAMPLE, SAMPLE, replace(SAMPLE, gbps=0.01)) == 2.0


def test_fewer_connections_count_less() -> None:
    few = replace(SAMPLE, gbps=0.25, connections=16)
    assert rate(few, few, few, SAMPLE) == 2.0


@pytest.mark.parametrize(
    "unusable",
    [
        {"src": "aws:no-such-1"},
        {"dst": "local:here"},
        {"dst": A},
        {"gbps": 0.0},
        {"connections": 0},
        {"instances": 0},
    ],
)
def test_samples_that_say_nothing_are_left_out(unusable: dict[str, Any]) -> None:
    assert not laid_over(replace(SAMPLE, **unusable)).edges().learned.any()


def test_a_median_is_reached_at_half_of_the_weight() -> None:
    assert weighted_median([3.0, 1.0, 2.0], [1.0, 1.0, 1.0]) == 2.0
    assert weighted_median([3.0, 1.0], [3.0, 1.0]) == 3.0


def test_a_plan_uses_learned_rates_and_says_so() -> None:
    def planned(grid: Grid) -> tuple[tuple[float, ...], tuple[str, ...]]:
        made = plan(grid, A, C, MinimizeCost(1.0), volume_gb=100.0)
        return tuple(edge.capacity_gbps for edge in made.edges), made.notes

    capacities, notes = planned(laid_over(SAMPLE))
    assert capacities == (2.0,)
    assert "rates of 1 edge: measured here, newest 2026-11-20" in notes
    assert not [note for note in planned(load_grid())[1] if "measured here" in note]
    assert not [note for note in planned(laid_over())[1] if "measured here" in note]
    assert "it cannot be read" in planned(laid_over(remark="it cannot be read"))[1]
