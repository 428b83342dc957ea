"""All figures of one measured grid."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bench.paper.ablation import Ablation, ablation
from bench.paper.bottlenecks import Bottlenecks, bottlenecks
from bench.paper.budgets import Route, budgets
from bench.paper.causes import OtherReadings, other_readings
from bench.paper.instances import Instances, instances
from bench.paper.motivation import Motivation, motivation
from bench.paper.readings import read_measurements, sent_over_received
from bench.paper.ron import Comparison, comparison
from bench.paper.sweep import PairResult, pair_result, sweep
from skyplane_orchestration.grids import Grid

#: The names of the figures, as on the command line.
FIGURES = ("1", "7", "8", "9c", "10", "table2")
#: Those that need all pairs.
OVER_ALL_PAIRS = frozenset({"7", "8", "9c", "10"})


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The computed figures; None for a figure that was not requested.

    Attributes:
        grid: the paper's reading of the measured grid.
        commit: of the planner that the all-pairs figures were computed with.
        pairs: ordered pairs that they are over.
        sent_over_received: median over the measured pairs, in one unit.
    """

    grid: Grid
    commit: str
    pairs: int
    sent_over_received: float
    motivation: Motivation | None
    ablation: Ablation | None
    bottlenecks: Bottlenecks | None
    budgets: tuple[Route, ...] | None
    instances: Instances | None
    comparison: Comparison | None


def evaluate(
    directory: Path, figures: frozenset[str], build: Path, *, fresh: bool = False
) -> Evaluation:
    """The requested figures of one grid directory.

    Raises GridInvalid, and UnknownRegion where the grid lacks a region of a figure.
    """
    readings = read_measurements(directory)
    grid = readings.paper
    made_at, results = "", tuple[PairResult, ...]()
    if figures & OVER_ALL_PAIRS:
        swept = sweep(PairResult, pair_result, readings, directory, build, fresh=fresh)
        made_at, results = swept.commit, swept.results
    found_instances = None
    if "10" in figures:
        others = sweep(OtherReadings, other_readings, readings, directory, build, fresh=fresh)
        found_instances = instances(grid, results, others)
    return Evaluation(
        grid=grid,
        commit=made_at,
        pairs=len(results),
        sent_over_received=sent_over_received(readings),
        motivation=motivation(readings) if "1" in figures else None,
        ablation=ablation(results) if figures & {"7", "9c"} else None,
        bottlenecks=bottlenecks(results) if "8" in figures else None,
        budgets=budgets(grid) if "9c" in figures else None,
        instances=found_instances,
        comparison=comparison(readings) if "table2" in figures else None,
    )
