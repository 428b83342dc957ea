"""Fig. 8: where transfers are bottlenecked, without and with relays (paper section 7.4).

A location is a bottleneck when it is used to at least 99 %; several may be at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from bench.paper.ablation import FASTER
from bench.paper.sweep import BUDGETS, PairResult
from bench.paper.utilisation import (
    CONNECTIONS,
    DESTINATION_VM,
    LOCATIONS,
    RELAY_VM,
    SOURCE_LINK,
    SOURCE_VM,
)

#: What the text says: overlays reduce transfers bottlenecked by the source's link by this.
PAPER_SOURCE_LINK_REDUCTION = 0.32


VMS = frozenset({SOURCE_VM, RELAY_VM, DESTINATION_VM})


@dataclass(frozen=True, slots=True)
class Bottlenecks:
    """Shares of all transfers, 0 to 1, by location; `none` has no location at 99 %.

    Attributes:
        direct_network, overlay_network: share in which no VM is full, so that links and
            connections are what holds.
        unmoved: budget -> share that the source's link holds and that no plan within that
            multiple of the direct price makes more than 1 % faster.
    """

    direct: dict[str, float]
    overlay: dict[str, float]
    direct_none: float
    overlay_none: float
    direct_network: float
    overlay_network: float
    unmoved: dict[str, float]

    @property
    def source_link_points(self) -> float:
        """Percentage points by which the share of the source's link falls."""
        return self.direct[SOURCE_LINK] - self.overlay[SOURCE_LINK]

    @property
    def source_link_reduction(self) -> float:
        """The same relative to the share without relays."""
        share = self.direct[SOURCE_LINK]
        return self.source_link_points / share if share else 0.0


def bottlenecks(results: Sequence[PairResult]) -> Bottlenecks:
    """Shares over all pairs."""
    direct = [result.direct_full for result in results]
    overlay = [result.overlay_full for result in results]
    return Bottlenecks(
        direct=_shares(direct),
        overlay=_shares(overlay),
        direct_none=_without_any(direct),
        overlay_none=_without_any(overlay),
        direct_network=_without_vm(direct),
        overlay_network=_without_vm(overlay),
        unmoved={f"{budget:g}": _unmoved(results, f"{budget:g}") for budget in BUDGETS},
    )


def _unmoved(results: Sequence[PairResult], budget: str) -> float:
    held = [one for one in results if SOURCE_LINK in one.direct_full]
    slow = sum(one.within[budget] <= FASTER * one.direct_gbps for one in held)
    return slow / len(results)


def _shares(found: Sequence[Sequence[str]]) -> dict[str, float]:
    counted = Counter(location for locations in found for location in set(locations))
    return {name: counted[name] / len(found) for name in (*LOCATIONS, CONNECTIONS)}


def _without_vm(found: Sequence[Sequence[str]]) -> float:
    return sum(not VMS & set(locations) for locations in found) / len(found)


def _without_any(found: Sequence[Sequence[str]]) -> float:
    return sum(not locations for locations in found) / len(found)
