"""The plan for one source and several destinations: distribution trees and their price.

`to_dict()` is what `skyplane-orch plan SRC DST DST... --json` prints. Every destination gets
every byte at the plan's rate. `usd_per_gb` is per GB of source data that has reached **all**
destinations: a GB that goes to three destinations counts once.

Such a plan is for comparison: gateways of this release send each byte to one sink, so a copy
to several destinations is one transfer per destination.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from skyplane_orchestration.model.plan import OverlayPlan

MULTICAST_SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class PlanTree:
    """One distribution tree: edges that join the source to every destination.

    The flows of all trees add up to the throughput; a byte travels over each edge of its
    tree once, whatever number of destinations lies behind it.
    """

    edges: tuple[tuple[str, str], ...]
    flow_gbps: float


@dataclass(frozen=True, slots=True)
class SeparateTransfers:
    """What one plan per destination would cost, each at the same rate and by itself.

    Attributes:
        usd_per_gb: destination -> price of its own plan; None where it has none.
        total_usd_per_gb: their sum, per GB of source data; None when one has no plan.
        saving_usd_per_gb: that sum less the price of the shared plan. Below zero it says
            what the quotas cost: then `fits_quotas` is False.
        fits_quotas: whether the quotas allow the instances of all these plans at once.
    """

    usd_per_gb: Mapping[str, float | None]
    total_usd_per_gb: float | None
    saving_usd_per_gb: float | None
    fits_quotas: bool


@dataclass(frozen=True, slots=True)
class MulticastPlan(
    OverlayPlan, what="a plan for several destinations", version=MULTICAST_SCHEMA_VERSION
):
    """The overlay that brings every byte from one source to several destinations.

    Attributes:
        destinations: region tags.
        cost: per GB of source data that has reached all destinations.
        separate: what one plan per destination would cost.
        notes: what a reader of the plan should know.
    """

    destinations: tuple[str, ...]
    trees: tuple[PlanTree, ...]
    separate: SeparateTransfers
    notes: tuple[str, ...] = field(default=())

    @property
    def relays(self) -> tuple[str, ...]:
        """Regions that are neither source nor destination, in order of their names."""
        return tuple(sorted(set(self.instances) - {self.src, *self.destinations}))
