"""Figures of the shipped prices and rates against the measured grid of January 2022."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from bench.report import Case
from skyplane_orchestration.grids import FROM_TABLE, Grid, load_grid
from skyplane_orchestration.grids.prices import billed_price

#: Beside the repository; it is no part of it.
MEASURED_DIR = Path(__file__).resolve().parents[2] / "shared" / "grids" / "skyplane-2022-01"


def measured_grid() -> Grid | None:
    """The measured grid, or None where it is not there."""
    return load_grid(MEASURED_DIR) if MEASURED_DIR.is_dir() else None


def equal_prices(shipped: Grid, measured: Grid, cloud: str) -> tuple[int, int]:
    """Pairs out of one cloud whose price as billed is the listed one, and how many there are.

    The table of the measured grid states what is billed, so nothing is converted.
    """
    rules = shipped.price_document["clouds"][cloud]
    equal = pairs = 0
    for row, column in np.argwhere(measured.price_source == FROM_TABLE):
        src, dst = measured.tags[row], measured.tags[column]
        if row == column or not src.startswith(f"{cloud}:"):
            continue
        billed = billed_price(
            rules,
            shipped.regions[shipped.index_of(src)],
            shipped.regions[shipped.index_of(dst)],
        )
        pairs += 1
        equal += math.isclose(billed, float(measured.usd_per_gb[row, column]))
    return equal, pairs


def price_cases(shipped: Grid, measured: Grid) -> list[Case]:
    """Rules against the list of 2022: AWS has to agree, the others have changed since."""
    cases = []
    for cloud in ("aws", "gcp", "azure"):
        equal, pairs = equal_prices(shipped, measured, cloud)
        if not pairs:
            continue
        cases.append(
            Case(
                f"prices: {cloud} pairs as billed that equal the list of 2022",
                equal,
                "pairs",
                ratio=equal / pairs,
                against=f"all {pairs} pairs, {pairs - equal} differ",
                floor=pairs if cloud == "aws" else None,
                goal=pairs if cloud == "aws" else None,
            )
        )
    return cases
