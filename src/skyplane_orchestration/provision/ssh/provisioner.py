"""`SshProvisioner`: gateways as processes or containers of machines that one already has.

Each verb logs in to its machines, works through their agents, and ends its sessions.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.errors import (
    GatewayError,
    GatewayUnreachable,
    MissingExtra,
    ProvisionFailed,
    SkyplaneError,
    TeardownIncomplete,
)
from skyplane_orchestration.model.fleet import SSH, Fleet
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.location import KNOWN_CLOUDS
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.model.sweep_report import SweepReport, SweptFleet
from skyplane_orchestration.provision.clocks import name_difference
from skyplane_orchestration.provision.control_sessions import SessionFactory
from skyplane_orchestration.provision.fleet_limit import require_room
from skyplane_orchestration.provision.local.fleet_files import (
    FleetFiles,
    InstanceSettings,
    ProcessProgram,
    Program,
)
from skyplane_orchestration.provision.local.fleets import ProcessFleets
from skyplane_orchestration.provision.local.launch import Addresses
from skyplane_orchestration.provision.local.runner import Runner
from skyplane_orchestration.provision.local.settings import processes_per_instance
from skyplane_orchestration.provision.local.teardown import sweep_fleets
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.provisioner import (
    AuthorityOf,
    Finding,
    FleetSpec,
    FoundGateway,
    require_made_by,
)
from skyplane_orchestration.provision.routes import node_names
from skyplane_orchestration.provision.ssh.checks import findings
from skyplane_orchestration.provision.ssh.container_hosts import (
    bring_container_program,
    sweep_containers,
)
from skyplane_orchestration.provision.ssh.hosts import SshHost
from skyplane_orchestration.provision.ssh.images import free_images, keep_image
from skyplane_orchestration.provision.ssh.logins import OpenHost, log_in
from skyplane_orchestration.provision.ssh.options import SshOptions
from skyplane_orchestration.provision.ssh.package import gateway_package
from skyplane_orchestration.provision.ssh.pythons import python_of_gateways

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

#: Seconds until gateways on machines that run already are connected; an estimate. It takes 0.6 s
#: without a network between them.
_PROVISION_S: Final = 10.0


class SshProvisioner:
    """Gateways over ssh; `base.Provisioner` documents the verbs."""

    def __init__(
        self,
        options: SshOptions,
        *,
        connect: SessionFactory = ControlClient,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.options = options
        self._runner = Runner(connect, clock, self.options)
        self._fleets = ProcessFleets(self.name, self._runner)

    @property
    def name(self) -> str:
        return SSH

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        require_room(self, spec.deployment, spec.key, spec.max_active_fleets)
        instances = node_names(spec.plan, spec.max_instances_per_region)
        host_of = {
            instance: self.options.host_of(region, index, len(names))
            for region, names in instances.items()
            for index, instance in enumerate(names)
        }
        try:
            with self._open(tuple(dict.fromkeys(host_of.values()))) as opened:
                try:
                    in_parallel([entry.root.prepare for entry in opened])
                    programs = self._programs(opened, spec.deployment)
                    fleet_files = self._with_settings(spec.key, opened, host_of, programs)
                    processes = self._processes(opened, host_of)
                    fleets = self._fleets_on(opened)
                    return fleets.ensure(spec, authority, fleet_files, instances, processes)
                except SkyplaneError:
                    self._remove_remains(opened)
                    raise
        except GatewayUnreachable as error:
            raise ProvisionFailed(f"fleet {spec.key} did not come up: {error}") from error

    def describe(self, fleet_key: str) -> tuple[FoundGateway, ...]:
        with self._open(self.options.all_hosts()) as opened:
            return self._fleets.describe(_fleet_files(fleet_key, opened))

    def recorded(self, fleet_key: str) -> Fleet | None:
        with self._open_reachable() as (opened, failures):
            if failures and not opened:
                raise failures[0]
            return self._fleets.recorded(_fleet_files(fleet_key, opened))

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        try:
            with self._open_reachable() as (opened, failures):
                in_parallel([entry.root.prepare for entry in opened])
                stopped = self._fleets.destroy(_fleet_files(fleet_key, opened)) if opened else ()
                self._remove_remains(opened)
            if failures:
                raise failures[0]
        except (GatewayError, OSError) as error:
            raise TeardownIncomplete(
                f"gateways of fleet {fleet_key} may still run: {error}; run teardown again, or"
                " their lease ends them"
            ) from error
        return stopped

    def log_tails(self, fleet_key: str, max_bytes: int = 65536) -> Mapping[str, str]:
        with self._open_reachable() as (opened, _):
            if not opened:
                return {}
            return self._fleets.log_tails(_fleet_files(fleet_key, opened), max_bytes)

    def check_host(self, fleet: Fleet) -> None:
        """Every process with the hosts file reaches the fleet."""
        require_made_by(self.name, fleet)

    def sweep(
        self,
        deployment: str,
        *,
        dry_run: bool = False,
        older_than_s: float | None = None,
        authority_of: AuthorityOf | None = None,
    ) -> SweepReport:
        with self._open_reachable() as (opened, failures):
            having: dict[str, list[OpenHost]] = {}
            for entry in opened:
                ahead_s = entry.machine.wall_s() - self._runner.clock.wall()
                name_difference(f"host {entry.host.name}", ahead_s)
                for directory in entry.root.fleets():
                    having.setdefault(directory.key, []).append(entry)
            report = sweep_fleets(
                self._runner,
                [_fleet_files(key, having[key]) for key in sorted(having)],
                deployment,
                host="",
                dry_run=dry_run,
                older_than_s=older_than_s,
                authority_of=authority_of,
            )
            lost = sweep_containers(opened, deployment, dry_run=dry_run)
            if not dry_run:
                self._remove_remains(opened)
            # Nobody knows what is left there.
            unknown = tuple(
                SweptFleet("", "its host is not reached", (), str(failure)) for failure in failures
            )
            return replace(report, orphans=(*report.orphans, *lost, *unknown))

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        """A region may have as many instances as it has hosts."""
        return tuple(self.options.quota(region) for region in regions)

    @property
    def provision_s(self) -> Mapping[str, float]:
        """Machines run already. The first fleet of a bare one takes longer: it installs."""
        return dict.fromkeys(KNOWN_CLOUDS, _PROVISION_S)

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        try:
            with log_in(self.options.all_hosts(), self.options.connect_timeout_s) as logins:
                return findings(logins, self._runner, needs_modules=not self.options.command)
        except MissingExtra as error:
            return (Finding("paramiko", False, str(error)),)

    # -- hosts

    @contextlib.contextmanager
    def _open(self, hosts: Sequence[SshHost]) -> Iterator[tuple[OpenHost, ...]]:
        """Log in to hosts, all at once, until the end of the block; sorted by name.

        Raises the errors of `AgentSession`, and MissingExtra.
        """
        with log_in(hosts, self.options.connect_timeout_s) as logins:
            yield tuple(in_parallel([login.opened for login in logins]))

    @contextlib.contextmanager
    def _open_reachable(self) -> Iterator[tuple[tuple[OpenHost, ...], list[GatewayError]]]:
        """All hosts that can be reached, and the errors of the others.

        One lost machine must not keep the gateways of the others alive.
        """
        with log_in(self.options.all_hosts(), self.options.connect_timeout_s) as logins:
            opened: list[OpenHost] = []
            failures: list[GatewayError] = []
            for login in logins:
                try:
                    opened.append(login.opened())
                except GatewayError as error:
                    failures.append(error)
            yield tuple(opened), failures

    def _programs(self, opened: Sequence[OpenHost], deployment: str) -> Mapping[SshHost, Program]:
        """What starts the gateways of each host. An image is there then.

        Raises ConfigurationInvalid if a host cannot run them, and ProvisionFailed if what they need
        cannot be brought.
        """

        def of_host(entry: OpenHost) -> Program:
            if entry.host.image:
                # Before the fleet is locked, since a pull may take minutes.
                return bring_container_program(entry, deployment)
            if self.options.command:
                return ProcessProgram(self.options.command)
            return ProcessProgram(
                (python_of_gateways(entry, self._runner.clock), "-m", "skyplane_gateway")
            )

        found = in_parallel([partial(of_host, entry) for entry in opened])
        return {entry.host: program for entry, program in zip(opened, found, strict=True)}

    def _fleets_on(self, opened: Sequence[OpenHost]) -> ProcessFleets:
        def bring(entry: OpenHost, fleet_key: str) -> None:
            directory = entry.root.fleet(fleet_key)
            if entry.host.image:
                keep_image(entry, directory, self._runner)
            elif not self.options.command:
                entry.machine.bring(gateway_package(), directory.path)

        def prepare(fleet_files: FleetFiles) -> None:
            in_parallel([partial(bring, entry, fleet_files.key) for entry in opened])

        return ProcessFleets(self.name, self._runner, prepare=prepare)

    def _with_settings(
        self,
        fleet_key: str,
        opened: Sequence[OpenHost],
        host_of: Mapping[str, SshHost],
        programs: Mapping[SshHost, Program],
    ) -> FleetFiles:
        """The files of a fleet, with settings for each instance."""
        root_of = {entry.host: entry.root for entry in opened}
        package = gateway_package().name
        settings: dict[str, InstanceSettings] = {}
        for instance, host in host_of.items():
            directory = root_of[host].fleet(fleet_key)
            settings[instance] = InstanceSettings(
                directory,
                Addresses(host.address, host.data_address),
                programs[host],
                (str(directory.path / package),),
                host.port_range,
            )
        return replace(_fleet_files(fleet_key, opened), settings=settings)

    def _processes(self, opened: Sequence[OpenHost], host_of: Mapping[str, SshHost]) -> int:
        """Gateways of each instance: as many as the machine with the fewest processors bears."""
        instances = Counter(host_of.values())
        given = self.options.processes_per_instance
        processors = in_parallel([entry.machine.processors for entry in opened])
        return min(
            processes_per_instance(given, instances[entry.host], count)
            for entry, count in zip(opened, processors, strict=True)
        )

    def _remove_remains(self, opened: Sequence[OpenHost]) -> None:
        """Remove images that no fleet needs, and roots without fleets.

        A sweep removes what stays after a failure here.
        """

        def remove(entry: OpenHost) -> None:
            with contextlib.suppress(GatewayUnreachable, OSError):
                free_images(entry, self._runner)
                entry.machine.remove_root(entry.root.path)

        in_parallel([partial(remove, entry) for entry in opened])


def _fleet_files(fleet_key: str, opened: Sequence[OpenHost]) -> FleetFiles:
    return FleetFiles(tuple(entry.root.fleet(fleet_key) for entry in opened))
