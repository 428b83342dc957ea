"""What the caller of a run gets besides the result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skyplane_orchestration.model.output_format import require_manifest

if TYPE_CHECKING:
    from skyplane_orchestration.model.fleet import Fleet
    from skyplane_orchestration.transfer.fleet_slot_wait import OnFull
    from skyplane_orchestration.transfer.lead_poller import OnStatus
    from skyplane_orchestration.transfer.transfer_monitor import OnSubmitted


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
