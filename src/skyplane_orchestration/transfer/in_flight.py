"""Plans a running transfer again when an edge stays far below its share, or a region is lost.

The plan moves only on the instances that run. Bytes that wait for the network tell a slow edge
from a slow store, a pause at the destination, and the end of a transfer.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import PlanInfeasible
from skyplane_orchestration.formatting import duration, rate
from skyplane_orchestration.model.edge_measurement import EdgeMeasurement
from skyplane_orchestration.model.fleet import IN_PROCESS, LOCAL, Fleet, instance_of
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.transfer.actual_cost import SPENT
from skyplane_orchestration.transfer.learning import RouteRows, achieved_rates
from skyplane_orchestration.transfer.measured_plan import ProbeCost, plan_measured
from skyplane_orchestration.units import bytes_to_gb, gb_to_gbit, gbps_of

if TYPE_CHECKING:
    from skyplane_orchestration.transfer.transfer_monitor import Monitor

log = logging.getLogger(__name__)

#: Time between two looks at all gateways, and so how long an edge is slow before it counts.
WINDOW_S: Final = 60.0
#: An edge below this share of its flow is slow, if bytes waited for it for that share of a window.
SLOW: Final = 0.5
_WAITING: Final = 0.4
#: Another plan must end sooner by at least this share of the time that is left, and these seconds.
LEAST_GAIN: Final = 0.1
LEAST_GAIN_S: Final = 60.0
#: An estimate of what a change takes: the last journal, new routes, and the listings again.
CHANGE_S: Final = 30.0
#: Most plans of one call after the first, and the least time between two.
MOST_PLANS: Final = 3
PAUSE_S: Final = 300.0

#: Fields of a gateway's row of a route that only grow.
_COUNTERS: Final = ("frame_bytes", "saturated_s", "saturated_bytes")


@dataclass(frozen=True, slots=True)
class Look:
    """What was delivered in an epoch by a monotonic time, and what all gateways said then."""

    epoch: int
    at_s: float
    delivered_bytes: int
    rows: RouteRows


@dataclass(frozen=True, slots=True)
class Shortfall:
    """What all paths deliver; slow edges, with their rates; relays of which no gateway answers."""

    gbps: float
    slow: tuple[EdgeMeasurement, ...]
    lost: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NextPlan:
    """The fleet with the plan that it should get, and why."""

    fleet: Fleet
    reason: str


def shortfall(fleet: Fleet, before: Look, now: Look, at_unix_s: float) -> Shortfall | None:
    """What was wrong between two looks at a fleet; None if nothing was."""
    length_s = now.at_s - before.at_s
    # What the counters of routes gained from one look to the next.
    gained = {
        node: [
            {**row, **{name: row.get(name, 0) - old.get(name, 0) for name in _COUNTERS}}
            for row in rows
            for old in before.rows.get(node, ())
            if old["number"] == row["number"] and old["frame_bytes"] <= row["frame_bytes"]
        ]
        for node, rows in now.rows.items()
    }
    full = [
        one
        for one in achieved_rates(fleet, gained, at_unix_s, even_shared=True)
        if one.seconds >= _WAITING * length_s
    ]
    slow = tuple(one for one in full if one.gbps < SLOW * _flow_gbps(fleet.plan, one))
    lost = lost_regions(fleet, {*before.rows, *now.rows})
    delivered = now.delivered_bytes - before.delivered_bytes
    if not (full and (slow or lost)) or delivered <= 0:
        return None
    return Shortfall(gbps_of(delivered, length_s), slow, lost)


def is_worthwhile(rest_bytes: int, gbps: float, planned_gbps: float) -> bool:
    """Whether another plan, and the change to it, end sooner than what a transfer delivers now."""
    rest_gbit = gb_to_gbit(bytes_to_gb(rest_bytes))
    stay_s, move_s = rest_gbit / gbps, rest_gbit / planned_gbps + CHANGE_S
    return stay_s - move_s >= max(LEAST_GAIN_S, LEAST_GAIN * stay_s)


def lost_regions(fleet: Fleet, answered: Collection[str]) -> tuple[str, ...]:
    """The relays of which no gateway has answered. None if an end is silent: it may be no fleet."""
    silent = set(fleet.plan.instances)
    silent -= {handle.region for handle in fleet.gateways if handle.node in answered}
    return () if silent & {fleet.plan.src, fleet.plan.dst} else tuple(sorted(silent))


def _flow_gbps(plan: TransferPlan, one: EdgeMeasurement) -> float:
    return sum(edge.flow_gbps for edge in plan.edges if (edge.src, edge.dst) == (one.src, one.dst))


class InFlightPlanner:
    """Looks at one transfer at intervals, and finds the plan that should take over."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._clock = monitor.context.clock
        self._began_s = self._clock.monotonic()
        self._next_s = self._began_s + WINDOW_S
        self._before: Look | None = None
        self._plans_left = MOST_PLANS

    def look(self, status: TransferStatus) -> NextPlan | None:
        """Ask all gateways, if it is time to; the plan that is worth the change, if any."""
        fleet, now_s = self._monitor.fleet, self._clock.monotonic()
        if now_s < self._next_s or not self._may_plan(fleet):
            return None
        delivered = sum(status.delivered_bytes.values())
        now = Look(status.epoch, now_s, delivered, self._monitor.control.route_rows())
        before, self._before, self._next_s = self._before, now, now_s + WINDOW_S
        # Another fleet has another epoch.
        if before is None or before.epoch != now.epoch or not status.listed:
            return None
        found = shortfall(fleet, before, now, self._clock.wall())
        if found is None:
            return None
        self._before, self._next_s = None, now_s + PAUSE_S
        why = [
            f"{one.src} > {one.dst} delivered {rate(one.gbps)} of"
            f" {rate(_flow_gbps(fleet.plan, one))} Gbit/s"
            for one in found.slow
        ]
        why += [f"no gateway of {tag} answers" for tag in found.lost]
        return self._next(status, found, "; ".join(why))

    def without_lost(self, status: TransferStatus, error: str) -> NextPlan | None:
        """The plan without the regions whose gateways are gone, after that error of a repair."""
        fleet = self._monitor.fleet
        if not self._may_plan(fleet):
            return None
        lost = lost_regions(fleet, self._monitor.control.route_rows())
        why = f"the gateways of {', '.join(lost)} cannot be replaced: {error}"
        return self._next(status, Shortfall(0.0, (), lost), why) if lost else None

    def _may_plan(self, fleet: Fleet) -> bool:
        """Without a relay there is no other path on the same instances."""
        job = self._monitor.request.job
        instances = {instance_of(handle.node) for handle in fleet.gateways}
        return (
            self._plans_left > 0
            and bool(fleet.plan.relays)
            and fleet.whole_plan is None
            and fleet.provisioner not in (LOCAL, IN_PROCESS)
            and job.bytes_per_s is None
            and job.policy.on_no_capacity != "fail"
            # With fewer instances than planned, the shares of the plan say nothing.
            and len(instances) >= fleet.plan.instance_count
        )

    def _next(self, status: TransferStatus, found: Shortfall, why: str) -> NextPlan | None:
        """The fleet with the best plan for the rest, unless the plan stays."""
        fleet = self._monitor.fleet
        # Bytes with a receipt. Too many where some were sent twice.
        earlier = sum(row.size_bytes for row in status.earlier.sent if row.dst == fleet.plan.dst)
        moved = earlier + sum(status.delivered_bytes.values()) + status.server_side_bytes
        rest = max(1, status.size_bytes - status.skipped_bytes - status.failed_bytes - moved)
        measured = (*fleet.probes, *found.slow)
        try:
            plan = self._planned(status, measured, found.lost, bytes_to_gb(rest), moved)
            gbps = plan.promised_gbps or plan.throughput_gbps
            if found.gbps and not is_worthwhile(rest, found.gbps, gbps):
                instead = f"{rate(gbps)} instead of {rate(found.gbps)} Gbit/s"
                raise PlanInfeasible(f"another one with {instead} would not be worth the change")
            if self._monitor.control.carries_others(self._monitor.submitted):
                raise PlanInfeasible("the fleet carries another transfer")
        except PlanInfeasible as error:
            log.info("the plan stays, though %s: %s", why, error.message)
            return None
        self._plans_left -= 1
        after = duration(round(self._clock.monotonic() - self._began_s))
        over = ", ".join(" > ".join(path.regions) for path in plan.paths)
        now = f"{rate(plan.throughput_gbps)} Gbit/s over {over}"
        fleet = replace(fleet, plan=plan, probes=measured)
        return NextPlan(fleet, f"replanned after {after}: {why}; now {now}")

    def _planned(
        self,
        status: TransferStatus,
        measured: Sequence[EdgeMeasurement],
        lost: Collection[str],
        rest_gb: float,
        moved_bytes: int,
    ) -> TransferPlan:
        """The plan for the rest, whose cost includes what was spent. Raises PlanInfeasible."""
        context, plan = self._monitor.context, self._monitor.fleet.plan
        instances = {tag: group for tag, group in plan.instances.items() if tag not in lost}
        first = plan.replaces or plan.shape
        left = replace(plan, instances=instances, volume_gb=rest_gb, replaces=first)
        usd, seconds = self._monitor.budget.cost.total_usd, status.earlier.seconds + status.seconds
        spent = ProbeCost(seconds + CHANGE_S, usd, bytes_to_gb(moved_bytes))
        known_s, job = context.fleets.provisioner.provision_s, self._monitor.request.job
        found = plan_measured(context.grid(), job, left, measured, spent, known_s)
        total_usd = None if found.cost.total_usd is None else found.cost.total_usd + usd
        other_usd = {**found.cost.other_usd, SPENT: usd}
        return replace(found, cost=replace(found.cost, total_usd=total_usd, other_usd=other_usd))
