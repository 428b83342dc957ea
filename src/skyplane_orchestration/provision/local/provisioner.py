"""`LocalProvisioner`: gateways as processes on this machine.

It serves transfers that need no cloud instances, network namespaces, tests and the demo.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    FleetLost,
    GatewayError,
    NotAuthorised,
    ProvisionFailed,
    TeardownIncomplete,
)
from skyplane_orchestration.model.fleet import LOCAL, Fleet
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.plan import TransferPlan
from skyplane_orchestration.model.sweep_report import SweepReport, SweptFleet
from skyplane_orchestration.provision.control_sessions import SessionFactory
from skyplane_orchestration.provision.gateway_settings import processes_per_instance
from skyplane_orchestration.provision.local import machine
from skyplane_orchestration.provision.local.bring_up import BringUp
from skyplane_orchestration.provision.local.checks import local_findings, require_gateway
from skyplane_orchestration.provision.local.options import LocalOptions
from skyplane_orchestration.provision.local.run_directory import (
    DirectoryBusy,
    FleetDirectory,
    FleetMeta,
    RunRoot,
    default_run_root,
)
from skyplane_orchestration.provision.local.teardown import (
    Runner,
    orphan_reason,
    remove_fleet,
    swept,
)
from skyplane_orchestration.provision.provisioner import (
    AuthorityOf,
    Finding,
    FleetSpec,
    Provisioner,
    require_made_by,
    require_room,
)
from skyplane_orchestration.provision.routes import node_names, split_into_processes

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

log = logging.getLogger(__name__)


class LocalProvisioner(Provisioner):
    """Gateways as processes; `Provisioner` documents the verbs."""

    name = LOCAL

    def __init__(
        self,
        options: LocalOptions | None = None,
        *,
        connect: SessionFactory = ControlClient,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.options = LocalOptions() if options is None else options
        # Command lines contain this path, so all workers must spell it alike. The last part
        # is not resolved: `prepare` refuses a symbolic link.
        run_root = self.options.run_root or default_run_root()
        self.root = RunRoot(run_root.parent.resolve() / run_root.name)
        self._runner = Runner(connect, clock, self.options)

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        require_gateway(self.options)
        recorded = self.recorded(spec.key)
        if recorded is not None and recorded.plan.replaces == spec.plan.shape:
            spec = replace(spec, plan=recorded.plan)
        instances = node_names(spec.plan, self.options.max_instances_per_region)
        processes = processes_per_instance(
            self.options.processes_per_instance,
            sum(map(len, instances.values())),
            machine.usable_processors(),
        )
        self.root.prepare()
        directory = self.root.fleet(spec.key)
        meta = directory.read_meta()
        if meta is not None and not machine.is_here(meta.host):
            machine.require_this_host(meta.host, spec.key)
        limit = spec.max_active_fleets
        try:
            began_s = self._runner.clock.monotonic()
            with contextlib.ExitStack() as stack:
                # The limit holds exactly, since no other process counts during the block.
                with contextlib.nullcontext() if limit is None else self._locked(self.root):
                    require_room(self, spec.deployment, spec.key, limit)
                    stack.enter_context(self._locked(directory, create=not spec.must_exist))
                meta = self._prepare_record(directory, spec, processes)
                nodes = split_into_processes(instances, meta.processes_per_instance)
                runner = self._runner
                return BringUp(spec, meta, nodes, directory, authority, runner, began_s).run()
        except DirectoryBusy as error:
            raise ProvisionFailed(
                f"{error}, for {self.options.lock_timeout_s:g} s already"
            ) from error
        except NotAuthorised:
            raise
        except (GatewayError, OSError) as error:
            raise ProvisionFailed(f"fleet {spec.key} did not come up: {error}") from error

    def _locked(
        self, directory: RunRoot | FleetDirectory, **options: bool
    ) -> contextlib.AbstractContextManager[None]:
        timeout_s = self.options.lock_timeout_s
        return directory.locked(timeout_s=timeout_s, clock=self._runner.clock, **options)

    def describe(self, fleet_key: str) -> tuple[str, ...]:
        return self.root.fleet(fleet_key).nodes()

    def recorded(self, fleet_key: str) -> Fleet | None:
        document = self.root.fleet(fleet_key).read_fleet()
        try:
            fleet = None if document is None else Fleet.from_dict(document)
        except ConfigurationInvalid as error:
            log.info("the record of fleet %s cannot be used: %s", fleet_key, error)
            return None
        return fleet if fleet is not None and fleet.host == machine.host_identity() else None

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        self.root.prepare()
        directory = self.root.fleet(fleet_key)
        try:
            # Missing directories are created: without the lock, a concurrent `ensure` could
            # lose some of its gateways.
            with self._locked(directory, create=True):
                return remove_fleet(self._runner, directory)
        except DirectoryBusy as error:
            running = ", ".join(self.describe(fleet_key))
            raise TeardownIncomplete(
                f"{error}; still running: {running or 'nothing yet'}"
            ) from error

    def log_tails(self, fleet_key: str, max_bytes: int = 65536) -> Mapping[str, str]:
        gateways = self.root.fleet(fleet_key).gateways()
        return {files.node: tail for files in gateways if (tail := files.log_tail(max_bytes))}

    def check_host(self, fleet: Fleet) -> None:
        require_made_by(self.name, fleet)
        machine.require_this_host(fleet.host, fleet.key)

    def sweep(
        self,
        deployment: str,
        *,
        dry_run: bool = False,
        older_than_s: float | None = None,
        authority_of: AuthorityOf | None = None,
    ) -> SweepReport:
        self.root.prepare()
        orphans: list[SweptFleet] = []
        kept: list[str] = []
        runner = self._runner
        for directory in self.root.fleets():
            try:
                with directory.locked(create=False, timeout_s=0.0, clock=runner.clock):
                    meta = directory.read_meta()
                    if meta is not None and meta.deployment != deployment:
                        continue
                    reason = orphan_reason(runner, directory, meta, older_than_s, authority_of)
                    if reason:
                        orphans.append(swept(runner, directory, reason, dry_run=dry_run))
                    else:
                        kept.append(directory.key)
            except DirectoryBusy:
                meta = directory.read_meta()
                if meta is None or meta.deployment == deployment:
                    kept.append(directory.key)
            except FleetLost:
                continue  # Another process has torn it down.
        return SweepReport(orphans=tuple(orphans), kept=tuple(kept), dry_run=dry_run)

    def runs_on_this_machine(self, plan: TransferPlan) -> bool:
        return True

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        return local_findings(self.options, self.root)

    def _prepare_record(
        self, directory: FleetDirectory, spec: FleetSpec, processes: int
    ) -> FleetMeta:
        """The record of the existing fleet, or the new record of a new one."""
        now = self._runner.clock.wall()
        meta = directory.read_meta()
        if meta is not None:
            if meta.deployment != spec.deployment:
                raise ConfigurationInvalid(
                    f"fleet {spec.key} belongs to deployment {meta.deployment!r},"
                    f" not to {spec.deployment!r}"
                )
            if meta.host == machine.host_identity() and meta.hard_end_unix_s > now:
                directory.write_meta(meta)
                return meta
            # The machine has restarted, or the fleet is past its hard end.
            self._runner.stop_fleet(directory)
            directory.clear()
        meta = FleetMeta.of(spec, now, processes)
        directory.write_meta(meta)
        return meta
