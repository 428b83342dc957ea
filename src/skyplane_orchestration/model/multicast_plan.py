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
from typing import Any

from skyplane_gateway.common.schema import Document
from skyplane_orchestration.model.plan import (
    GridReference,
    InstanceGroup,
    PlanCost,
    PlanEdge,
    SolverReport,
)

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
    Document, what="a plan for several destinations", version=MULTICAST_SCHEMA_VERSION
):
    """The overlay that brings every byte from one source to several destinations.

    Attributes:
        src, destinations: region tags.
        objective: what was asked for, as plain data (the job's objective `to_dict()`).
        throughput_gbps: planned rate at which each destination gets the data.
        volume_gb: size of the source data, counted once; None when not given.
        transfer_s: predicted seconds of moving, without provisioning; None without volume.
        provision_s: predicted seconds until the gateways are up.
        cost: per GB of source data that has reached all destinations.
        instances: region tag -> instances there.
        edges: what each edge carries; a byte counts once per edge.
        binding: names of the limits that stop the plan from being better.
        separate: what one plan per destination would cost.
        notes: what a reader of the plan should know.
    """

    src: str
    destinations: tuple[str, ...]
    objective: Mapping[str, Any]
    throughput_gbps: float
    volume_gb: float | None
    transfer_s: float | None
    provision_s: float
    cost: PlanCost
    instances: Mapping[str, InstanceGroup]
    edges: tuple[PlanEdge, ...]
    trees: tuple[PlanTree, ...]
    binding: tuple[str, ...]
    solver: SolverReport
    grid: GridReference
    separate: SeparateTransfers
    notes: tuple[str, ...] = field(default=())

    @property
    def relays(self) -> tuple[str, ...]:
        """Regions that are neither source nor destination, in order of their names."""
        return tuple(sorted(set(self.instances) - {self.src, *self.destinations}))

    @property
    def instance_count(self) -> int:
        return sum(group.count for group in self.instances.values())
