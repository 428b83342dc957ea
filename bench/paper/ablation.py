"""Fig. 7: predicted throughput of all pairs without and with relays (paper section 7.3)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from bench.paper.sweep import BUDGETS, PairResult, by_clouds

#: What the text says no transfer out of a cloud exceeds, one instance.
PAPER_MOST_GBPS = {"aws": 5.0, "gcp": 7.0}
#: Below this a plan counts as no faster.
FASTER = 1.01


@dataclass(frozen=True, slots=True)
class CloudPair:
    """All pairs from one cloud to another; rates in 2**30 bit/s, one instance per region.

    Attributes:
        direct_median, overlay_median, direct_most, overlay_most: of the pairs' rates.
        speedup: geometric mean of overlay over direct; `within`: the same by price ceiling.
        faster: share of pairs that relays make faster by more than 1 %.
        price_ratio: median price of the fastest plan over the direct path's.
        received_speedup: geometric mean on the received rates.
        direct_share, received_direct_share: median of the direct path's rate over the fastest
            plan's, as sent and as received.
        direct_gbps, overlay_gbps: the pairs' rates, in no order that matters.
    """

    src_cloud: str
    dst_cloud: str
    pairs: int
    direct_median: float
    overlay_median: float
    direct_most: float
    overlay_most: float
    speedup: float
    within: dict[str, float]
    faster: float
    price_ratio: float
    received_speedup: float
    direct_share: float
    received_direct_share: float
    direct_gbps: tuple[float, ...]
    overlay_gbps: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Ablation:
    """Fig. 7.

    Attributes:
        cloud_pairs: one per ordered pair of clouds; `every`: all pairs together.
        price_gap: median of the proven distance to the least price at the same rate.
        worst_gap: most that an integer plan's rate is proven to be below the best there is.
    """

    cloud_pairs: tuple[CloudPair, ...]
    every: CloudPair
    worst_gap: float
    price_gap: float


def ablation(results: Sequence[PairResult]) -> Ablation:
    """Fig. 7 in numbers."""
    return Ablation(
        cloud_pairs=tuple(_of(src, dst, pairs) for src, dst, pairs in by_clouds(results)),
        every=_of("all", "all", results),
        worst_gap=max(one.overlay_bound_gbps / one.overlay_gbps for one in results) - 1.0,
        price_gap=statistics.median(one.price_gap for one in results),
    )


def speedup(result: PairResult) -> float:
    return result.overlay_gbps / result.direct_gbps


def _of(src_cloud: str, dst_cloud: str, pairs: Sequence[PairResult]) -> CloudPair:
    direct = [one.direct_gbps for one in pairs]
    overlay = [one.overlay_gbps for one in pairs]
    gains = [speedup(one) for one in pairs]
    budgets = [f"{budget:g}" for budget in BUDGETS]
    return CloudPair(
        src_cloud=src_cloud,
        dst_cloud=dst_cloud,
        pairs=len(pairs),
        direct_median=statistics.median(direct),
        overlay_median=statistics.median(overlay),
        direct_most=max(direct),
        overlay_most=max(overlay),
        speedup=statistics.geometric_mean(gains),
        within={
            budget: statistics.geometric_mean(one.within[budget] / one.direct_gbps for one in pairs)
            for budget in budgets
        },
        faster=sum(gain > FASTER for gain in gains) / len(gains),
        price_ratio=statistics.median(
            one.overlay_usd_per_gb / one.direct_usd_per_gb for one in pairs
        ),
        received_speedup=statistics.geometric_mean(
            one.received_overlay_gbps / one.received_direct_gbps for one in pairs
        ),
        direct_share=statistics.median(1.0 / gain for gain in gains),
        received_direct_share=statistics.median(
            one.received_direct_gbps / one.received_overlay_gbps for one in pairs
        ),
        direct_gbps=tuple(direct),
        overlay_gbps=tuple(overlay),
    )
