"""Removes fleets of this machine, in a teardown or a sweep."""

from __future__ import annotations

import logging

from skyplane_orchestration.errors import TeardownIncomplete
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.sweep_report import SweepReport, SweptFleet
from skyplane_orchestration.provision.local import hosts
from skyplane_orchestration.provision.local.machine import LocalMachine
from skyplane_orchestration.provision.local.run_directory import (
    DirectoryBusy,
    FleetDirectory,
    FleetMeta,
    RunRoot,
)

log = logging.getLogger(__name__)


def remove_fleet(machine: LocalMachine, directory: FleetDirectory) -> tuple[str, ...]:
    """End the gateways of a locked fleet and delete its directory; the nodes that still ran.

    Raises TeardownIncomplete.
    """
    stopped = {process.node for process in machine.processes_of(directory)}
    machine.stop_fleet(directory)
    try:
        directory.remove()
    except OSError as error:
        raise TeardownIncomplete(
            f"the gateways of fleet {directory.key} have ended, but its directory"
            f" cannot be removed: {error}"
        ) from error
    if stopped:
        log.info("fleet %s: %s ended", directory.key, counted(len(stopped), "gateway"))
    return tuple(sorted(stopped))


def sweep_fleets(
    machine: LocalMachine,
    root: RunRoot,
    deployment: str,
    *,
    dry_run: bool,
    older_than_s: float | None,
) -> SweepReport:
    """Remove the abandoned fleets of a deployment; see `Provisioner.sweep`."""
    orphans: list[SweptFleet] = []
    kept: list[str] = []
    for directory in root.fleets():
        try:
            with directory.locked(create=False, timeout_s=0.0, clock=machine.clock):
                meta = directory.read_meta()
                if meta is not None and meta.deployment != deployment:
                    continue
                reason = _orphan_reason(machine, directory, meta, older_than_s)
                if reason:
                    orphans.append(_sweep_one(machine, directory, reason, dry_run=dry_run))
                else:
                    kept.append(directory.key)
        except DirectoryBusy:
            kept.append(directory.key)
        except FileNotFoundError:
            continue  # Another process has torn it down.
    return SweepReport(orphans=tuple(orphans), kept=tuple(kept), dry_run=dry_run)


def _orphan_reason(
    machine: LocalMachine,
    directory: FleetDirectory,
    meta: FleetMeta | None,
    older_than_s: float | None,
) -> str:
    """Why the fleet is abandoned; empty if it may be in use."""
    running = machine.processes_of(directory)
    if meta is None:
        # The process that made the directory has ended before it wrote the record.
        return "" if running else "left without a record"
    now_s = machine.clock.wall()
    if now_s >= meta.hard_end_unix_s:
        return "past its hard end"
    if hosts.machine_of(meta.host) != hosts.machine_of(hosts.host_identity()):
        return ""  # The directory is shared, and the gateways run on another machine.
    if not running:
        return "none of its gateways is alive"
    age_s = now_s - meta.created_unix_s
    if older_than_s is not None and age_s > older_than_s:
        return f"made {age_s:.0f} s ago"
    return ""


def _sweep_one(
    machine: LocalMachine, directory: FleetDirectory, reason: str, *, dry_run: bool
) -> SweptFleet:
    gateways = {process.node for process in machine.processes_of(directory)}
    failure = ""
    if not dry_run:
        try:
            remove_fleet(machine, directory)
        except TeardownIncomplete as error:
            failure = str(error)
    return SweptFleet(directory.key, reason, tuple(sorted(gateways)), failure)
