"""Errors of the throughput model for regions that were not part of its fit."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from typing import Any

import numpy as np

from bench.fit_throughput_model import CLOUDS, fit
from bench.report import Case
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.grids.arrays import Floats, Mask
from skyplane_orchestration.grids.throughput_model import modelled_rtt_ms, modelled_throughput_gbps

SEED = 20220129
FOLDS = 10
#: Quantiles of the ratios that a model document states, and their round trips: those of the edges
#: that are nearer to one than to another.
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
RTT_MS = (15.0, 50.0, 110.0, 220.0)
FLOOR_PERCENT, GOAL_PERCENT = 10.0, 9.0


def held_out_groups(regions: int, folds: int) -> list[Mask]:
    """Masks over the regions; every region is in one group."""
    order = list(range(regions))
    random.Random(SEED).shuffle(order)
    groups = []
    for number in range(folds):
        held = np.zeros(regions, dtype=bool)
        held[order[number::folds]] = True
        groups.append(held)
    return groups


def touched_by(held: Mask) -> Mask:
    """The edges with an end in the mask."""
    return held[:, None] | held[None, :]


def unseen(measured: Grid, held: Mask) -> Grid:
    """The grid without rates and round trips of the held-out regions.

    Hidden values are removed, not only marked, so a fit that reads them fails.
    """
    hidden = touched_by(held)
    return measured.with_edges(
        throughput_gbps=np.where(hidden, np.nan, measured.throughput_gbps),
        measured=measured.measured & ~hidden,
        rtt_ms=np.where(hidden, np.nan, measured.rtt_ms),
        rtt_measured=measured.rtt_measured & ~hidden,
    )


def modelled_grid(like: Grid, model: Mapping[str, Any]) -> Grid:
    """The same regions, prices and instances, with modelled round trips and rates."""
    rtt_ms = modelled_rtt_ms(model, like.regions)
    rates = modelled_throughput_gbps(model, [region.cloud for region in like.regions], rtt_ms)
    nothing = np.zeros_like(like.measured)
    return like.with_edges(
        throughput_gbps=rates,
        measured=nothing,
        rtt_ms=rtt_ms,
        rtt_measured=nothing,
    )


def held_out_errors(measured: Grid, held: Mask) -> Floats:
    """Relative errors of rates at edges with a held-out end, (V, V); nan for any other edge."""
    modelled = modelled_grid(measured, fit(unseen(measured, held)))
    asked = measured.measured & touched_by(held)
    return _relative_errors(modelled.throughput_gbps, measured.throughput_gbps, asked)


def held_out_ratios(measured: Grid) -> dict[str, Any]:
    """Measured over modelled rates of held-out edges, by pair of clouds, at the quantiles `levels`.

    `quantiles[pair]` has a list per round trip of `rtt_ms`. A pair of clouds that lacks edges near
    one of them is left out.
    """
    clouds = np.array([region.cloud for region in measured.regions])
    ratios, nearest = [], []
    for held in held_out_groups(len(measured.regions), FOLDS):
        modelled = modelled_grid(measured, fit(unseen(measured, held)))
        asked = measured.measured & touched_by(held) & (modelled.throughput_gbps > 0)
        ratios.append(np.full(asked.shape, np.nan))
        ratios[-1][asked] = measured.throughput_gbps[asked] / modelled.throughput_gbps[asked]
        nearest.append(np.abs(modelled.rtt_ms[..., None] - np.array(RTT_MS)).argmin(axis=-1))
    known, at = np.array(ratios), np.array(nearest)
    quantiles = {}
    for src, dst in itertools.product(CLOUDS, repeat=2):
        chosen = np.isfinite(known) & (clouds[:, None] == src) & (clouds[None, :] == dst)
        groups = [known[chosen & (at == number)] for number in range(len(RTT_MS))]
        if all(len(group) for group in groups):
            quantiles[f"{src}>{dst}"] = [
                np.round(np.quantile(group, LEVELS), 3).tolist() for group in groups
            ]
    return {"levels": list(LEVELS), "rtt_ms": list(RTT_MS), "quantiles": quantiles}


def held_out_rtt_errors(measured: Grid, held: Mask) -> Floats:
    """Relative errors of round trips at edges with a held-out end, (V, V); nan elsewhere."""
    modelled = modelled_grid(measured, fit(unseen(measured, held)))
    return _relative_errors(
        modelled.rtt_ms, measured.rtt_ms, measured.rtt_measured & touched_by(held)
    )


def _relative_errors(modelled: Floats, measured: Floats, asked: Mask) -> Floats:
    errors = np.full(asked.shape, np.nan)
    errors[asked] = np.abs(modelled[asked] / measured[asked] - 1.0)
    return errors


def model_case(measured: Grid, folds: int, folds_run: int | None = None) -> Case:
    """The median over all held-out edges; `folds_run` takes only the first of the groups."""
    groups = held_out_groups(len(measured.regions), folds)[:folds_run]
    errors = np.array([held_out_errors(measured, held) for held in groups])
    return Case(
        f"model: median relative error for held-out regions, {len(groups)} of {folds} groups",
        100.0 * float(np.nanmedian(errors)),
        "% error",
        floor=FLOOR_PERCENT,
        goal=GOAL_PERCENT,
    )
