"""Ends gateway processes, and removes fleets in a teardown or a sweep."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import TeardownIncomplete
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.sweep_report import SweptFleet
from skyplane_orchestration.provision.control_sessions import SessionFactory, is_living
from skyplane_orchestration.provision.local import machine
from skyplane_orchestration.provision.local.options import LocalOptions
from skyplane_orchestration.provision.local.run_directory import FleetDirectory, FleetMeta
from skyplane_orchestration.provision.provisioner import AuthorityOf

log = logging.getLogger(__name__)

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

    def stop(self, find: Callable[[], Iterable[machine.GatewayProcess]]) -> str:
        """End the processes that `find` returns, with SIGTERM, then SIGKILL.

        Each poll calls `find`, so that forked processes are ended too.

        Returns words for messages: node and process id of each that still runs.
        """
        signalled: set[tuple[machine.GatewayProcess, int]] = set()
        kill_at_s = self.clock.monotonic() + self.options.term_grace_s
        while running := tuple(find()):
            now_s = self.clock.monotonic()
            if now_s >= kill_at_s + self.options.kill_grace_s:
                break
            number = signal.SIGTERM if now_s < kill_at_s else signal.SIGKILL
            for process in running:
                if (process, number) not in signalled:
                    process.send(number)
                    signalled.add((process, number))
            self.clock.sleep(_POLL_S)
        return ", ".join(f"{process.node} (pid {process.pid})" for process in running)

    def stop_fleet(self, directory: FleetDirectory) -> None:
        """End all gateways of a fleet. Raises TeardownIncomplete."""
        if remaining := self.stop(directory.processes):
            raise TeardownIncomplete(
                f"gateways of fleet {directory.key} still run: {remaining};"
                " end them by hand or run teardown again"
            )


def remove_fleet(runner: Runner, directory: FleetDirectory) -> tuple[str, ...]:
    """End the gateways of a locked fleet and delete its directory; the nodes that still ran.

    Raises TeardownIncomplete.
    """
    stopped = directory.nodes()
    runner.stop_fleet(directory)
    try:
        directory.remove()
    except OSError as error:
        raise TeardownIncomplete(
            f"the gateways of fleet {directory.key} have ended, but its directory"
            f" cannot be removed: {error}"
        ) from error
    if stopped:
        log.info("fleet %s: %s ended", directory.key, counted(len(stopped), "gateway"))
    return stopped


def orphan_reason(
    runner: Runner,
    directory: FleetDirectory,
    meta: FleetMeta | None,
    older_than_s: float | None,
    authority_of: AuthorityOf | None,
) -> str:
    """Why a locked fleet is abandoned; empty if it may be in use. See `Provisioner.sweep`."""
    running = directory.nodes()
    if meta is None:
        # The process that made the directory has ended before it wrote the record.
        return "" if running else "left without a record"
    now_s = runner.clock.wall()
    if now_s >= meta.hard_end_unix_s and not is_living(
        directory.key, _addresses(directory, running), authority_of, runner.connect
    ):
        return "past its hard end"
    if not machine.is_here(meta.host):
        return ""  # The directory is shared, and the gateways run on another machine.
    if not running:
        return "none of its gateways is alive"
    age_s = now_s - meta.created_unix_s
    if older_than_s is not None and age_s > older_than_s:
        return f"made {age_s:.0f} s ago"
    return ""


def _addresses(
    directory: FleetDirectory, nodes: Iterable[str]
) -> Iterator[tuple[str, tuple[str, int]]]:
    for files in map(directory.gateway, nodes):
        config, ports = files.read_config(), files.read_ports()
        if config is not None and ports is not None:
            yield files.node, (config.control_host, ports[0])


def swept(runner: Runner, directory: FleetDirectory, reason: str, *, dry_run: bool) -> SweptFleet:
    """An abandoned fleet, which is removed unless nothing may be changed."""
    gateways, failure = directory.nodes(), ""
    if not dry_run:
        try:
            remove_fleet(runner, directory)
        except TeardownIncomplete as error:
            failure = str(error)
    return SweptFleet(directory.key, reason, gateways, failure)
