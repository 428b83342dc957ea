"""Other readings of the paper, one at a time: what each would change in Fig. 10."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from bench.paper import ron
from bench.paper.rates import relaxed_most_gbps
from bench.paper.readings import Readings, chain_gbps
from skyplane_orchestration.grids import Grid

#: The cloud whose limit the caption of Fig. 3 places between clouds: "GCP throttles inter-cloud
#: egress to 7 Gbps while AWS throttles all egress traffic to 5 Gbps".
CLOUD = "gcp"
THROTTLE = "GCP's 7 only between clouds"
PRIVATE = "the same, and 16 on each link within GCP"
RECEIVED = "received rates"
THROTTLE_RECEIVED = "received rates, GCP's 7 only between clouds"
SLOW = "only the direct path is as slow as in Table 2"
#: Direct and with relays, Gbit/s.
Rates = tuple[float, float]


@dataclass(frozen=True, slots=True)
class OtherReadings:
    """One ordered pair, one instance in each region: name of a reading -> rates (relaxed)."""

    src: str
    dst: str
    rates: dict[str, Rates]


def is_inside(tag: str) -> bool:
    return tag.startswith(f"{CLOUD}:")


def other_readings(readings: Readings, src: str, dst: str) -> OtherReadings:
    grid = readings.paper
    rates = grid.throughput_gbps.copy()
    rates[grid.index_of(src), grid.index_of(dst)] *= _share_of_the_base(grid)
    slow = grid.with_edges(throughput_gbps=rates)
    rates_of = {
        THROTTLE: _throttled(grid, src, dst),
        PRIVATE: _throttled(_with_private_links(grid), src, dst),
        THROTTLE_RECEIVED: _throttled(readings.received, src, dst),
        SLOW: (chain_gbps(slow, (src, dst)), relaxed_most_gbps(slow, src, dst)),
    }
    return OtherReadings(src, dst, rates_of)


def _share_of_the_base(grid: Grid) -> float:
    """Table 2's direct rate as a share of the grid's; 1 where the grid lacks its regions."""
    if not set(ron.ENDS) <= set(grid.tags):
        return 1.0
    return ron.PAPER[ron.DIRECT][0] / chain_gbps(grid, ron.ENDS)


@lru_cache(maxsize=1)
def _with_private_links(grid: Grid) -> Grid:
    """Every link within the cloud at what an instance takes in: the most that private addresses
    can give."""
    inside = np.array([is_inside(tag) for tag in grid.tags])
    nic = grid.instance_type(CLOUD).ingress_gbps
    rates = np.where(np.outer(inside, inside), nic, grid.throughput_gbps)
    return grid.with_edges(throughput_gbps=rates)


def _throttled(grid: Grid, src: str, dst: str) -> Rates:
    """Rates where the cloud's limit holds between clouds, and that of ingress within the cloud."""
    limit = grid.instance_type(CLOUD)
    wide = replace(limit, egress_gbps=limit.ingress_gbps)
    grid = replace(grid, types=tuple(wide if kind == limit else kind for kind in grid.types))
    direct = chain_gbps(grid, (src, dst))
    if is_inside(src) and not is_inside(dst):
        direct = min(direct, limit.egress_gbps)
    return direct, relaxed_most_gbps(grid, src, dst, throttle=(CLOUD, limit.egress_gbps))
