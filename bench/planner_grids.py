"""The shipped prices and rates against the measured grid of January 2022.

`price_differences.yaml` lists why the rules differ from that grid's price table. A pair that
differs without a group that explains it is below the floor.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import numpy as np
import yaml

from bench.report import Case
from skyplane_orchestration.grids import FROM_TABLE, Grid, load_grid
from skyplane_orchestration.grids.price_rules import billed_by

#: Beside the repository; it is no part of it.
MEASURED_DIR = Path(__file__).resolve().parents[2] / "shared" / "grids" / "skyplane-2022-01"

DIFFERENCES = Path(__file__).with_name("price_differences.yaml")


@dataclass(frozen=True, slots=True)
class PricedPair:
    """One pair of the table: USD per billed unit as listed and by rule."""

    src: str
    dst: str
    listed: float
    by_rule: float

    @property
    def cloud(self) -> str:
        return self.src.partition(":")[0]

    @property
    def is_equal(self) -> bool:
        return math.isclose(self.listed, self.by_rule)


@dataclass(frozen=True, slots=True)
class Difference:
    """One row of a group: edges with the prices that are explained for them."""

    group: str
    edges: tuple[tuple[str, str], ...]
    listed: float
    by_rule: float

    def explains(self, pair: PricedPair) -> bool:
        return (
            math.isclose(self.listed, pair.listed)
            and math.isclose(self.by_rule, pair.by_rule)
            and any(
                fnmatchcase(pair.src, src) and fnmatchcase(pair.dst, dst) for src, dst in self.edges
            )
        )


def measured_grid() -> Grid | None:
    """The measured grid, or None if it is not there."""
    return load_grid(MEASURED_DIR) if MEASURED_DIR.is_dir() else None


def price_differences() -> list[Difference]:
    """The committed list, row by row."""
    groups = yaml.safe_load(DIFFERENCES.read_text(encoding="utf-8"))
    return [
        Difference(
            str(group["group"]),
            tuple((edge.partition(">")[0], edge.partition(">")[2]) for edge in row["edges"]),
            float(row["listed"]),
            float(row["rules"]),
        )
        for group in groups
        for row in group["rows"]
    ]


def priced_pairs(shipped: Grid, measured: Grid) -> Iterator[PricedPair]:
    """Every pair of the measured grid's price table, with prices as billed."""
    clouds = shipped.price_document["clouds"]
    for row, column in np.argwhere(measured.price_source == FROM_TABLE):
        if row == column:
            continue
        src, dst = (shipped.region(measured.tags[end]) for end in (row, column))
        billed = billed_by(clouds[src.cloud], src, dst).usd
        yield PricedPair(src.tag, dst.tag, float(measured.usd_per_gb[row, column]), billed)


def groups_of(pair: PricedPair, differences: Sequence[Difference]) -> set[str]:
    """The groups that explain a pair; exactly one if the list is correct."""
    return {one.group for one in differences if one.explains(pair)}


def price_cases(shipped: Grid, measured: Grid) -> list[Case]:
    """Rules against the list of 2022: AWS has to agree, the others to differ for a reason."""
    pairs = list(priced_pairs(shipped, measured))
    differences = price_differences()
    counts: Counter[str] = Counter()
    cases = []
    for cloud in ("aws", "gcp", "azure"):
        of_cloud = [pair for pair in pairs if pair.cloud == cloud]
        if not of_cloud:
            continue
        differing = [pair for pair in of_cloud if not pair.is_equal]
        groups = [groups_of(pair, differences) for pair in differing]
        counts.update(group for found in groups for group in found)
        cases += _cloud_cases(cloud, len(of_cloud), len(differing), groups.count(set()))
    named = dict.fromkeys(one.group for one in differences)
    cases += [Case(f"prices: {group}", counts[group], "pairs") for group in named if counts[group]]
    return cases


def _cloud_cases(cloud: str, pairs: int, differing: int, unexplained: int) -> list[Case]:
    wanted = pairs if cloud == "aws" else None
    equal = Case(
        f"prices: {cloud} pairs as billed that equal the list of 2022",
        pairs - differing,
        "pairs",
        ratio=(pairs - differing) / pairs,
        against=f"all {pairs} pairs, {differing} differ",
        floor=wanted,
        goal=wanted,
    )
    if not differing:
        return [equal]
    explained = Case(
        f"prices: {cloud} pairs that differ for a listed reason",
        differing - unexplained,
        "pairs",
        ratio=(differing - unexplained) / differing,
        against=f"{differing} that differ, {unexplained} unexplained",
        floor=differing,
        goal=differing,
    )
    return [equal, explained]
