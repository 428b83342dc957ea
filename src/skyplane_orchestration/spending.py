"""What a transfer has cost so far, and whether that is as much as it may.

Counted at the plan's prices from what the leads report, as the result's cost is: payload
with a receipt on every hop that it took, instances from provision to now, and the plan's
sum for requests once anything was copied. What was sent twice, and the time in which nobody
led, is in no report and so not in the sum.
"""

from __future__ import annotations

from dataclasses import replace

from skyplane_orchestration.errors import BudgetReached
from skyplane_orchestration.fleet import Fleet
from skyplane_orchestration.outcome import TransferStatus, cost_of
from skyplane_orchestration.result import CostOutcome, TransferResult


class Spending:
    """Follows one transfer over its epochs.

    Args:
        most_usd: what it may cost; None for no limit.
    """

    def __init__(self, most_usd: float | None) -> None:
        self._most_usd = most_usd
        self._costs: dict[int, CostOutcome] = {}
        self._fleet: Fleet | None = None
        self._first_epoch = 0

    def note(self, fleet: Fleet, status: TransferStatus) -> None:
        """Take in what a lead reports; the time in which a fleet came up counts once."""
        if fleet is not self._fleet:
            self._fleet, self._first_epoch = fleet, status.epoch
        up_s = fleet.provision_s if status.epoch == self._first_epoch else 0.0
        self._costs[status.epoch] = cost_of(fleet, status, up_s)

    @property
    def cost(self) -> CostOutcome:
        """Over all epochs."""
        rows = self._costs.values()
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
            f"the planned cost of the transfer has come to {spent_usd:.4g} USD of the "
            f"{self._most_usd:.4g} USD that it may cost (max_job_usd), and it was stopped. What is "
            "committed is at the destination; to go on with the resume handle may cost as much "
            "again, or what its --max-job-usd says"
        )

    def entered_in(self, result: TransferResult) -> TransferResult:
        """The result with the cost of all epochs."""
        return replace(result, cost=self.cost) if self._costs else result
