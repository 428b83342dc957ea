"""Fig. 10: relays against more instances on the direct path, between and within continents."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.paper.ablation import speedup
from bench.paper.readings import ANY_USD_PER_GB
from bench.paper.sweep import PairResult
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import Limits, MaximizeThroughput
from skyplane_orchestration.planner import direct, plan

#: The paper's geometric means over its numbers of instances, one route each.
PAPER_BETWEEN, PAPER_WITHIN = 2.08, 1.03
COUNTS = (1, 2, 4, 6, 8)

_COUNTRIES = {
    "Africa": "ZA",
    "Asia": "AE BH HK ID IL IN JP KR MY QA SA SG TH TW",
    "Europe": "AT BE CH DE ES FI FR GB IE IT NL NO PL SE",
    "North America": "CA MX US",
    "Oceania": "AU NZ",
    "South America": "BR CL",
}
CONTINENT = {code: name for name, codes in _COUNTRIES.items() for code in codes.split()}


@dataclass(frozen=True, slots=True)
class Example:
    """One route with as many instances per region as each count; rates in 2**30 bit/s."""

    src: str
    dst: str
    counts: tuple[int, ...]
    direct_gbps: tuple[float, ...]
    overlay_gbps: tuple[float, ...]

    @property
    def speedup(self) -> float:
        """Geometric mean over the counts."""
        pairs = zip(self.overlay_gbps, self.direct_gbps, strict=True)
        return statistics.geometric_mean(ours / alone for ours, alone in pairs)


@dataclass(frozen=True, slots=True)
class Distance:
    """All pairs between continents, or all within one.

    Attributes:
        speedup: geometric mean at equal instances per region.
        equal_total: the same when the overlay has no more instances in all than the direct
            path; both by the model, in which rates grow with instances without a loss.
        low, high: tenth and ninetieth percentile of the pairs' speedups, per region.
        example: the pair whose speedup is the median.
    """

    pairs: int
    speedup: float
    equal_total: float
    low: float
    high: float
    example: Example


@dataclass(frozen=True, slots=True)
class Instances:
    between: Distance
    within: Distance


def instances(grid: Grid, results: Sequence[PairResult]) -> Instances:
    """Fig. 10 in numbers; a pair with a region of unknown continent is in neither group."""
    continent = {region.tag: CONTINENT.get(region.country) for region in grid.regions}
    known = [one for one in results if continent[one.src] and continent[one.dst]]
    same = [one for one in known if continent[one.src] == continent[one.dst]]
    other = [one for one in known if continent[one.src] != continent[one.dst]]
    return Instances(between=_distance(grid, other), within=_distance(grid, same))


def _distance(grid: Grid, pairs: Sequence[PairResult]) -> Distance:
    ordered = sorted(pairs, key=lambda one: (speedup(one), one.src, one.dst))
    middle = ordered[len(ordered) // 2]
    return Distance(
        pairs=len(pairs),
        speedup=statistics.geometric_mean(map(speedup, pairs)),
        equal_total=statistics.geometric_mean(
            one.two_instances_gbps / one.direct_gbps for one in pairs
        ),
        low=speedup(ordered[len(ordered) // 10]),
        high=speedup(ordered[len(ordered) * 9 // 10]),
        example=example(grid, middle.src, middle.dst),
    )


def example(grid: Grid, src: str, dst: str) -> Example:
    """Direct path and overlay for every count of instances per region."""
    fastest = [
        plan(
            grid,
            src,
            dst,
            MaximizeThroughput(max_usd_per_gb=ANY_USD_PER_GB),
            limits=Limits(instance_limit=count),
        ).throughput_gbps
        for count in COUNTS
    ]
    return Example(
        src=src,
        dst=dst,
        counts=COUNTS,
        direct_gbps=tuple(direct(grid, src, dst, count).throughput_gbps for count in COUNTS),
        overlay_gbps=tuple(fastest),
    )
