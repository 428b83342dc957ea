"""Stops gateway processes and connects to them."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.common.clock import Clock
from skyplane_gateway.config import DEFAULT_STORE_THREADS
from skyplane_orchestration.errors import TeardownIncomplete
from skyplane_orchestration.provision.control_sessions import (
    ControlSessions,
    SessionFactory,
    open_sessions,
)
from skyplane_orchestration.provision.local.fleet_files import FleetFiles
from skyplane_orchestration.provision.local.run_directory import GatewayProcess, names_of

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Runner:
    """How the gateways of a provisioner run.

    Args:
        connect: opens a control session.
        ready_timeout_s: timeout until all gateways are up and connected.
        term_grace_s: time from SIGTERM to SIGKILL; aborting uploads takes up to 30 s.
        kill_grace_s: time to wait after SIGKILL.
        gateway_settings: more fields of every gateway's configuration.
    """

    connect: SessionFactory
    clock: Clock
    ready_timeout_s: float
    term_grace_s: float
    kill_grace_s: float
    gateway_settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def store_threads(self) -> int:
        """See `GatewayConfig`."""
        return int(self.gateway_settings.get("store_threads", DEFAULT_STORE_THREADS))

    @property
    def lock_timeout_s(self) -> float:
        """Longest time that another `ensure` can hold a fleet's lock."""
        return self.ready_timeout_s + 2 * (self.term_grace_s + self.kill_grace_s)

    def stop(self, find: Callable[[], Iterable[GatewayProcess]]) -> tuple[GatewayProcess, ...]:
        """End the processes that `find` returns, with SIGTERM, then SIGKILL; those that still run.

        Each poll calls `find`, so that forked processes are ended too.
        """
        signalled: set[GatewayProcess] = set()
        deadline = self.clock.monotonic() + self.term_grace_s
        while (running := tuple(find())) and self.clock.monotonic() < deadline:
            for process in running:
                if process not in signalled:
                    process.send(signal.SIGTERM)
                    signalled.add(process)
            self.clock.sleep(_POLL_S)
        deadline = self.clock.monotonic() + self.kill_grace_s
        while running and self.clock.monotonic() < deadline:
            for process in running:
                process.send(signal.SIGKILL)
            self.clock.sleep(_POLL_S)
            running = tuple(find())
        return running

    def stop_fleet(self, fleet_files: FleetFiles) -> None:
        """End all gateways of a fleet. Raises TeardownIncomplete."""
        left = self.stop(fleet_files.processes)
        if left:
            raise TeardownIncomplete(
                f"gateways of fleet {fleet_files.key} still run: {names_of(left)};"
                " end them by hand or run teardown again"
            )

    def sessions(self, authority: Authority) -> ControlSessions:
        """Control sessions with the gateways of the authority's fleet."""
        return open_sessions(authority, self.connect)
