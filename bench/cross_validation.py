"""How far the throughput model is off for regions that it has never seen."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bench.fit_throughput_model import fit
from bench.report import Case
from skyplane_orchestration.grid_rules import modelled_rtt_ms, modelled_throughput_gbps
from skyplane_orchestration.grids import Grid, pairwise_distance_km

SEED = 20220129
FOLDS = 10
FLOOR_PERCENT, GOAL_PERCENT = 10.0, 9.0

Mask = NDArray[np.bool_]


def held_out_groups(regions: int, folds: int) -> list[Mask]:
    """A mask over the regions for each group; every region is in one of them."""
    order = list(range(regions))
    random.Random(SEED).shuffle(order)
    groups = []
    for number in range(folds):
        held = np.zeros(regions, dtype=bool)
        held[order[number::folds]] = True
        groups.append(held)
    return groups


def held_out_errors(measured: Grid, held: Mask) -> NDArray[np.float64]:
    """Relative errors on every measured edge at a held-out region, fitted without these.

    The round trip comes from distance, as it does for a region that nobody has measured.
    """
    touched = held[:, None] | held[None, :]
    known = replace(
        measured,
        measured=measured.measured & ~touched,
        rtt_measured=measured.rtt_measured & ~touched,
    )
    model = fit(known)
    rtt_ms = modelled_rtt_ms(model, pairwise_distance_km(measured.regions))
    gbps = modelled_throughput_gbps(model, [region.cloud for region in measured.regions], rtt_ms)
    asked = measured.measured & touched
    errors: NDArray[np.float64] = np.abs(gbps[asked] / measured.throughput_gbps[asked] - 1.0)
    return errors


def model_case(measured: Grid, folds: int, folds_run: int | None = None) -> Case:
    """The median over all held-out edges; `folds_run` takes only the first of the groups."""
    groups = held_out_groups(len(measured.regions), folds)[:folds_run]
    errors = np.concatenate([held_out_errors(measured, held) for held in groups])
    return Case(
        f"model: median relative error for held-out regions, {len(groups)} of {folds} groups",
        100.0 * float(np.median(errors)),
        "% error",
        floor=FLOOR_PERCENT,
        goal=GOAL_PERCENT,
    )
