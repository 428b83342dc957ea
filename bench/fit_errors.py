"""Errors of a throughput model fitted to a grid.

    python -m bench.fit_errors GRID_DIR [--json]

Use it for your own measurements. It also prints the figures by route kind in
docs/internals/throughput-model.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np

from bench.cross_validation import (
    FOLDS,
    held_out_errors,
    held_out_groups,
    held_out_rtt_errors,
    model_case,
)
from bench.report import Case, finish
from skyplane_orchestration.grids import Grid, load_grid


def kind_cases(measured: Grid) -> list[Case]:
    """Held-out errors of round trips, and of rates by ordered pair of clouds."""
    groups = held_out_groups(len(measured.regions), FOLDS)
    late = np.array([held_out_rtt_errors(measured, held) for held in groups])
    errors = np.array([held_out_errors(measured, held) for held in groups])
    clouds = np.array([region.cloud for region in measured.regions])
    cases = [_median(f"round trips, {FOLDS} groups of regions held out", late)]
    for src in sorted(set(clouds)):
        for dst in sorted(set(clouds)):
            kind = (clouds[:, None] == src) & (clouds[None, :] == dst)
            if np.isfinite(errors[:, kind]).any():
                cases.append(_median(f"rates {src} -> {dst}", errors[:, kind]))
    return cases


def _median(what: str, errors: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Case:
    low, middle, high = np.nanquantile(errors, [0.1, 0.5, 0.9]) * 100.0
    return Case(
        f"median held-out error of {what}",
        float(middle),
        "% error",
        against=f"{low:.1f} % at the tenth, {high:.1f} % at the ninetieth percentile",
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("grid", help="directory of a measured grid")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_args(arguments)
    measured = load_grid(options.grid)
    cases = [model_case(measured, FOLDS), *kind_cases(measured)]
    return finish("fit_errors", cases, runs=1, as_json=options.json)


if __name__ == "__main__":
    raise SystemExit(main())
