"""Grids small enough to solve by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from skyplane_orchestration.grids import Grid, GridRegion, InstanceType, load_grid
from skyplane_orchestration.grids.grid import EdgeValues, ValueDates

GridOf = Callable[..., Grid]
#: Twelve regions of the public measurement of January 2022, and problems with their optima.
DOZEN = Path(__file__).with_name("measured_dozen")
FEW = (
    "aws:ap-southeast-1",
    "aws:ap-southeast-2",
    "aws:eu-west-3",
    "aws:us-east-1",
    "aws:us-west-2",
    "azure:eastus",
    "azure:francecentral",
    "gcp:asia-east1",
    "gcp:us-east4",
)


def grid_of(
    edges: Mapping[tuple[str, str], tuple[float, float]],
    types: Sequence[InstanceType] = (),
) -> Grid:
    """A grid from {(src, dst): (gbps, usd_per_gb)}; every cloud has one plain type."""
    tags = sorted({tag for edge in edges for tag in edge})
    index = {tag: number for number, tag in enumerate(tags)}
    shape = (len(tags), len(tags))
    gbps, price = np.zeros(shape), np.zeros(shape)
    for (src, dst), (rate, usd_per_gb) in edges.items():
        gbps[index[src], index[dst]] = rate
        price[index[src], index[dst]] = usd_per_gb
    plain = [
        InstanceType(cloud, f"{cloud}-plain", 4, 5.0, 10.0, 64, 3.6, 8)
        for cloud in ("aws", "gcp", "azure", "local")
        if cloud not in {kind.cloud for kind in types}
    ]
    none = np.full(shape, "", dtype="<U10")
    values = EdgeValues(
        throughput_gbps=gbps,
        measured=gbps > 0,
        rtt_ms=np.zeros(shape),
        rtt_measured=np.zeros(shape, dtype=bool),
        usd_per_gb=price,
        price_source=np.full(shape, "table", dtype="<U8"),
        dates=ValueDates(none, none, none, np.zeros(shape, dtype=np.int64)),
        learned=np.zeros(shape, dtype=bool),
    )
    return Grid(
        name="small",
        as_of="2026-01-01",
        source="",
        licence="",
        notes=(),
        regions=tuple(GridRegion(tag) for tag in tags),
        edges=lambda: values,
        types=(*types, *plain),
        price_document={
            "requests": {"aws": {"read": 0.0004, "write": 0.005, "list": 0.005}},
            "clouds": {},
        },
        index=index,
    )


@pytest.fixture(scope="session")
def small_grid() -> GridOf:
    return grid_of


@pytest.fixture(scope="session")
def triangle() -> Grid:
    """Direct 2.5 Gbit/s at 0.10; over azure:r 5 Gbit/s at 0.04 + 0.08; 3.6 USD an hour."""
    return grid_of(
        {
            ("aws:s", "gcp:t"): (2.5, 0.10),
            ("aws:s", "azure:r"): (5.0, 0.04),
            ("azure:r", "gcp:t"): (5.0, 0.08),
            ("gcp:t", "aws:s"): (2.5, 0.10),
        }
    )


@pytest.fixture(scope="session")
def shipped() -> Grid:
    return load_grid()


@pytest.fixture(scope="session")
def few(shipped: Grid) -> Grid:
    """Some regions of the shipped grid: its prices, types and rates, where plans are quick."""
    kept = [shipped.index_of(tag) for tag in FEW]
    values = shipped.edges()

    def cut(arrays: Any) -> dict[str, Any]:
        of = {one.name: getattr(arrays, one.name) for one in fields(arrays)}
        place = np.ix_(kept, kept)
        return {name: one[place] for name, one in of.items() if isinstance(one, np.ndarray)}

    return replace(
        shipped,
        regions=tuple(shipped.regions[number] for number in kept),
        index={tag: number for number, tag in enumerate(FEW)},
    ).with_edges(**cut(values), dates=replace(values.dates, **cut(values.dates)))


@pytest.fixture(scope="session")
def dozen() -> Grid:
    return load_grid(DOZEN)


@pytest.fixture(scope="session")
def measured(shared_dir: Path) -> Grid:
    """The public measurement of January 2022, over 63 regions."""
    return load_grid(shared_dir / "grids" / "skyplane-2022-01")
