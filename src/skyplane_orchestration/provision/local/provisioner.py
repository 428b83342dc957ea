"""`LocalProvisioner`: gateways as processes on this machine.

It serves transfers that need no cloud instances, network namespaces, tests and the demo.
"""

from __future__ import annotations

import importlib.util
import logging
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from skyplane_gateway.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    FleetLost,
    ForeignHost,
    MissingExtra,
    NotAuthorised,
    ProvisionFailed,
    SkyplaneError,
    TeardownIncomplete,
)
from skyplane_orchestration.model.fleet import LOCAL, Fleet
from skyplane_orchestration.model.sweep_report import SweepReport
from skyplane_orchestration.provision.base import FleetSpec, FoundGateway
from skyplane_orchestration.provision.local import hosts
from skyplane_orchestration.provision.local.bring_up import bring_up
from skyplane_orchestration.provision.local.machine import LocalMachine, SessionFactory
from skyplane_orchestration.provision.local.options import LocalOptions
from skyplane_orchestration.provision.local.run_directory import (
    DirectoryBusy,
    FleetDirectory,
    FleetMeta,
    RunRoot,
    default_run_root,
)
from skyplane_orchestration.provision.local.teardown import remove_fleet, sweep_fleets
from skyplane_orchestration.provision.routes import (
    node_names,
    route_document,
    split_into_processes,
)

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

log = logging.getLogger(__name__)

#: Errors of `ensure` that are not turned into ProvisionFailed.
_PASSED_ON: Final = (
    ConfigurationInvalid,
    ForeignHost,
    NotAuthorised,
    ProvisionFailed,
    TeardownIncomplete,
)


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
        self._clock = clock
        self._machine = LocalMachine(self.options, self.root.path, connect, clock)

    @property
    def name(self) -> str:
        return LOCAL

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        began_s = self._clock.monotonic()
        self._require_gateway()
        limit = spec.max_instances_per_region or self.options.max_instances_per_region
        instances = node_names(spec.plan, limit)
        processes = self.options.processes_of(
            sum(map(len, instances.values())), hosts.usable_processors()
        )
        self.root.prepare()
        directory = self.root.fleet(spec.key)
        timeout_s = self.options.lock_timeout_s
        try:
            with directory.locked(
                create=not spec.must_exist, timeout_s=timeout_s, clock=self._clock
            ):
                meta = self._prepare_record(directory, spec, processes)
                nodes = split_into_processes(
                    instances, dict.fromkeys(instances, meta.processes_per_instance)
                )
                gateways, routes = bring_up(spec, meta, nodes, directory, authority, self._machine)
                fleet = Fleet(
                    key=spec.key,
                    generation=spec.generation,
                    deployment=spec.deployment,
                    provisioner=self.name,
                    plan=spec.plan,
                    gateways=gateways,
                    routes=tuple(route_document(route) for route in routes),
                    host=meta.host,
                    provision_s=self._clock.monotonic() - began_s,
                    hard_end_unix_s=meta.hard_end_unix_s,
                )
                directory.write_fleet(fleet.to_dict())
                return fleet
        except FileNotFoundError as error:
            if not spec.must_exist or directory.path.exists():
                raise ProvisionFailed(f"fleet {spec.key} did not come up: {error}") from error
            raise FleetLost(f"fleet {spec.key} was torn down") from error
        except DirectoryBusy as error:
            raise ProvisionFailed(f"{error}, for {timeout_s:g} s already") from error
        except _PASSED_ON:
            raise
        except (SkyplaneError, OSError) as error:
            raise ProvisionFailed(f"fleet {spec.key} did not come up: {error}") from error

    def find(self, fleet_key: str) -> tuple[FoundGateway, ...]:
        pids: dict[str, list[str]] = {}
        for process in self._machine.processes_of(self.root.fleet(fleet_key)):
            pids.setdefault(process.node, []).append(str(process.pid))
        return tuple(
            FoundGateway(node=node, details={"pid": ",".join(pids[node])}) for node in sorted(pids)
        )

    def recorded(self, fleet_key: str) -> Fleet | None:
        document = self.root.fleet(fleet_key).read_fleet()
        try:
            fleet = None if document is None else Fleet.from_dict(document)
        except ConfigurationInvalid as error:
            log.info("the record of fleet %s cannot be used: %s", fleet_key, error)
            return None
        is_here = fleet is not None and fleet.host == hosts.host_identity()
        return fleet if is_here else None

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        self.root.prepare()
        directory = self.root.fleet(fleet_key)
        timeout_s = self.options.lock_timeout_s
        try:
            # The directory is created if it is missing: without the lock, a concurrent
            # `ensure` could lose some of its gateways.
            with directory.locked(create=True, timeout_s=timeout_s, clock=self._clock):
                return remove_fleet(self._machine, directory)
        except DirectoryBusy as error:
            left = ", ".join(gateway.node for gateway in self.find(fleet_key))
            raise TeardownIncomplete(f"{error}; still running: {left or 'nothing yet'}") from error

    def log_tails(self, fleet_key: str, max_bytes: int = 65536) -> Mapping[str, str]:
        gateways = self.root.fleet(fleet_key).gateways()
        tails = {files.node: files.log_tail(max_bytes) for files in gateways}
        return {node: tail for node, tail in tails.items() if tail}

    def check_host(self, fleet: Fleet) -> None:
        hosts.require_this_host(fleet.host, fleet.key)

    def sweep(
        self, deployment: str, *, dry_run: bool = False, older_than_s: float | None = None
    ) -> SweepReport:
        self.root.prepare()
        return sweep_fleets(
            self._machine, self.root, deployment, dry_run=dry_run, older_than_s=older_than_s
        )

    def _require_gateway(self) -> None:
        """Raise MissingExtra if this interpreter is to run gateways and cannot."""
        options = self.options
        is_own = not options.command and options.python == sys.executable
        if is_own and importlib.util.find_spec("aiohttp") is None:
            raise MissingExtra.of("a gateway on this machine", "gateway")

    def _prepare_record(
        self, directory: FleetDirectory, spec: FleetSpec, processes: int
    ) -> FleetMeta:
        """The record of the existing fleet, or the new record of a new one."""
        now, host = self._clock.wall(), hosts.host_identity()
        meta = directory.read_meta()
        if meta is not None:
            if meta.deployment != spec.deployment:
                raise ConfigurationInvalid(
                    f"fleet {spec.key} belongs to deployment {meta.deployment!r},"
                    f" not to {spec.deployment!r}"
                )
            if hosts.machine_of(meta.host) != hosts.machine_of(host):
                hosts.require_this_host(meta.host, spec.key)
            if meta.host == host and meta.hard_end_unix_s > now:
                return meta
            # The machine has restarted, or the fleet is past its hard end.
            self._machine.stop_fleet(directory)
            directory.clear()
        meta = FleetMeta(
            deployment=spec.deployment,
            generation=spec.generation,
            created_unix_s=now,
            hard_end_unix_s=now + spec.times.hard_end_s,
            host=host,
            processes_per_instance=processes,
        )
        directory.write_meta(meta)
        return meta
