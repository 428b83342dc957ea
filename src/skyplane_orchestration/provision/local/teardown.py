"""Removes fleets of processes, in a teardown or a sweep."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from skyplane_orchestration.errors import TeardownIncomplete
from skyplane_orchestration.formatting import counted
from skyplane_orchestration.model.sweep_report import SweepReport, SweptFleet
from skyplane_orchestration.provision.control_sessions import is_living
from skyplane_orchestration.provision.local.run_directory import (
    DirectoryBusy,
    FleetDirectory,
    FleetMeta,
    GatewayProcess,
)
from skyplane_orchestration.provision.local.runner import Runner
from skyplane_orchestration.provision.local.this_machine import machine_of
from skyplane_orchestration.provision.provisioner import AuthorityOf

log = logging.getLogger(__name__)


def remove_fleet(runner: Runner, directory: FleetDirectory) -> tuple[str, ...]:
    """End the gateways of a locked fleet and delete its directory; the nodes that still ran.

    Raises TeardownIncomplete.
    """
    stopped = {process.node for process in directory.processes()}
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
    return tuple(sorted(stopped))


def sweep_fleets(
    runner: Runner,
    fleets: Iterable[FleetDirectory],
    deployment: str,
    *,
    host: str,
    dry_run: bool,
    older_than_s: float | None,
    authority_of: AuthorityOf | None,
) -> SweepReport:
    """Remove the abandoned fleets of a deployment; see `Provisioner.sweep`.

    `host`: the name of this machine.
    """
    orphans: list[SweptFleet] = []
    kept: list[str] = []
    for directory in fleets:
        try:
            with directory.locked(create=False, timeout_s=0.0, clock=runner.clock):
                meta = directory.read_meta()
                if meta is not None and meta.deployment != deployment:
                    continue
                reason = _orphan_reason(runner, directory, meta, host, older_than_s, authority_of)
                if reason:
                    orphans.append(_sweep_one(runner, directory, reason, dry_run=dry_run))
                else:
                    kept.append(directory.key)
        except DirectoryBusy:
            meta = directory.read_meta()
            if meta is None or meta.deployment == deployment:
                kept.append(directory.key)
        except FileNotFoundError:
            continue  # Another process has torn it down.
    return SweepReport(orphans=tuple(orphans), kept=tuple(kept), dry_run=dry_run)


def _orphan_reason(
    runner: Runner,
    directory: FleetDirectory,
    meta: FleetMeta | None,
    host: str,
    older_than_s: float | None,
    authority_of: AuthorityOf | None,
) -> str:
    """Why the fleet is abandoned; empty if it may be in use."""
    running = directory.processes()
    if meta is None:
        # The process that made the directory has ended before it wrote the record.
        return "" if running else "left without a record"
    now_s = runner.clock.wall()
    if now_s >= meta.hard_end_unix_s and not is_living(
        directory.key, _addresses(running), authority_of, runner.connect
    ):
        return "past its hard end"
    if machine_of(meta.host) != host:
        return ""  # The directory is shared, and the gateways run on another machine.
    if not running:
        return "none of its gateways is alive"
    age_s = now_s - meta.created_unix_s
    if older_than_s is not None and age_s > older_than_s:
        return f"made {age_s:.0f} s ago"
    return ""


def _addresses(running: Iterable[GatewayProcess]) -> Iterator[tuple[str, tuple[str, int]]]:
    for files in {process.files: None for process in running}:
        config, ports = files.read_config(), files.read_ports()
        if config is not None and ports is not None:
            yield files.node, (config.control_host, ports[0])


def _sweep_one(
    runner: Runner, directory: FleetDirectory, reason: str, *, dry_run: bool
) -> SweptFleet:
    gateways = {process.node for process in directory.processes()}
    failure = ""
    if not dry_run:
        try:
            remove_fleet(runner, directory)
        except TeardownIncomplete as error:
            failure = str(error)
    return SweptFleet(directory.key, reason, tuple(sorted(gateways)), failure)
