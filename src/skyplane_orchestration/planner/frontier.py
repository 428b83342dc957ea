"""The Pareto frontier: what each further Gbit/s costs (paper section 5.2)."""

from __future__ import annotations

from collections.abc import Sequence

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.grids import Grid
from skyplane_orchestration.job import (
    ANY_REGION,
    NO_LIMITS,
    Limits,
    MaximizeThroughput,
    MinimizeCost,
    Policy,
)
from skyplane_orchestration.plan import TransferPlan
from skyplane_orchestration.planner.answer import LEAST_GBPS, plan

#: A price that no plan has: the ceiling under which throughput alone counts.
_ANY_USD_PER_GB = 1e6
#: Prices and rates nearer than this are the same.
_SAME = 1e-6


def frontier(
    grid: Grid,
    src: str,
    dst: str,
    *,
    points: int = 20,
    volume_gb: float | None = None,
    objects: int | None = None,
    limits: Limits = NO_LIMITS,
    policy: Policy = ANY_REGION,
) -> tuple[TransferPlan, ...]:
    """Plans from the cheapest per GB to the fastest: each is faster and dearer than the last.

    The cheapest plan and the fastest are exact ends; between them the cheapest plan at each
    of `points` - 2 evenly spaced rates, without those that another plan beats in both.

    Raises what `plan` raises, and ConfigurationInvalid for fewer than two points.
    """
    if points < 2:
        raise ConfigurationInvalid(f"a frontier has two ends: {points} points are too few")

    def answer(objective: MinimizeCost | MaximizeThroughput, proof_s: float) -> TransferPlan:
        return plan(
            grid,
            src,
            dst,
            objective,
            volume_gb=volume_gb,
            objects=objects,
            limits=limits,
            policy=policy,
            proof_s=proof_s,
        )

    cheapest = answer(MinimizeCost(LEAST_GBPS), 0.0)
    fastest = answer(MaximizeThroughput(max_usd_per_gb=_ANY_USD_PER_GB), 0.0)
    low, high = cheapest.throughput_gbps, fastest.throughput_gbps
    if not cheapest.edges or high <= low * (1 + _SAME):
        return (cheapest,)
    step = (high - low) / (points - 1)
    between = [
        answer(MinimizeCost(low + number * step, exactly=True), 0.0)
        for number in range(1, points - 1)
    ]
    return _not_beaten([cheapest, *between, fastest])


def _not_beaten(plans: Sequence[TransferPlan]) -> tuple[TransferPlan, ...]:
    """In order of rate, without plans that are neither faster nor cheaper than another."""
    kept: list[TransferPlan] = []
    for candidate in sorted(plans, key=lambda one: -one.throughput_gbps):
        if not kept or candidate.cost.usd_per_gb < kept[-1].cost.usd_per_gb * (1 - _SAME):
            kept.append(candidate)
    return tuple(reversed(kept))
