"""The verbs of a provisioner whose gateways are processes, here or on hosts."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import (
    ConfigurationInvalid,
    FleetLost,
    ForeignHost,
    MissingExtra,
    NotAuthorised,
    ProvisionFailed,
    SkyplaneError,
    TeardownIncomplete,
    TooManyFleets,
)
from skyplane_orchestration.model.fleet import Fleet
from skyplane_orchestration.provision.local.bring_up import bring_up
from skyplane_orchestration.provision.local.fleet_files import FleetFiles
from skyplane_orchestration.provision.local.run_directory import DirectoryBusy, FleetMeta
from skyplane_orchestration.provision.local.runner import Runner
from skyplane_orchestration.provision.local.teardown import remove_fleet
from skyplane_orchestration.provision.provisioner import FleetSpec, FoundGateway
from skyplane_orchestration.provision.routes import route_document, split_into_processes

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

log = logging.getLogger(__name__)

#: Errors of `ensure` that are not turned into ProvisionFailed.
_PASSED_ON: Final = (
    ConfigurationInvalid,
    ForeignHost,
    MissingExtra,
    NotAuthorised,
    ProvisionFailed,
    TeardownIncomplete,
    TooManyFleets,
)


@dataclass(frozen=True, slots=True)
class ProcessFleets:
    """Brings fleets up and down.

    Args:
        provisioner: its name, for fleet documents.
        host: `name/boot id` of this machine if the gateways run on it, or else empty.
        prepare: called with the files of a locked fleet before gateways are started.
    """

    provisioner: str
    runner: Runner
    host: str = ""
    prepare: Callable[[FleetFiles], None] = lambda fleet_files: None

    def ensure(
        self,
        spec: FleetSpec,
        authority: Authority,
        fleet_files: FleetFiles,
        instances: Mapping[str, Sequence[str]],
        processes: int,
        admission: AbstractContextManager[None] | None = None,
    ) -> Fleet:
        """As `Provisioner.ensure`.

        Args:
            instances: region tag -> the names of its instances.
            processes: gateways of each instance of a new fleet.
            admission: entered before the fleet's lock is taken, and left once it is.
        """
        clock, timeout_s = self.runner.clock, self.runner.options.lock_timeout_s
        began_s = clock.monotonic()
        try:
            with ExitStack() as stack:
                with admission or nullcontext():
                    stack.enter_context(
                        fleet_files.locked(
                            create=not spec.must_exist, timeout_s=timeout_s, clock=clock
                        )
                    )
                meta = self._prepare_record(fleet_files, spec, processes)
                self.prepare(fleet_files)
                nodes = split_into_processes(
                    instances, dict.fromkeys(instances, meta.processes_per_instance)
                )
                gateways, routes = bring_up(spec, meta, nodes, fleet_files, authority, self.runner)
                fleet = Fleet(
                    key=spec.key,
                    generation=spec.generation,
                    deployment=spec.deployment,
                    provisioner=self.provisioner,
                    plan=spec.plan,
                    gateways=gateways,
                    routes=tuple(route_document(route) for route in routes),
                    host=meta.host,
                    provision_s=clock.monotonic() - began_s,
                    hard_end_unix_s=meta.hard_end_unix_s,
                )
                fleet_files.write_fleet(fleet.to_dict())
                return fleet
        except FileNotFoundError as error:
            if not spec.must_exist or fleet_files.exists():
                raise ProvisionFailed(f"fleet {spec.key} did not come up: {error}") from error
            raise FleetLost(f"fleet {spec.key} was torn down") from error
        except DirectoryBusy as error:
            raise ProvisionFailed(f"{error}, for {timeout_s:g} s already") from error
        except _PASSED_ON:
            raise
        except (SkyplaneError, OSError) as error:
            raise ProvisionFailed(f"fleet {spec.key} did not come up: {error}") from error

    def describe(self, fleet_files: FleetFiles) -> tuple[FoundGateway, ...]:
        pids: dict[str, list[str]] = {}
        for process in fleet_files.processes():
            pids.setdefault(process.node, []).append(str(process.pid))
        return tuple(
            FoundGateway(node=node, details={"pid": ",".join(pids[node])}) for node in sorted(pids)
        )

    def recorded(self, fleet_files: FleetFiles) -> Fleet | None:
        document = fleet_files.read_fleet()
        try:
            fleet = None if document is None else Fleet.from_dict(document)
        except ConfigurationInvalid as error:
            log.info("the record of fleet %s cannot be used: %s", fleet_files.key, error)
            return None
        return fleet if fleet is not None and fleet.host == self.host else None

    def destroy(self, fleet_files: FleetFiles) -> tuple[str, ...]:
        timeout_s = self.runner.options.lock_timeout_s
        try:
            # Missing directories are created: without the lock, a concurrent `ensure` could
            # lose some of its gateways.
            with fleet_files.locked(create=True, timeout_s=timeout_s, clock=self.runner.clock):
                return remove_fleet(self.runner, fleet_files)
        except DirectoryBusy as error:
            running = ", ".join(gateway.node for gateway in self.describe(fleet_files))
            raise TeardownIncomplete(
                f"{error}; still running: {running or 'nothing yet'}"
            ) from error

    def log_tails(self, fleet_files: FleetFiles, max_bytes: int) -> Mapping[str, str]:
        tails = {files.node: files.log_tail(max_bytes) for files in fleet_files.gateways()}
        return {node: tail for node, tail in tails.items() if tail}

    def _prepare_record(
        self, fleet_files: FleetFiles, spec: FleetSpec, processes: int
    ) -> FleetMeta:
        """The record of the existing fleet, or the new record of a new one."""
        now = fleet_files.wall_s(self.runner.clock)
        meta = fleet_files.read_meta()
        if meta is not None:
            if meta.deployment != spec.deployment:
                raise ConfigurationInvalid(
                    f"fleet {spec.key} belongs to deployment {meta.deployment!r},"
                    f" not to {spec.deployment!r}"
                )
            if meta.host == self.host and meta.hard_end_unix_s > now:
                fleet_files.write_meta(meta)
                return meta
            # The machine has restarted, or the fleet is past its hard end.
            self.runner.stop_fleet(fleet_files)
            fleet_files.clear()
        elif spec.must_exist and len(fleet_files.directories) > 1:
            # It was torn down after its directories were looked for.
            fleet_files.remove()
            raise FileNotFoundError(f"fleet {spec.key} is gone")
        meta = FleetMeta(
            deployment=spec.deployment,
            generation=spec.generation,
            created_unix_s=now,
            hard_end_unix_s=now + spec.times.hard_end_s,
            host=self.host,
            processes_per_instance=processes,
        )
        fleet_files.write_meta(meta)
        return meta
