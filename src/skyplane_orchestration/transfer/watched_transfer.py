"""A submitted transfer that another process watches or takes to its end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from skyplane_gateway.common.schema import Document
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer

#: Why a watch ends: the transfer has ended; its lead does not answer, or leads no longer; it has
#: cost its limit; the deadline of the task has passed; another plan is better (see `in_flight`).
WatchEnd = Literal["ended", "silent", "budget", "deadline", "slow"]


@dataclass(frozen=True, slots=True)
class WatchedTransfer(Document, what="a watched transfer"):
    """A submitted transfer, for a process that has no state of it. Its document has no secret.

    Args:
        owns_fleet: the fleet has been started for this transfer alone, and ends with it.
        deadline_unix_s: when the watch ends at the latest; None: never.
    """

    job: TransferJob
    fleet: Fleet
    submitted: SubmittedTransfer
    owns_fleet: bool = False
    deadline_unix_s: float | None = None
