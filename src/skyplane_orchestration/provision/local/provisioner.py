"""`LocalProvisioner`: gateways as processes on this machine.

It serves transfers that need no cloud instances, network namespaces, tests and the demo.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.model.fleet import LOCAL, Fleet
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.model.sweep_report import SweepReport
from skyplane_orchestration.provision.control_sessions import SessionFactory
from skyplane_orchestration.provision.fleet_limit import require_room
from skyplane_orchestration.provision.local import hosts
from skyplane_orchestration.provision.local.checks import local_findings, require_gateway
from skyplane_orchestration.provision.local.fleet_files import (
    FleetFiles,
    InstanceSettings,
    ProcessProgram,
)
from skyplane_orchestration.provision.local.fleets import ProcessFleets
from skyplane_orchestration.provision.local.launch import Addresses
from skyplane_orchestration.provision.local.options import LocalOptions
from skyplane_orchestration.provision.local.run_directory import (
    FleetDirectory,
    RunRoot,
    default_run_root,
)
from skyplane_orchestration.provision.local.runner import Runner
from skyplane_orchestration.provision.local.settings import processes_per_instance
from skyplane_orchestration.provision.local.teardown import sweep_fleets
from skyplane_orchestration.provision.provisioner import (
    AuthorityOf,
    Finding,
    FleetSpec,
    FoundGateway,
    require_made_by,
)
from skyplane_orchestration.provision.routes import node_names

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority


class LocalProvisioner:
    """Gateways as processes; `base.Provisioner` documents the verbs."""

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

    @property
    def name(self) -> str:
        return LOCAL

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        require_gateway(self.options)
        limit = spec.max_instances_per_region or self.options.max_instances_per_region
        instances = node_names(spec.plan, limit)
        processes = processes_per_instance(
            self.options.processes_per_instance,
            sum(map(len, instances.values())),
            self.root.machine.processors(),
        )
        self.root.prepare()
        directory = self.root.fleet(spec.key)
        meta = self._fleet_files(spec.key).read_meta()
        if meta is not None and hosts.machine_of(meta.host) != hosts.machine_of(
            hosts.host_identity()
        ):
            hosts.require_this_host(meta.host, spec.key)
        settings = {
            instance: self._settings(region, directory)
            for region, names in instances.items()
            for instance in names
        }
        fleet_files = FleetFiles((directory,), settings)
        admission = self._admission(spec)
        return self._fleets().ensure(spec, authority, fleet_files, instances, processes, admission)

    @contextlib.contextmanager
    def _admission(self, spec: FleetSpec) -> Iterator[None]:
        """The limit of fleets holds exactly, since no other process counts during the block."""
        if spec.max_active_fleets is None:
            yield
            return
        runner = self._runner
        with self.root.locked(timeout_s=runner.options.lock_timeout_s, clock=runner.clock):
            require_room(self, spec.deployment, spec.key, spec.max_active_fleets)
            yield

    def describe(self, fleet_key: str) -> tuple[FoundGateway, ...]:
        return self._fleets().describe(self._fleet_files(fleet_key))

    def recorded(self, fleet_key: str) -> Fleet | None:
        return self._fleets().recorded(self._fleet_files(fleet_key))

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        self.root.prepare()
        return self._fleets().destroy(self._fleet_files(fleet_key))

    def log_tails(self, fleet_key: str, max_bytes: int = 65536) -> Mapping[str, str]:
        return self._fleets().log_tails(self._fleet_files(fleet_key), max_bytes)

    def check_host(self, fleet: Fleet) -> None:
        require_made_by(self.name, fleet)
        hosts.require_this_host(fleet.host, fleet.key)

    def sweep(
        self,
        deployment: str,
        *,
        dry_run: bool = False,
        older_than_s: float | None = None,
        authority_of: AuthorityOf | None = None,
    ) -> SweepReport:
        self.root.prepare()
        return sweep_fleets(
            self._runner,
            [FleetFiles((directory,)) for directory in self.root.fleets()],
            deployment,
            host=hosts.machine_of(hosts.host_identity()),
            dry_run=dry_run,
            older_than_s=older_than_s,
            authority_of=authority_of,
        )

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        """None: fleets have fewer gateways than planned where the machine gains nothing."""
        return ()

    @property
    def provision_s(self) -> Mapping[str, float]:
        return {}

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        return local_findings(self.options, self.root, self.options.store_threads)

    def _fleets(self) -> ProcessFleets:
        return ProcessFleets(self.name, self._runner, hosts.host_identity())

    def _fleet_files(self, fleet_key: str) -> FleetFiles:
        return FleetFiles((self.root.fleet(fleet_key),))

    def _settings(self, region: str, directory: FleetDirectory) -> InstanceSettings:
        addresses = Addresses(self.options.address(region))
        return InstanceSettings(
            directory, addresses, ProcessProgram(self.options.command_line(region))
        )
