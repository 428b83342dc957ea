"""What a transfer has cost so far, the limit on it, and the totals over all tries.

Costs are computed at the plan's prices: bytes that leads report as delivered, on every hop;
instances of clouds from their launch to now; the plan's request cost once an object was copied;
the plan's other items with what they follow (`with_other_items`).
Bytes that were sent twice are in no report and so not in the sum. Gateways without instances count
for the time in which they came up, and in which a lead worked.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.journal.totals import Totals
from skyplane_orchestration.errors import BudgetReached
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.result import (
    NO_COST,
    CostOutcome,
    EdgeOutcome,
    TransferResult,
    TryOutcome,
)
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.transfer.actual_cost import (
    cost_of,
    earlier_cost,
    edge_outcomes,
    rate_gbps,
    with_other_items,
)
from skyplane_orchestration.transfer.instance_meter import InstanceMeter


@dataclass(frozen=True, slots=True)
class Epoch:
    """The last status of an epoch, and the fleet that it ran on."""

    fleet: Fleet
    status: TransferStatus
    cost: CostOutcome


class Budget:
    """The cost of one transfer over its epochs, against its limit (None: no limit).

    Attributes:
        epochs: of this try, by number.
    """

    def __init__(self, max_usd: float | None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._max_usd = max_usd
        self._clock = clock
        self._began_unix_s = clock.wall()
        self._instances = InstanceMeter()
        self.epochs: dict[int, Epoch] = {}
        #: The totals of the epochs before this try.
        self._before = Totals()
        self._fleet: Fleet | None = None
        #: The first one, which pays for its probe.
        self._probed: Fleet | None = None
        self._first_epoch = 0

    def record(self, fleet: Fleet, status: TransferStatus) -> None:
        """Take a lead's status; the time in which a fleet came up counts once."""
        if status.epoch <= min(self.epochs, default=status.epoch):
            # The first statuses of a lead may precede its reading of the journal.
            self._before = status.earlier
        if fleet is not self._fleet:
            self._fleet, self._first_epoch = fleet, status.epoch
            self._instances.show(fleet, self._clock.wall())
            # The fleet was measured once, however often it came up.
            self._probed = self._probed or fleet
        priced = fleet if fleet is self._probed else replace(fleet, probes=())
        cost = cost_of(priced, status, is_first=status.epoch == self._first_epoch)
        self.epochs[status.epoch] = Epoch(fleet, status, cost)

    @property
    def cost(self) -> CostOutcome:
        """The cost of all epochs of this try."""
        if self._fleet is None:
            return NO_COST
        rows = [epoch.cost for epoch in self.epochs.values()]
        cost = CostOutcome(
            egress_usd=sum(row.egress_usd for row in rows),
            instance_usd=self._own_instances_usd(),
            # Each has the plan's sum for the whole job.
            request_usd=max(row.request_usd for row in rows),
        )
        return with_other_items(cost, self._fleet.plan, self._own_bytes())

    def _own_bytes(self) -> int:
        rows = [epoch.status for epoch in self.epochs.values()]
        return sum(row.copied_bytes - row.copied_earlier_bytes for row in rows)

    def _own_instances_usd(self) -> float:
        """Instances in this try: from its beginning, where an earlier try has paid before."""
        if self._fleet is None or not self._fleet.instances:
            return sum(epoch.cost.instance_usd for epoch in self.epochs.values())
        paid_usd = self._instances.usd(self._began_unix_s) if self._before.seconds else 0.0
        return self._instances.usd(self._clock.wall()) - paid_usd

    def exceeded(self) -> BudgetReached | None:
        """The error to stop the transfer with, once its cost has reached the limit."""
        spent_usd = self.cost.total_usd
        if self._max_usd is None or spent_usd < self._max_usd:
            return None
        return BudgetReached.about(
            "the transfer was stopped: it has cost {spent:.4g} USD so far, and it may cost "
            "{most:.4g} USD ({max_job_usd}). What was copied stays at the destination; a "
            "resume may cost as much again, or what its own {max_job_usd} says",
            spent=spent_usd,
            most=self._max_usd,
        )

    def with_totals(self, result: TransferResult) -> TransferResult:
        """The result of the last epoch, with the totals of all tries and this try's own."""
        if self._fleet is None:
            return result
        own, before = self._this_try(), self._before
        seconds = own.seconds + before.seconds
        before_cost, unknown_bytes = earlier_cost(self._fleet, before)
        warning = (
            f"{unknown_bytes} bytes of earlier tries went between regions that this plan does not "
            "use; their egress is not in the cost"
        )
        # Earlier bytes have no rate where their time is not known.
        size = result.copied_bytes if before.seconds else own.copied_bytes
        cost = CostOutcome(
            egress_usd=own.cost.egress_usd + before_cost.egress_usd,
            instance_usd=self._instances_usd(own.cost, before_cost),
            request_usd=own.cost.request_usd,
        )
        return replace(
            result,
            seconds=seconds,
            goodput_gbps=rate_gbps(size, seconds),
            edges=self._edges(result.edges, seconds),
            cost=with_other_items(cost, self._fleet.plan, result.copied_bytes),
            this_try=own,
            warnings=(*result.warnings, warning) if unknown_bytes else result.warnings,
        )

    def _instances_usd(self, own: CostOutcome, before: CostOutcome) -> float:
        """Instances in all tries. Earlier ones may have used this fleet or another."""
        sum_usd = own.instance_usd + before.instance_usd
        return max(sum_usd, self._instances.usd(self._clock.wall()))

    def after_teardown(self, result: TransferResult) -> TransferResult:
        """The result, with the cost of its instances until now."""
        if self._fleet is None or not self._fleet.instances:
            return result
        own = self.cost
        before_cost, _ = earlier_cost(self._fleet, self._before)
        cost = replace(result.cost, instance_usd=self._instances_usd(own, before_cost))
        return replace(
            result,
            cost=with_other_items(cost, self._fleet.plan, result.copied_bytes),
            this_try=replace(result.this_try, cost=own),
        )

    def _this_try(self) -> TryOutcome:
        rows = [epoch.status for epoch in self.epochs.values()]
        size = self._own_bytes()
        seconds = sum(row.seconds for row in rows)
        return TryOutcome(
            copied=sum(row.copied - row.copied_earlier for row in rows),
            copied_bytes=size,
            seconds=seconds,
            goodput_gbps=rate_gbps(size, seconds),
            cost=self.cost,
        )

    def _edges(self, edges: tuple[EdgeOutcome, ...], seconds: float) -> tuple[EdgeOutcome, ...]:
        """The plan's edges with the bytes that all epochs have sent over them.

        Then edges of plans that this try has left, of which nothing is planned any more.
        """
        sent = Counter({(row.src, row.dst): row.size_bytes for row in self._before.sent})
        left: dict[tuple[str, str], EdgeOutcome] = {}
        for epoch in self.epochs.values():
            status = epoch.status
            for edge in edge_outcomes(epoch.fleet, status.delivered_bytes, status.seconds):
                sent[edge.src, edge.dst] += edge.sent_bytes
                left[edge.src, edge.dst] = replace(edge, planned_gbps=0.0)
        for edge in edges:
            left.pop((edge.src, edge.dst), None)
        return tuple(
            replace(edge, sent_bytes=size, achieved_gbps=rate_gbps(size, seconds))
            for edge in (*edges, *left.values())
            for size in (sent[edge.src, edge.dst],)
        )
