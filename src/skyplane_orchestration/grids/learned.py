"""Lays the rates that a deployment has measured itself over a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Final

import numpy as np

from skyplane_gateway.config import MAX_CONNECTIONS
from skyplane_orchestration.grids.edge_values import pair_caps, read_only
from skyplane_orchestration.grids.grid import EdgeValues, Grid
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement

#: A sample counts half as much as one that is so much newer.
HALF_LIFE_S: Final = 30 * 86400.0

#: What transfers have left: samples, cloud -> GB sent to the internet this month, and a remark for
#: every plan; empty for none.
History = tuple[Sequence[EdgeMeasurement], Mapping[str, float], str]


def with_learned(grid: Grid, history: Callable[[], History], now_unix_s: float) -> Grid:
    """The grid with learned rates in place of its own, where there are samples.

    The rate of an edge is the median of its samples, each as of one pair of instances with 64
    connections; a sample of fewer connections counts in proportion, as the planner counts them,
    up to the limits of the default instance types. Its weight halves with every `HALF_LIFE_S`, and
    is less with fewer connections. Edges of regions that the grid does not have are left out.

    Args:
        history: is called when a value by pair is first used.
    """

    return replace(grid, edges=cache(lambda: _laid_over(grid, history(), now_unix_s)))


def _laid_over(grid: Grid, history: History, now_unix_s: float) -> EdgeValues:
    samples, sent_gb, remark = history
    edges = grid.edges()
    caps = pair_caps(grid.regions, grid.types)
    rate, measured = edges.throughput_gbps.copy(), edges.measured.copy()
    learned = np.zeros_like(measured)
    days, count = edges.dates.rate.copy(), edges.dates.samples.copy()
    for place, found in _by_edge(grid, samples).items():
        rates = [_pair_gbps(one, float(caps[place])) for one in found]
        rate[place] = weighted_median(rates, [_weight(one, now_unix_s) for one in found])
        measured[place] = learned[place] = True
        newest_s = max(one.at_unix_s for one in found)
        days[place] = datetime.fromtimestamp(newest_s, UTC).date().isoformat()
        count[place] = len(found)
    return read_only(
        replace(
            edges,
            throughput_gbps=rate,
            measured=measured,
            dates=replace(edges.dates, rate=days, samples=count),
            learned=learned,
            remark=remark,
            sent_gb=sent_gb,
        )
    )


def _by_edge(
    grid: Grid, samples: Iterable[EdgeMeasurement]
) -> dict[tuple[int, int], list[EdgeMeasurement]]:
    found: dict[tuple[int, int], list[EdgeMeasurement]] = {}
    for one in samples:
        is_known = one.src in grid.index and one.dst in grid.index and one.src != one.dst
        if is_known and one.gbps > 0 and one.connections > 0 and one.instances > 0:
            found.setdefault((grid.index[one.src], grid.index[one.dst]), []).append(one)
    return found


def _pair_gbps(sample: EdgeMeasurement, cap_gbps: float) -> float:
    """The rate of one pair of instances with 64 connections."""
    own = sample.gbps / sample.instances
    return max(own, min(cap_gbps, sample.gbps * MAX_CONNECTIONS / sample.connections))


def _weight(sample: EdgeMeasurement, now_unix_s: float) -> float:
    age_s = max(0.0, now_unix_s - sample.at_unix_s)
    share = sample.connections / (MAX_CONNECTIONS * sample.instances)
    weight: float = 0.5 ** (age_s / HALF_LIFE_S) * min(1.0, share)
    return weight


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The least value at which half of the weight is reached."""
    reached, half = 0.0, sum(weights) / 2
    for value, weight in sorted(zip(values, weights, strict=True)):
        reached += weight
        if reached >= half:
            return value
    raise ValueError("a median needs a value")
