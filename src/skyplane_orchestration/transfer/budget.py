"""What a transfer has cost so far, and whether that is as much as it may; and what its tries
have come to together.

Counted at the plan's prices from what the leads report, as the result's cost is: payload
with a receipt on every hop that it took, instances from provision to now, and the plan's
sum for requests once anything was copied. What was sent twice, and the time in which nobody
led, is in no report and so not in the sum.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from skyplane_gateway.journal.totals import Totals
from skyplane_orchestration.errors import BudgetReached
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.result import CostOutcome, EdgeOutcome, TransferResult, TryOutcome
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.transfer.costs import cost_of, earlier_cost, edge_outcomes, rate_gbps


@dataclass(frozen=True, slots=True)
class _Epoch:
    """What a lead said last, on the fleet of that time."""

    fleet: Fleet
    status: TransferStatus
    cost: CostOutcome


class Spending:
    """Follows one transfer over its epochs.

    Args:
        most_usd: what it may cost; None for no limit.
    """

    def __init__(self, most_usd: float | None) -> None:
        self._most_usd = most_usd
        self._epochs: dict[int, _Epoch] = {}
        #: Of the epochs before the first that this try has seen.
        self._before = Totals()
        self._fleet: Fleet | None = None
        self._first_epoch = 0

    def note(self, fleet: Fleet, status: TransferStatus) -> None:
        """Take in what a lead reports; the time in which a fleet came up counts once."""
        if status.epoch <= min(self._epochs, default=status.epoch):
            # A lead that has just begun has not read the journal yet.
            self._before = status.earlier
        if fleet is not self._fleet:
            self._fleet, self._first_epoch = fleet, status.epoch
        up_s = fleet.provision_s if status.epoch == self._first_epoch else 0.0
        self._epochs[status.epoch] = _Epoch(fleet, status, cost_of(fleet, status, up_s))

    @property
    def cost(self) -> CostOutcome:
        """Over all epochs of this try."""
        rows = [epoch.cost for epoch in self._epochs.values()]
        return CostOutcome(
            egress_usd=sum(row.egress_usd for row in rows),
            instance_usd=sum(row.instance_usd for row in rows),
            # The plan's own sum, for the whole job.
            request_usd=max((row.request_usd for row in rows), default=0.0),
        )

    def excess(self) -> BudgetReached | None:
        """The error of a transfer that may cost no more."""
        spent_usd = self.cost.total_usd
        if self._most_usd is None or spent_usd < self._most_usd:
            return None
        return BudgetReached(
            f"the transfer was stopped: its planned cost is {spent_usd:.4g} USD so far, and it may "
            f"cost {self._most_usd:.4g} USD (max_job_usd). What was copied stays at the "
            "destination; a resume may cost as much again, or what its --max-job-usd says"
        )

    def entered_in(self, result: TransferResult) -> TransferResult:
        """The result of the last epoch, made one of all tries with this one's own beside it."""
        if self._fleet is None:
            return result
        own, before = self._this_try(), self._before
        seconds = own.seconds + before.seconds
        before_cost, unknown_bytes = earlier_cost(self._fleet, before)
        warning = (
            f"{unknown_bytes} bytes of earlier tries went between regions that this plan does not "
            "use; their egress is not in the cost"
        )
        # Where nobody knows how long it took, what was copied before has no rate.
        size = result.copied_bytes if before.seconds else own.copied_bytes
        return replace(
            result,
            seconds=seconds,
            goodput_gbps=rate_gbps(size, seconds),
            edges=self._edges(result.edges, seconds),
            cost=CostOutcome(
                egress_usd=own.cost.egress_usd + before_cost.egress_usd,
                instance_usd=own.cost.instance_usd + before_cost.instance_usd,
                request_usd=own.cost.request_usd,
            ),
            this_try=own,
            warnings=(*result.warnings, warning) if unknown_bytes else result.warnings,
        )

    def _this_try(self) -> TryOutcome:
        rows = [epoch.status for epoch in self._epochs.values()]
        size = sum(row.copied_bytes - row.copied_earlier_bytes for row in rows)
        seconds = sum(row.seconds for row in rows)
        return TryOutcome(
            copied=sum(row.copied - row.copied_earlier for row in rows),
            copied_bytes=size,
            seconds=seconds,
            goodput_gbps=rate_gbps(size, seconds),
            cost=self.cost,
        )

    def _edges(self, edges: tuple[EdgeOutcome, ...], seconds: float) -> tuple[EdgeOutcome, ...]:
        """The plan's edges with what all epochs have sent over them."""
        sent = Counter({(row.src, row.dst): row.size_bytes for row in self._before.sent})
        for epoch in self._epochs.values():
            status = epoch.status
            for edge in edge_outcomes(epoch.fleet, status.delivered_bytes, status.seconds):
                sent[edge.src, edge.dst] += edge.sent_bytes
        return tuple(
            replace(edge, sent_bytes=size, achieved_gbps=rate_gbps(size, seconds))
            for edge in edges
            for size in (sent[edge.src, edge.dst],)
        )
