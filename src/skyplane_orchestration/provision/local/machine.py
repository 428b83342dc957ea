"""The gateways of this machine: finds, stops and connects to them."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from skyplane_gateway.clock import Clock
from skyplane_orchestration.errors import TeardownIncomplete
from skyplane_orchestration.provision.control_sessions import ControlSession, ControlSessions
from skyplane_orchestration.provision.local import processes
from skyplane_orchestration.provision.local.options import LocalOptions
from skyplane_orchestration.provision.local.processes import GatewayProcess
from skyplane_orchestration.provision.local.run_directory import FleetDirectory

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

#: (host, port, context, expected URI name) -> a session with a gateway.
SessionFactory = Callable[[str, int, ssl.SSLContext, str], ControlSession]


@dataclass(frozen=True, slots=True)
class LocalMachine:
    """Gateway processes below one run directory; `run_root` as it stands in command lines."""

    options: LocalOptions
    run_root: Path
    connect: SessionFactory
    clock: Clock

    def processes_of(self, directory: FleetDirectory) -> tuple[GatewayProcess, ...]:
        return processes.scan(self.run_root, directory.key)

    def stop(self, find: Callable[[], Iterable[GatewayProcess]]) -> tuple[GatewayProcess, ...]:
        """End the processes that `find` returns; returns the remaining processes."""
        return processes.stop(
            find,
            term_grace_s=self.options.term_grace_s,
            kill_grace_s=self.options.kill_grace_s,
            clock=self.clock,
        )

    def stop_fleet(self, directory: FleetDirectory) -> None:
        """End all gateways of a fleet. Raises TeardownIncomplete."""
        left = self.stop(lambda: self.processes_of(directory))
        if left:
            raise TeardownIncomplete(
                f"gateways of fleet {directory.key} still run: {processes.names_of(left)};"
                " end them by hand or run teardown again"
            )

    def sessions(self, authority: Authority) -> ControlSessions:
        """Control sessions with the gateways of the authority's fleet."""
        context = authority.client_context()

        def connect(host: str, port: int, node: str) -> ControlSession:
            return self.connect(host, port, context, authority.expected_uri(node))

        return ControlSessions(connect)
