"""A grid whose rates this machine can carry: those of another grid, divided by one number.

Prices per GB stay, and an hour of an instance costs less by the same number. So a plan on the
scaled grid has the paths of a plan on the other one, and its rates divided by that number.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from skyplane_orchestration.grids import Grid


def write_scaled(grid: Grid, tags: Sequence[str], scale: float, directory: Path) -> None:
    """Write a grid directory with some regions of a grid, at a share 1 / scale of its rates."""
    directory.mkdir(parents=True)
    about = {
        "name": grid.name if scale == 1 else f"{grid.name} at 1/{scale:g}",
        "as_of": grid.as_of,
        "source": grid.source,
        "licence": grid.licence,
    }
    (directory / "grid.json").write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")
    regions = [grid.regions[grid.index_of(tag)] for tag in tags]
    header = ("region", "city", "country", "latitude", "longitude")
    rows = ((one.tag, one.city, one.country, one.latitude, one.longitude) for one in regions)
    _write(directory / "regions.csv", header, rows)
    numbers = [(src, dst, grid.index_of(src), grid.index_of(dst)) for src in tags for dst in tags]
    edges = [(src, dst, row, column) for src, dst, row, column in numbers if src != dst]
    for name, column, values in (
        ("throughput.csv", "gbps", grid.throughput_gbps / scale),
        ("latency.csv", "rtt_ms", grid.rtt_ms),
        ("price.csv", "usd_per_gb", grid.usd_per_gb),
    ):
        found = ((src, dst, f"{values[at]:.6g}") for src, dst, *at_ in edges for at in [tuple(at_)])
        _write(directory / name, ("src", "dst", column), found)
    clouds = {tag.partition(":")[0] for tag in tags}
    header = ("cloud", "instance_type", "vcpus", "egress_gbps", "ingress_gbps")
    types = (
        (
            one.cloud,
            one.name,
            one.vcpus,
            one.egress_gbps / scale,
            one.ingress_gbps / scale,
            one.connection_limit,
            one.usd_per_hour / scale,
            one.instance_limit,
        )
        for one in grid.types
        if one.cloud in clouds
    )
    more = ("connection_limit", "usd_per_hour", "instance_limit")
    _write(directory / "limits.csv", (*header, *more), types)


def _write(file: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)
