"""Stops gateway processes."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import TeardownIncomplete
from skyplane_orchestration.provision.control_sessions import SessionFactory
from skyplane_orchestration.provision.local.options import LocalOptions
from skyplane_orchestration.provision.local.run_directory import (
    FleetDirectory,
    GatewayProcess,
    names_of,
)

_POLL_S: Final = 0.02


@dataclass(frozen=True, slots=True)
class Runner:
    """How the gateways of a provisioner run.

    Args:
        connect: opens a control session.
    """

    connect: SessionFactory
    clock: Clock
    options: LocalOptions

    def stop(self, find: Callable[[], Iterable[GatewayProcess]]) -> tuple[GatewayProcess, ...]:
        """End the processes that `find` returns, with SIGTERM, then SIGKILL; those that still run.

        Each poll calls `find`, so that forked processes are ended too.
        """
        signalled: set[GatewayProcess] = set()
        deadline = self.clock.monotonic() + self.options.term_grace_s
        while (running := tuple(find())) and self.clock.monotonic() < deadline:
            for process in running:
                if process not in signalled:
                    process.send(signal.SIGTERM)
                    signalled.add(process)
            self.clock.sleep(_POLL_S)
        deadline = self.clock.monotonic() + self.options.kill_grace_s
        while running and self.clock.monotonic() < deadline:
            for process in running:
                process.send(signal.SIGKILL)
            self.clock.sleep(_POLL_S)
            running = tuple(find())
        return running

    def stop_fleet(self, directory: FleetDirectory) -> None:
        """End all gateways of a fleet. Raises TeardownIncomplete."""
        remaining = self.stop(directory.processes)
        if remaining:
            raise TeardownIncomplete(
                f"gateways of fleet {directory.key} still run: {names_of(remaining)};"
                " end them by hand or run teardown again"
            )
