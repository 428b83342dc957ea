"""The wait for gateways that start: poll interval, deadline, and errors with their logs."""

from __future__ import annotations

from typing import Final

from skyplane_gateway.clock import Clock
from skyplane_orchestration.errors import ProvisionFailed
from skyplane_orchestration.provision.local.run_directory import FleetDirectory

_POLL_S: Final = 0.02
_LOG_TAIL_BYTES: Final = 4096


class StartupDeadline:
    """The deadline of one `ensure`, which begins when the object is made."""

    def __init__(self, directory: FleetDirectory, timeout_s: float, clock: Clock) -> None:
        self._directory = directory
        self._timeout_s = timeout_s
        self._clock = clock
        self._deadline_s = clock.monotonic() + timeout_s

    def pause(self, node: str, what: str) -> None:
        """Sleep until the next poll. Raises ProvisionFailed for `node` after the deadline."""
        if self._clock.monotonic() >= self._deadline_s:
            raise self.failure(node, f"{what} within {self._timeout_s:g} s")
        self._clock.sleep(_POLL_S)

    def failure(self, node: str, what: str) -> ProvisionFailed:
        """The error of a gateway, with the end of its log."""
        tail = self._directory.gateway(node).log_tail(_LOG_TAIL_BYTES).strip()
        said = f"the end of its log:\n{tail}" if tail else "it left no log"
        return ProvisionFailed(f"gateway {node} of fleet {self._directory.key} {what}; {said}")
