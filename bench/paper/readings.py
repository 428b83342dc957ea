"""A measured grid read twice: as the receiver counted it, and as the paper's planner read it."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np

from skyplane_orchestration.errors import GridInvalid
from skyplane_orchestration.grids import Grid, load_grid
from skyplane_orchestration.model.job import Limits
from skyplane_orchestration.units import BYTES_PER_GB, BYTES_PER_GIB

#: Bit per "Gbit" in the paper's figures, in units of 1e9.
PAPER_GBIT = BYTES_PER_GIB / BYTES_PER_GB
SENT_COLUMN = "sent_gbps"
ONE_INSTANCE = Limits(instance_limit=1)
#: A price that no plan has: throughput alone counts.
ANY_USD_PER_GB = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class Readings:
    """Two grids over the same regions, prices and limits.

    Attributes:
        received: rates that the receiver counted, Gbit/s of 1e9 bit.
        paper: rates that the sender counted, in the paper's unit of 2**30 bit/s; the limits
            of instances are the same numbers, as the paper compares them without a factor.
    """

    received: Grid
    paper: Grid


def read_measurements(directory: Path) -> Readings:
    """Both readings of a grid directory.

    Raises GridInvalid for a bad grid, and for one without the senders' column.
    """
    received = load_grid(directory)
    sent = np.zeros_like(received.throughput_gbps)
    with (directory / "throughput.csv").open(encoding="utf-8") as stream:
        rows = csv.DictReader(stream)
        if SENT_COLUMN not in (rows.fieldnames or ()):
            raise GridInvalid(
                f"throughput.csv has no column {SENT_COLUMN}: the paper's figures are made of what"
                " the sender counted"
            )
        for row in rows:
            place = received.index_of(row["src"]), received.index_of(row["dst"])
            sent[place] = float(row[SENT_COLUMN]) / PAPER_GBIT
    return Readings(received, received.with_edges(throughput_gbps=sent))


def sent_over_received(readings: Readings) -> float:
    """How much more the senders counted: the median over all measured pairs."""
    pairs = readings.received.measured & ~np.eye(len(readings.received.tags), dtype=bool)
    sent = PAPER_GBIT * readings.paper.throughput_gbps[pairs]
    return float(np.median(sent / readings.received.throughput_gbps[pairs]))


def chain_gbps(grid: Grid, regions: tuple[str, ...]) -> float:
    """Rate of a chain of regions with one instance in each: its slowest hop or instance."""
    types = [grid.instance_type(tag.partition(":")[0]) for tag in regions]
    places = [(grid.index_of(tail), grid.index_of(head)) for tail, head in pairwise(regions)]
    return min(
        *(float(grid.throughput_gbps[place]) for place in places),
        *(kind.egress_gbps for kind in types[:-1]),
        *(kind.ingress_gbps for kind in types[1:]),
    )


def chain_egress_usd_per_gb(grid: Grid, regions: tuple[str, ...]) -> float:
    """Egress of a chain of regions: every hop is paid."""
    return sum(grid.egress_price(tail, head) for tail, head in pairwise(regions))
