"""The ssh provisioner: fleets of `SshMachines`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.errors import GatewayUnreachable, ProvisionFailed, TeardownIncomplete
from skyplane_orchestration.model.fleet import SSH, Fleet
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.location import KNOWN_CLOUDS
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.model.sweep_report import SweepReport, SweptFleet
from skyplane_orchestration.provision.control_sessions import SessionFactory
from skyplane_orchestration.provision.fleet.boot import Boot
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.provision.provisioner import (
    AuthorityOf,
    Finding,
    FleetSpec,
    FoundGateway,
)
from skyplane_orchestration.provision.routes import node_names
from skyplane_orchestration.provision.ssh.machines import SshMachines
from skyplane_orchestration.provision.ssh.options import SshOptions
from skyplane_orchestration.provision.ssh.sessions import HostSessions

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

#: Seconds until gateways on machines that run already are connected; an estimate.
_PROVISION_S: Final = 10.0
#: A host shows a directory at once; a launch whose session is lost may end this late.
_VISIBLE_WITHIN_S: Final = 5.0


def _boot(machines: SshMachines, clock: Clock) -> Boot:
    """Enrols over a session of ssh; `SshMachines.launch` writes the script of a host."""
    return Boot(lambda document, _: document.to_json(), machines.stream_of, clock)


class SshProvisioner:
    """Gateways over ssh; `Provisioner` documents the verbs."""

    name = SSH

    def __init__(
        self,
        options: SshOptions,
        *,
        connect: SessionFactory = ControlClient,
        clock: Clock = SYSTEM_CLOCK,
        boot_of: Callable[[SshMachines, Clock], Boot] = _boot,
    ) -> None:
        self.options = options
        self._connect = connect
        self._clock = clock
        self._boot_of = boot_of
        self._machines = SshMachines(options, HostSessions(options.connect_timeout_s), clock)

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        hosts = [
            self.options.host_of(region, index, len(names))
            for region, names in node_names(spec.plan, spec.max_instances_per_region).items()
            for index in range(len(names))
        ]
        try:
            self._machines.require(tuple(dict.fromkeys(hosts)))
            fleet = self._on(self._machines).ensure(spec, authority)
        except GatewayUnreachable as error:
            raise ProvisionFailed(f"fleet {spec.key} did not come up: {error}") from error
        # Nobody bills them.
        return replace(fleet, instances=())

    def describe(self, fleet_key: str) -> tuple[FoundGateway, ...]:
        return self._on(self._machines).describe(fleet_key)

    def recorded(self, fleet_key: str) -> Fleet | None:
        """Nothing: tags do not hold the plan. The fleet's document has it."""
        return None

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        machines, failures = self._machines.reachable()
        stopped = self._on(machines).destroy(fleet_key)
        for failure in failures:
            raise TeardownIncomplete(
                f"gateways of fleet {fleet_key} may still run: {failure}; run teardown again, or"
                " their lease ends them"
            ) from failure
        return stopped

    def log_tails(self, fleet_key: str, max_bytes: int = 65536) -> Mapping[str, str]:
        machines, _ = self._machines.reachable()
        return self._on(machines).log_tails(fleet_key, max_bytes)

    def check_host(self, fleet: Fleet) -> None:
        """Every process with the hosts file reaches the fleet."""
        self._on(self._machines).check_host(fleet)

    def sweep(
        self,
        deployment: str,
        *,
        dry_run: bool = False,
        older_than_s: float | None = None,
        authority_of: AuthorityOf | None = None,
    ) -> SweepReport:
        machines, failures = self._machines.reachable()
        report = self._on(machines).sweep(
            deployment, dry_run=dry_run, older_than_s=older_than_s, authority_of=authority_of
        )
        # Nobody knows what is left there.
        unknown = tuple(
            SweptFleet("", "its host is not reached", (), str(failure)) for failure in failures
        )
        return replace(report, orphans=(*report.orphans, *unknown))

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        """A region may have as many instances as it has hosts."""
        return self._machines.quotas(regions)

    @property
    def provision_s(self) -> Mapping[str, float]:
        """Machines run already. The first fleet of a bare one takes longer: it installs."""
        return dict.fromkeys(KNOWN_CLOUDS, _PROVISION_S)

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        return self._machines.check(deployment)

    def _on(self, machines: SshMachines) -> InstanceProvisioner:
        return InstanceProvisioner(
            [machines],
            self._boot_of(machines, self._clock),
            self.options.of_instances(),
            connect=self._connect,
            clock=self._clock,
            name=self.name,
            visible_within_s=_VISIBLE_WITHIN_S,
        )
