"""Prices by the volume of a month: the tiers that the bytes of a job fall into."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class MonthlyVolume:
    """What one account sends to the internet in a month, in GB (1e9 bytes).

    Attributes:
        already_gb: before the job; None: what the deployment's own history says, by cloud.
        volume_gb: by the job; 0 asks for the price of the next byte.
    """

    already_gb: float | None = 0.0
    volume_gb: float = 0.0


NOTHING_SENT: Final = MonthlyVolume()


class TierShare(NamedTuple):
    """Part of an amount: the number of its tier, from 1, and that tier's price per unit."""

    number: int
    usd: float
    amount: float


def tier_shares(
    prices: Sequence[float], tier_upto: Sequence[float], start: float, amount: float
) -> tuple[TierShare, ...]:
    """The shares of `amount` units that follow `start` units, first tier first.

    Args:
        prices: of each tier; the last one holds for all that is above. At least one.
        tier_upto: ends of the tiers; without them the first price holds for all.
    """
    count = max(1, min(len(prices), len(tier_upto)))
    ends = [float(end) for end in tier_upto[: count - 1]]
    first = bisect_right(ends, start)
    shares, low = [], start
    for at, upto in enumerate((*ends, math.inf)[first:], first):
        high = max(low, min(start + amount, upto))
        if high > low or at == first:
            shares.append(TierShare(at + 1, float(prices[at]), high - low))
        low = high
    return tuple(shares)


def average_usd(shares: Sequence[TierShare]) -> float:
    """The price per unit over all shares."""
    if len(shares) == 1:
        return shares[0].usd
    return sum(one.usd * one.amount for one in shares) / sum(one.amount for one in shares)
