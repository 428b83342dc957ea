"""What the caller of a run gets besides the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypedDict

from skyplane_gateway.common.schema import check
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.output_format import require_manifest
from skyplane_orchestration.model.status import TransferStatus
from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer
from skyplane_orchestration.transfer.fleet_slot_wait import OnFull

#: Called with each status, after every poll.
OnStatus = Callable[[TransferStatus], None]

#: Called with the fleet and the transfer on it: after the submit and after each failover.
OnSubmitted = Callable[[Fleet, SubmittedTransfer], None]


class RunArguments(TypedDict, total=False):
    """The fields of `RunOptions`, as arguments of the verbs that run a job."""

    manifest: str | None
    on_status: OnStatus | None
    on_submitted: OnSubmitted | None
    on_fleet: Callable[[Fleet], None] | None
    on_full: OnFull | None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What the caller of a run gets besides the result.

    Args:
        manifest: path or URL where the whole list of objects is written, in the format of its
            suffix: `.parquet`, `.jsonl`, `.ndjson` or `.csv`.
        on_status: called with each status, after every poll.
        on_submitted: called with fleet and transfer: after the submit and after each failover.
        on_fleet: called with a fleet that the run has brought up.
        on_full: with it, a run waits while the deployment has `max_active_fleets` other fleets,
            and calls this before each pause. Without it, TooManyFleets is raised.
    """

    manifest: str | None = None
    on_status: OnStatus | None = None
    on_submitted: OnSubmitted | None = None
    on_fleet: Callable[[Fleet], None] | None = None
    on_full: OnFull | None = None

    def __post_init__(self) -> None:
        check(self)
        require_manifest(self.manifest)
