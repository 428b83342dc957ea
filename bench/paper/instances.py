"""Fig. 10: relays against more instances on the direct path, between and within continents."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.paper import budgets, motivation, ron
from bench.paper.ablation import speedup
from bench.paper.causes import RECEIVED, THROTTLE, OtherReadings, Rates, is_inside
from bench.paper.readings import ANY_USD_PER_GB
from bench.paper.sweep import PairResult, Sweep
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
        as_fast: share of the pairs whose speedup is at least the paper's.
        slow_pairs, slow_speedup: number and mean of the pairs whose direct path has less than half
            of what an instance at the source may send.
        readings: name of another reading -> the mean by it (relaxed); see `causes`.
        example: the pair whose speedup is the median.
    """

    pairs: int
    speedup: float
    equal_total: float
    as_fast: float
    slow_pairs: int
    slow_speedup: float
    readings: dict[str, float]
    example: Example


@dataclass(frozen=True, slots=True)
class Instances:
    """Fig. 10.

    Attributes:
        throttled_most_gbps: most out of GCP to another cloud if its limit is one between clouds.
        readings_commit: that the other readings were computed at.
        named: speedups of the routes between continents that the paper names elsewhere.
    """

    between: Distance
    within: Distance
    throttled_most_gbps: float
    named: tuple[float, ...]
    readings_commit: str


def instances(grid: Grid, results: Sequence[PairResult], others: Sweep[OtherReadings]) -> Instances:
    """Fig. 10 in numbers; a pair with a region of unknown continent is in neither group."""
    continent = {region.tag: CONTINENT.get(region.country) for region in grid.regions}
    known = [one for one in results if continent[one.src] and continent[one.dst]]
    same = [one for one in known if continent[one.src] == continent[one.dst]]
    other = [one for one in known if continent[one.src] != continent[one.dst]]
    rates = {(one.src, one.dst): one.rates for one in others.results}
    leaving = [
        of_pair[THROTTLE][1]
        for (src, dst), of_pair in rates.items()
        if is_inside(src) and not is_inside(dst)
    ]
    named = {ron.ENDS, motivation.ENDS, *budgets.ROUTES}
    return Instances(
        between=_distance(grid, other, PAPER_BETWEEN, rates),
        within=_distance(grid, same, PAPER_WITHIN, rates),
        throttled_most_gbps=max(leaving, default=0.0),
        named=tuple(sorted(speedup(one) for one in other if (one.src, one.dst) in named)),
        readings_commit=others.commit,
    )


def _distance(
    grid: Grid,
    pairs: Sequence[PairResult],
    paper: float,
    rates: Mapping[tuple[str, str], Mapping[str, Rates]],
) -> Distance:
    of_pairs = [
        {RECEIVED: (one.received_direct_gbps, one.received_overlay_gbps), **rates[one.src, one.dst]}
        for one in pairs
    ]
    slow = [one for one in pairs if one.direct_gbps < _most_sent_gbps(grid, one.src) / 2]
    ordered = sorted(pairs, key=lambda one: (speedup(one), one.src, one.dst))
    middle = ordered[len(ordered) // 2]
    return Distance(
        pairs=len(pairs),
        speedup=statistics.geometric_mean(map(speedup, pairs)),
        equal_total=statistics.geometric_mean(
            one.two_instances_gbps / one.direct_gbps for one in pairs
        ),
        as_fast=sum(speedup(one) >= paper for one in pairs) / len(pairs),
        slow_pairs=len(slow),
        slow_speedup=statistics.geometric_mean(map(speedup, slow)) if slow else 1.0,
        readings={
            name: statistics.geometric_mean(one[name][1] / one[name][0] for one in of_pairs)
            for name in of_pairs[0]
        },
        example=example(grid, middle.src, middle.dst),
    )


def _most_sent_gbps(grid: Grid, tag: str) -> float:
    return grid.instance_type(tag.partition(":")[0]).egress_gbps


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
