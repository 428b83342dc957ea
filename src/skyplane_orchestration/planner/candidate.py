"""An overlay with its price and its time."""

from __future__ import annotations

import math
from dataclasses import dataclass

from skyplane_orchestration.model.plan import PlanCost
from skyplane_orchestration.planner.build_plan import PlanRequest
from skyplane_orchestration.planner.overlay import Overlay
from skyplane_orchestration.planner.pricing import plan_cost
from skyplane_orchestration.units import gb_to_gbit


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """An overlay with its price.

    Attributes:
        wait_s: seconds until its gateways respond.
        done_s: seconds until the job is done, its wait included; without a volume those of one GB,
            without a wait.
    """

    overlay: Overlay
    cost: PlanCost
    wait_s: float
    done_s: float

    @property
    def gbps(self) -> float:
        return self.overlay.throughput_gbps

    @property
    def usd_per_gb(self) -> float:
        """(4a)."""
        return self.cost.usd_per_gb

    @property
    def usd(self) -> float:
        """The total; infinite without a volume."""
        return math.inf if self.cost.total_usd is None else self.cost.total_usd

    def usd_with_time(self, time_usd_per_s: float) -> float:
        """The total and the value of its time in USD; those of one GB without a volume."""
        usd = self.usd_per_gb if self.cost.total_usd is None else self.cost.total_usd
        return usd + time_usd_per_s * self.done_s

    def decided_usd(self, time_usd_per_s: float) -> float:
        """What the number of instances decides: time, provisioning and minimum billing, in USD."""
        before_usd = (self.cost.boot_usd or 0.0) + (self.cost.minimum_billing_usd or 0.0)
        return time_usd_per_s * self.done_s + before_usd


def priced(
    request: PlanRequest,
    overlay: Overlay,
    wait_s: float | None = None,
    egress_usd_per_gb: float | None = None,
) -> Candidate:
    """An overlay with its price.

    Args:
        wait_s: that it is billed for; None for the wait of its own clouds.
        egress_usd_per_gb: in place of the prices of its edges.
    """
    own_wait_s = request.wait_s(overlay.instances)
    billed_wait_s = own_wait_s if wait_s is None else wait_s
    if egress_usd_per_gb is None:
        egress_usd_per_gb = plan_cost.egress_usd_per_gb(request.grid, overlay)
    cost = request.cost(egress_usd_per_gb, overlay, billed_wait_s)
    transfer_s = request.transfer_s_of(overlay)
    gb_s = gb_to_gbit(1.0) / overlay.throughput_gbps
    done_s = billed_wait_s + transfer_s if transfer_s else gb_s
    return Candidate(overlay, cost, own_wait_s, done_s)
