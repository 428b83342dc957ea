"""Computes the figures of all ordered pairs, and keeps them on disk pair by pair.

A second run on the same grid reads them; `--fresh` computes them again.
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import Generic, TypeVar

from bench.paper.causes import OtherReadings
from bench.paper.rates import relaxed_most_gbps
from bench.paper.readings import ONE_INSTANCE, Readings, chain_gbps
from bench.paper.utilisation import full_locations
from bench.report import commit
from skyplane_gateway.common.schema import decode, encode
from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.model.job import MinimizeCost
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.planner import direct, plan

#: Ceilings as multiples of what the direct path costs, instances included.
BUDGETS = (1.2, 1.5)
#: Shares of the proven most throughput at which a plan counts as the fastest: the first that
#: integers reach.
NEARLY_MOST = (0.9995, 0.998, 0.99)
#: Instances of the direct path, source and destination together.
DIRECT_INSTANCES = 2
_PROGRESS_EVERY = 100
#: Rates nearer than this are the same.
_SAME = 1e-5


@dataclass(frozen=True, slots=True)
class PairResult:
    """One ordered pair, at most one instance in each region.

    Rates are in 2**30 bit/s of the paper's reading, except the last two: Gbit/s received.

    Attributes:
        direct_usd_per_gb, overlay_usd_per_gb: egress and instances, as in (4a).
        overlay_gbps: the cheapest integer plan at nearly the most throughput.
        overlay_bound_gbps: no plan is faster than this (relaxed).
        price_gap: proven relative distance of the overlay's price to the least at its rate.
        direct_full, overlay_full: locations of Fig. 8 that are used up.
        within: budget -> most throughput at that multiple of the direct price (relaxed).
        two_instances_gbps: most throughput with two instances in all (relaxed).
        received_overlay_gbps: most throughput on the received rates (relaxed).
    """

    src: str
    dst: str
    direct_gbps: float
    direct_usd_per_gb: float
    overlay_gbps: float
    overlay_bound_gbps: float
    overlay_usd_per_gb: float
    price_gap: float
    relays: int
    direct_full: tuple[str, ...]
    overlay_full: tuple[str, ...]
    within: dict[str, float]
    two_instances_gbps: float
    received_direct_gbps: float
    received_overlay_gbps: float


P = TypeVar("P", PairResult, OtherReadings)


@dataclass(frozen=True, slots=True)
class Sweep(Generic[P]):
    """All pairs, and the commit that they were computed at."""

    commit: str
    results: tuple[P, ...]


def sweep(
    kind: type[P],
    result_of: Callable[[Readings, str, str], P],
    readings: Readings,
    directory: Path,
    build: Path,
    *,
    fresh: bool = False,
) -> Sweep[P]:
    """The results of all ordered pairs; those of an earlier run are read from `build`."""
    build.mkdir(parents=True, exist_ok=True)
    kept = build / f"{kind.__name__}-{_digest(directory)}.jsonl"
    if fresh or not kept.is_file():
        kept.write_text(json.dumps({"commit": commit()}) + "\n", encoding="utf-8")
    made_at, found = _read(kept, kind)
    done = {(one.src, one.dst): one for one in found}
    wanted = list(permutations(readings.paper.tags, 2))
    missing = [pair for pair in wanted if pair not in done]
    started = time.monotonic()
    with kept.open("a", encoding="utf-8") as stream:
        for number, (src, dst) in enumerate(missing, start=1):
            result = result_of(readings, src, dst)
            done[src, dst] = result
            stream.write(json.dumps(encode(result)) + "\n")
            if number % _PROGRESS_EVERY == 0 or number == len(missing):
                stream.flush()
                spent = time.monotonic() - started
                print(f"{number} of {len(missing)} pairs, {spent:.0f} s", file=sys.stderr)
    return Sweep(made_at, tuple(done[pair] for pair in wanted))


def pair_result(readings: Readings, src: str, dst: str) -> PairResult:
    """Plans and baselines of one pair."""
    grid = readings.paper
    alone = direct(grid, src, dst)
    most = relaxed_most_gbps(grid, src, dst)
    best = _fastest(grid, src, dst, most)
    relayed = bool(best.relays)
    two_instances = alone.throughput_gbps
    received = chain_gbps(readings.received, (src, dst))
    if relayed:
        two_instances = relaxed_most_gbps(grid, src, dst, instances_in_all=DIRECT_INSTANCES)
    return PairResult(
        src=src,
        dst=dst,
        direct_gbps=alone.throughput_gbps,
        direct_usd_per_gb=alone.cost.usd_per_gb,
        overlay_gbps=best.throughput_gbps,
        overlay_bound_gbps=max(most, best.throughput_gbps),
        overlay_usd_per_gb=best.cost.usd_per_gb,
        price_gap=best.solver.gap,
        relays=len(best.relays),
        direct_full=full_locations(alone, grid),
        overlay_full=full_locations(best, grid),
        within=_within_budgets(readings.paper, alone, best),
        two_instances_gbps=two_instances,
        received_direct_gbps=received,
        received_overlay_gbps=relaxed_most_gbps(readings.received, src, dst),
    )


def _fastest(grid: Grid, src: str, dst: str, most: float) -> TransferPlan:
    """The cheapest integer plan at nearly the largest throughput.

    The last fraction of a percent can be expensive or beyond integers.
    """
    for share in NEARLY_MOST[:-1]:
        with suppress(PlanInfeasible):
            return _cheapest_at(grid, src, dst, share * most)
    return _cheapest_at(grid, src, dst, NEARLY_MOST[-1] * most)


def _cheapest_at(grid: Grid, src: str, dst: str, gbps: float) -> TransferPlan:
    goal = MinimizeCost(gbps, exactly=True)
    return plan(grid, src, dst, goal, limits=ONE_INSTANCE)


def _within_budgets(grid: Grid, alone: TransferPlan, best: TransferPlan) -> dict[str, float]:
    """Most throughput by budget; the fastest plan's own where the budget pays for that."""
    found: dict[str, float] = {}
    most = 0.0
    for budget in BUDGETS:
        ceiling = budget * alone.cost.usd_per_gb
        if best.cost.usd_per_gb <= ceiling or most >= best.throughput_gbps * (1 - _SAME):
            most = best.throughput_gbps
        else:
            most = relaxed_most_gbps(grid, best.src, best.dst, max_usd_per_gb=ceiling)
        found[f"{budget:g}"] = most
    return found


def _digest(directory: Path) -> str:
    """Names and contents of the grid's files, as a short name."""
    content = hashlib.sha256()
    for file in sorted(directory.iterdir()):
        if file.is_file():
            content.update(file.name.encode())
            content.update(file.read_bytes())
    return content.hexdigest()[:16]


def _read(kept: Path, kind: type[P]) -> tuple[str, list[P]]:
    """The commit and the pairs of a file; a line that was cut short is dropped."""
    text = kept.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        kept.write_text(whole, encoding="utf-8")
    first, *lines = map(json.loads, whole.splitlines())
    return str(first["commit"]), [decode(kind, line, str(kept)) for line in lines]


def by_clouds(results: Sequence[PairResult]) -> Iterator[tuple[str, str, list[PairResult]]]:
    """(source cloud, destination cloud, its pairs), clouds in order of their names."""
    groups: dict[tuple[str, str], list[PairResult]] = {}
    for one in results:
        groups.setdefault((one.src.partition(":")[0], one.dst.partition(":")[0]), []).append(one)
    for (src_cloud, dst_cloud), pairs in sorted(groups.items()):
        yield src_cloud, dst_cloud, pairs
