"""Fig. 1: one pair, direct and over either of two relays, and the planner's choice."""

from __future__ import annotations

from dataclasses import dataclass

from bench.paper.readings import ONE_INSTANCE, Readings, chain_egress_usd_per_gb, chain_gbps
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import MaximizeThroughput
from skyplane_orchestration.planner import direct, plan

ENDS = ("azure:canadacentral", "gcp:asia-northeast1")
#: Relay (None: direct) -> the paper's rate, and its price relative to the direct path.
PAPER = {
    None: (6.2, 1.0),
    "azure:westus2": (12.4, 1.2),
    "azure:japaneast": (13.9, 1.9),
}
#: What the caption says of the path that Skyplane chooses.
PAPER_CHOICE = (2.0, 1.2)
#: A ceiling, as a multiple of the direct price, that rounds to the caption's 1.2.
CEILING = 1.25


@dataclass(frozen=True, slots=True)
class Way:
    """One path of Fig. 1, one instance in each region.

    Attributes:
        relay: its relay, None for the direct path.
        gbps, received_gbps: of the paper's reading, 2**30 bit/s; of the received, 1e9 bit/s.
        usd_per_gb, price_ratio: egress of all hops; the ratio to the direct path's.
    """

    relay: str | None
    gbps: float
    received_gbps: float
    usd_per_gb: float
    price_ratio: float
    paper_gbps: float
    paper_price_ratio: float


@dataclass(frozen=True, slots=True)
class Choice:
    """The most throughput under the ceiling, egress and instances counted, in one reading.

    Attributes:
        speedup, price_ratio: over the direct path with one instance.
    """

    relays: tuple[str, ...]
    gbps: float
    speedup: float
    price_ratio: float


@dataclass(frozen=True, slots=True)
class Motivation:
    ways: tuple[Way, ...]
    choice: Choice
    received_choice: Choice


def motivation(readings: Readings) -> Motivation:
    """Fig. 1 in numbers. Raises UnknownRegion where the grid lacks one of its regions."""
    grid = readings.paper
    direct_price = chain_egress_usd_per_gb(grid, ENDS)
    ways = []
    for relay, (paper_gbps, paper_ratio) in PAPER.items():
        regions = ENDS if relay is None else (ENDS[0], relay, ENDS[1])
        price = chain_egress_usd_per_gb(grid, regions)
        ways.append(
            Way(
                relay=relay,
                gbps=chain_gbps(grid, regions),
                received_gbps=chain_gbps(readings.received, regions),
                usd_per_gb=price,
                price_ratio=price / direct_price,
                paper_gbps=paper_gbps,
                paper_price_ratio=paper_ratio,
            )
        )
    return Motivation(tuple(ways), _choice(grid), _choice(readings.received))


def _choice(grid: Grid) -> Choice:
    alone = direct(grid, *ENDS)
    best = plan(
        grid,
        *ENDS,
        MaximizeThroughput(max_usd_per_gb=CEILING * alone.cost.usd_per_gb),
        limits=ONE_INSTANCE,
    )
    return Choice(
        relays=best.relays,
        gbps=best.throughput_gbps,
        speedup=best.throughput_gbps / alone.throughput_gbps,
        price_ratio=best.cost.usd_per_gb / alone.cost.usd_per_gb,
    )
