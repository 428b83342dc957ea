"""What the caller of a run gets besides the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.output_format import require_manifest
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.transfer.control import SubmittedTransfer
from skyplane_orchestration.transfer.fleet_slot_wait import OnFull

#: Called with each status, after every poll.
OnStatus = Callable[[TransferStatus], None]

#: Called with the fleet and the transfer on it: after the submit and after each failover.
OnSubmitted = Callable[[Fleet, SubmittedTransfer], None]


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the caller of a run gets besides the result; see `Client.wait` and `Client.run`."""

    manifest: str | None = None
    on_status: OnStatus | None = None
    on_submitted: OnSubmitted | None = None
    on_fleet: Callable[[Fleet], None] | None = None
    on_full: OnFull | None = None

    def __post_init__(self) -> None:
        require_manifest(self.manifest)
