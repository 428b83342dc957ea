"""`SshProvisioner`: gateways as processes of machines that one already has.

Each verb logs in to its machines, works through their agents, and ends its sessions.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from skyplane_gateway.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    GatewayError,
    GatewayUnreachable,
    MissingExtra,
    ProvisionFailed,
    SkyplaneError,
    TeardownIncomplete,
)
from skyplane_orchestration.model.fleet import SSH, Fleet
from skyplane_orchestration.model.sweep_report import SweepReport, SweptFleet
from skyplane_orchestration.provision.base import FleetSpec, FoundGateway
from skyplane_orchestration.provision.control_sessions import SessionFactory
from skyplane_orchestration.provision.processes.fleets import ProcessFleets
from skyplane_orchestration.provision.processes.launch import Addresses
from skyplane_orchestration.provision.processes.place import FleetPlace, Seat
from skyplane_orchestration.provision.processes.run_directory import RunRoot
from skyplane_orchestration.provision.processes.runner import Runner
from skyplane_orchestration.provision.processes.settings import processes_per_instance
from skyplane_orchestration.provision.processes.teardown import sweep_fleets
from skyplane_orchestration.provision.routes import node_names
from skyplane_orchestration.provision.ssh.hosts import SshHost
from skyplane_orchestration.provision.ssh.machine import RemoteMachine
from skyplane_orchestration.provision.ssh.options import SshOptions
from skyplane_orchestration.provision.ssh.package import gateway_package

if TYPE_CHECKING:
    from skyplane_orchestration.provision.ssh.connection import AgentSession
    from skyplane_orchestration.security.authority import Authority

#: Modules that a gateway imports at its start; those of stores come later.
_REQUIRED_MODULES: Final = ("aiohttp", "awscrt", "cryptography", "httptools", "tenacity")
_MOST_LOGINS: Final = 16


@dataclass(frozen=True, slots=True)
class _OpenHost:
    """A host that this process is logged in to."""

    host: SshHost
    machine: RemoteMachine
    root: RunRoot


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
        self._runner = Runner(
            connect,
            clock,
            ready_timeout_s=options.ready_timeout_s,
            term_grace_s=options.term_grace_s,
            kill_grace_s=options.kill_grace_s,
            gateway_settings=options.gateway_settings,
        )
        self._fleets = ProcessFleets(self.name, self._runner)

    @property
    def name(self) -> str:
        return SSH

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        instances = node_names(spec.plan, spec.max_instances_per_region)
        host_of = {
            instance: self.options.host_of(region, index, len(names))
            for region, names in instances.items()
            for index, instance in enumerate(names)
        }
        with contextlib.ExitStack() as stack:
            try:
                opened = stack.enter_context(self._open(tuple(dict.fromkeys(host_of.values()))))
                self._require_modules(opened)
                for entry in opened:
                    entry.root.prepare()
            except GatewayUnreachable as error:
                raise ProvisionFailed(f"fleet {spec.key} did not come up: {error}") from error
            place = self._seated(spec.key, opened, host_of)
            processes = self._processes(opened, host_of)
            try:
                return self._fleets_on(opened).ensure(spec, authority, place, instances, processes)
            except SkyplaneError:
                _remove_roots(opened)
                raise

    def describe(self, fleet_key: str) -> tuple[FoundGateway, ...]:
        with self._open(self.options.all_hosts()) as opened:
            return self._fleets.describe(_place(fleet_key, opened))

    def recorded(self, fleet_key: str) -> Fleet | None:
        with self._open_reachable() as (opened, failures):
            if failures and not opened:
                raise failures[0]
            return self._fleets.recorded(_place(fleet_key, opened))

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        try:
            with self._open_reachable() as (opened, failures):
                for entry in opened:
                    entry.root.prepare()
                stopped = self._fleets.destroy(_place(fleet_key, opened)) if opened else ()
                _remove_roots(opened)
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
            return self._fleets.log_tails(_place(fleet_key, opened), max_bytes)

    def check_host(self, fleet: Fleet) -> None:
        """Nothing: every process with the hosts file reaches the fleet."""

    def sweep(
        self, deployment: str, *, dry_run: bool = False, older_than_s: float | None = None
    ) -> SweepReport:
        with self._open_reachable() as (opened, failures):
            having: dict[str, list[_OpenHost]] = {}
            for entry in opened:
                for directory in entry.root.fleets():
                    having.setdefault(directory.key, []).append(entry)
            report = sweep_fleets(
                self._runner,
                [_place(key, having[key]) for key in sorted(having)],
                deployment,
                host="",
                dry_run=dry_run,
                older_than_s=older_than_s,
            )
            if not dry_run:
                _remove_roots(opened)
            # Nobody knows what is left there.
            unknown = tuple(
                SweptFleet("", "its host is not reached", (), str(failure)) for failure in failures
            )
            return replace(report, orphans=(*report.orphans, *unknown))

    # -- hosts

    @contextlib.contextmanager
    def _open(self, hosts: Sequence[SshHost]) -> Iterator[tuple[_OpenHost, ...]]:
        """Log in to hosts, all at once, until the end of the block; sorted by name.

        Raises the errors of `AgentSession`, and MissingExtra.
        """
        with self._log_in(hosts) as logins:
            yield tuple(_opened(host, login.result()) for host, login in logins)

    @contextlib.contextmanager
    def _open_reachable(self) -> Iterator[tuple[tuple[_OpenHost, ...], list[GatewayError]]]:
        """All hosts that can be reached, and the errors of the others.

        One lost machine must not keep the gateways of the others alive.
        """
        with self._log_in(self.options.all_hosts()) as logins:
            opened: list[_OpenHost] = []
            failures: list[GatewayError] = []
            for host, login in logins:
                try:
                    opened.append(_opened(host, login.result()))
                except GatewayError as error:
                    failures.append(error)
            yield tuple(opened), failures

    @contextlib.contextmanager
    def _log_in(
        self, hosts: Sequence[SshHost]
    ) -> Iterator[list[tuple[SshHost, Future[AgentSession]]]]:
        """Begin to log in to hosts; the sessions end with the block."""
        try:
            from skyplane_orchestration.provision.ssh.connection import AgentSession
        except ModuleNotFoundError as error:
            raise MissingExtra.of("the provisioner 'ssh'", "ssh") from error

        ordered = sorted(hosts, key=lambda host: (host.name, host.directory))
        with ThreadPoolExecutor(_MOST_LOGINS) as pool, contextlib.ExitStack() as stack:
            logins = [
                pool.submit(AgentSession, host, self.options.connect_timeout_s) for host in ordered
            ]
            # A login that is under way when another fails, or at an interruption, is closed too.
            for login in logins:
                stack.callback(_close, login)
            yield list(zip(ordered, logins, strict=True))

    def _require_modules(self, opened: Sequence[_OpenHost]) -> None:
        """Raise ConfigurationInvalid if a host's Python cannot run gateways."""
        for entry in opened if not self.options.command else ():
            missing = entry.machine.missing_modules(_REQUIRED_MODULES)
            if missing:
                raise ConfigurationInvalid(
                    f"{entry.host.python} on host {entry.host.name} lacks {', '.join(missing)};"
                    " install the gateway's requirements there (gateway/requirements.lock), or"
                    " name another python"
                )

    def _fleets_on(self, opened: Sequence[_OpenHost]) -> ProcessFleets:
        def bring_package(place: FleetPlace) -> None:
            package = gateway_package()
            for entry in opened if not self.options.command else ():
                entry.machine.bring(package, entry.root.fleet(place.key).path)

        return ProcessFleets(self.name, self._runner, prepare=bring_package)

    def _seated(
        self, fleet_key: str, opened: Sequence[_OpenHost], host_of: Mapping[str, SshHost]
    ) -> FleetPlace:
        """The place of a fleet, with a seat for each instance."""
        root_of = {entry.host: entry.root for entry in opened}
        package = gateway_package().name
        seats: dict[str, Seat] = {}
        for instance, host in host_of.items():
            directory = root_of[host].fleet(fleet_key)
            seats[instance] = Seat(
                directory,
                Addresses(host.address, host.data_address),
                self.options.command or (host.python, "-m", "skyplane_gateway"),
                (str(directory.path / package),),
                host.port_range,
            )
        return replace(_place(fleet_key, opened), seats=seats)

    def _processes(self, opened: Sequence[_OpenHost], host_of: Mapping[str, SshHost]) -> int:
        """Gateways of each instance: as many as the machine with the fewest processors bears."""
        instances = Counter(host_of.values())
        given = self.options.processes_per_instance
        return min(
            processes_per_instance(given, instances[entry.host], entry.machine.processors())
            for entry in opened
        )


def _opened(host: SshHost, session: AgentSession) -> _OpenHost:
    machine = RemoteMachine(host.name, session.call)
    path = Path(host.directory) if host.directory else machine.default_root()
    return _OpenHost(host, machine, RunRoot(path, machine))


def _close(login: Future[AgentSession]) -> None:
    if login.exception() is None:
        login.result().close()


def _place(fleet_key: str, opened: Sequence[_OpenHost]) -> FleetPlace:
    return FleetPlace(tuple(entry.root.fleet(fleet_key) for entry in opened))


def _remove_roots(opened: Sequence[_OpenHost]) -> None:
    """Remove the roots that have no fleet; they are empty, so a failure leaves no trouble."""
    for entry in opened:
        with contextlib.suppress(GatewayUnreachable, OSError):
            entry.machine.remove_root(entry.root.path)
