"""A submitted transfer that another process watches or takes to its end."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from skyplane_gateway.common.schema import decode, encode
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.model.job import TransferJob
from skyplane_orchestration.transfer.fleet_control import SubmittedTransfer

#: Why a watch ends: the transfer has ended; its lead does not answer, or leads no longer; it has
#: cost its limit; the deadline of the task has passed.
WatchEnd = Literal["ended", "silent", "budget", "deadline"]


@dataclass(frozen=True, slots=True)
class WatchedTransfer:
    """A submitted transfer as plain data, for a process that has no state of it.

    Args:
        owns_fleet: the fleet has been started for this transfer alone, and ends with it.
        deadline_unix_s: when the watch ends at the latest; None: never.
    """

    job: TransferJob
    fleet: Fleet
    submitted: SubmittedTransfer
    owns_fleet: bool = False
    deadline_unix_s: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON data without a secret."""
        return encode(self)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> WatchedTransfer:
        """Raises ConfigurationInvalid for a document of another version."""
        return decode(cls, document, "a watched transfer")
