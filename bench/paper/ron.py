"""Table 2: the direct path, RON's single relay and two plans, 16 GB on one route."""

from __future__ import annotations

from dataclasses import dataclass

from bench.paper.readings import (
    ONE_INSTANCE,
    PAPER_GBIT,
    Readings,
    chain_egress_usd_per_gb,
    chain_gbps,
)
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput, MinimizeCost
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import best_relay, direct, plan

ENDS = ("azure:eastus", "aws:ap-northeast-1")
VOLUME_GB = 16.0
VMS = 4
#: Time of the paper's RON.
RON_S = 21
GRIDFTP, DIRECT, RON, CHEAP, FAST = (
    "GridFTP, 1 VM",
    "direct, 1 VM",
    "RON's route, 4 VMs",
    "cost optimised, 4 VMs",
    "throughput optimised, 4 VMs",
)
#: Method -> (rate in the paper's unit, USD for 16 GB), measured.
PAPER = {
    GRIDFTP: (1.03, 1.40),
    DIRECT: (1.71, 1.40),
    RON: (6.02, 2.27),
    CHEAP: (3.88, 1.56),
    FAST: (8.07, 1.59),
}


@dataclass(frozen=True, slots=True)
class Row:
    """One method as predicted; rates in 2**30 bit/s.

    Attributes:
        egress_usd: of 16 GB; `usd`: with instances.
        speedup, price_ratio: over the direct path with one VM, egress alone.
    """

    method: str
    gbps: float
    egress_usd: float
    usd: float
    speedup: float
    price_ratio: float
    relays: tuple[str, ...]
    instances: int


@dataclass(frozen=True, slots=True)
class PricedRelay:
    """Four VMs in each region over one relay; rates in 2**30 bit/s, egress of 16 GB."""

    relay: str
    gbps: float
    received_gbps: float
    egress_usd: float


@dataclass(frozen=True, slots=True)
class Comparison:
    """Table 2.

    Attributes:
        rows: with up to four VMs in each region.
        ron_one_vm: RON's route with one VM in each region.
        priced: relays that cost what the paper's RON did, with VMs or without; the fastest first.
        received_direct_gbps: of the direct path with one VM, by the received rates.
    """

    rows: tuple[Row, ...]
    ron_one_vm: Row
    priced: tuple[PricedRelay, ...]
    received_direct_gbps: float

    def row(self, method: str) -> Row:
        return next(row for row in self.rows if row.method == method)


def paper_speedup(method: str) -> float:
    return PAPER[method][0] / PAPER[DIRECT][0]


def paper_price_ratio(method: str) -> float:
    return PAPER[method][1] / PAPER[DIRECT][1]


def comparison(readings: Readings) -> Comparison:
    """Table 2 in numbers; goal and ceiling of the two plans are the paper's own ratios.

    Raises UnknownRegion where the grid lacks one of its regions.
    """
    grid = readings.paper
    alone = direct(grid, *ENDS, 1, VOLUME_GB)
    limits = Limits(instance_limit=VMS)
    goal = MinimizeCost(paper_speedup(CHEAP) * alone.throughput_gbps)
    ceiling = MaximizeThroughput(max_usd_per_gb=paper_price_ratio(FAST) * alone.cost.usd_per_gb)
    found = {
        DIRECT: alone,
        RON: best_relay(grid, *ENDS, VMS, VOLUME_GB),
        CHEAP: plan(grid, *ENDS, goal, volume_gb=VOLUME_GB, limits=limits),
        FAST: plan(grid, *ENDS, ceiling, volume_gb=VOLUME_GB, limits=limits),
    }
    return Comparison(
        rows=tuple(_row(method, one, alone) for method, one in found.items()),
        ron_one_vm=_row(RON, best_relay(grid, *ENDS, 1, VOLUME_GB, limits=ONE_INSTANCE), alone),
        priced=_priced_relays(readings),
        received_direct_gbps=chain_gbps(readings.received, ENDS) / PAPER_GBIT,
    )


def vm_usd(grid: Grid) -> float:
    """Four VMs in three regions for the time of the paper's RON."""
    hourly = 2 * grid.instance_type("azure").usd_per_hour + grid.instance_type("aws").usd_per_hour
    return VMS * hourly * RON_S / 3600


def _priced_relays(readings: Readings) -> tuple[PricedRelay, ...]:
    grid, (src, dst) = readings.paper, ENDS
    found = []
    for relay in grid.tags:
        chain = (src, relay, dst)
        usd = VOLUME_GB * chain_egress_usd_per_gb(grid, chain) if relay not in ENDS else 0.0
        if PAPER[RON][1] - vm_usd(grid) <= usd <= PAPER[RON][1]:
            received = chain_gbps(readings.received, chain) / PAPER_GBIT
            found.append(PricedRelay(relay, VMS * chain_gbps(grid, chain), VMS * received, usd))
    return tuple(sorted(found, key=lambda one: -one.gbps))


def _row(method: str, made: TransferPlan, alone: TransferPlan) -> Row:
    egress = _egress_usd(made)
    return Row(
        method=method,
        gbps=made.throughput_gbps,
        egress_usd=egress,
        usd=made.cost.usd_per_gb * VOLUME_GB,
        speedup=made.throughput_gbps / alone.throughput_gbps,
        price_ratio=egress / _egress_usd(alone),
        relays=made.relays,
        instances=made.instance_count,
    )


def _egress_usd(made: TransferPlan) -> float:
    return made.cost.egress_usd or 0.0
