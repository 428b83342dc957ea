"""Prices by the volume of a month: the tiers that the bytes of a job fall into."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class MonthlyVolume:
    """What one account sends to the internet in a month, in GB (1e9 bytes).

    Attributes:
        already_gb: before the job.
        volume_gb: by the job; 0 asks for the price of the next byte.
    """

    already_gb: float = 0.0
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
    if amount <= 0:
        at = bisect_right(ends, start)
        return (TierShare(at + 1, float(prices[at]), 0.0),)
    return tuple(_shares(prices, (*ends, float("inf")), start, start + amount))


def _shares(
    prices: Sequence[float], ends: Sequence[float], start: float, end: float
) -> Iterator[TierShare]:
    low = start
    for number, (usd, upto) in enumerate(zip(prices, ends, strict=False), 1):
        high = min(end, upto)
        if high > low:
            yield TierShare(number, float(usd), high - low)
            low = high


def average_usd(shares: Sequence[TierShare]) -> float:
    """The price per unit over all shares."""
    if len(shares) == 1:
        return shares[0].usd
    return sum(one.usd * one.amount for one in shares) / sum(one.amount for one in shares)
