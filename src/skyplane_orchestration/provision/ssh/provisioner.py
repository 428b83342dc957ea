"""The ssh provisioner: fleets of `SshMachines`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.common.dialing import directly
from skyplane_gateway.control.client import ControlClient
from skyplane_gateway.enrolment.client import OpenStream
from skyplane_orchestration.errors import GatewayUnreachable, ProvisionFailed, TeardownIncomplete
from skyplane_orchestration.model.fleet import SSH, Fleet
from skyplane_orchestration.model.location import KNOWN_CLOUDS
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.model.sweep_report import SweepReport, SweptFleet
from skyplane_orchestration.provision.control_sessions import SessionFactory
from skyplane_orchestration.provision.fleet.boot import Boot
from skyplane_orchestration.provision.fleet.context import FleetContext
from skyplane_orchestration.provision.fleet.machines import Instance
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.fleet.provisioner import (
    DEFAULT_TAIL_BYTES,
    InstanceProvisioner,
)
from skyplane_orchestration.provision.provisioner import FleetSpec
from skyplane_orchestration.provision.routes import node_names
from skyplane_orchestration.provision.ssh.machines import HostSessions, SkyplaneFailure, SshMachines
from skyplane_orchestration.provision.ssh.options import SshOptions

if TYPE_CHECKING:
    from skyplane_orchestration.security.authority import Authority

#: Seconds until gateways on machines that run already are connected; an estimate.
_PROVISION_S: Final = 10.0
#: A host shows a directory at once; a launch whose session is lost may end this late.
_VISIBLE_WITHIN_S: Final = 5.0


def _before_data(instance: Instance) -> OpenStream:
    """An instance is enrolled at a port of its first gateway, which does not run yet.

    It is that for data. Nobody calls it before its time, as the control port.
    """
    return partial(directly, instance.address, instance.data(0)[1])


class SshProvisioner(InstanceProvisioner):
    """Gateways over ssh. Every process with the hosts file reaches the fleets."""

    def __init__(
        self,
        options: SshOptions,
        *,
        connect: SessionFactory = ControlClient,
        clock: Clock = SYSTEM_CLOCK,
        boot: Boot | None = None,
    ) -> None:
        self.options = options
        self._machines = SshMachines(options, HostSessions(options.connect_timeout_s), clock)
        context = FleetContext(
            Clouds([self._machines], clock),
            # `SshMachines.launch` writes the script of a host.
            boot or Boot(lambda document, *_: document.to_json(), _before_data, clock),
            options.of_instances(),
            clock,
            connect,
            visible_within_s=_VISIBLE_WITHIN_S,
            name=SSH,
        )
        super().__init__(context)

    def ensure(self, spec: FleetSpec, authority: Authority) -> Fleet:
        hosts = [
            self.options.host_of(region, index, len(names))
            for region, names in node_names(spec.plan).items()
            for index in range(len(names))
        ]
        try:
            self._machines.require(tuple(dict.fromkeys(hosts)))
            fleet = super().ensure(spec, authority)
        except GatewayUnreachable as error:
            raise ProvisionFailed(f"fleet {spec.key} did not come up: {error}") from error
        # Nobody bills them.
        return replace(fleet, instances=())

    def destroy(self, fleet_key: str) -> tuple[str, ...]:
        reached, failures = self._reached()
        stopped = reached.destroy(fleet_key)
        for failure in failures:
            raise TeardownIncomplete(
                f"gateways of fleet {fleet_key} may still run: {failure}; run teardown again, or"
                " their lease ends them"
            ) from failure
        return stopped

    def log_tails(self, fleet_key: str, max_bytes: int = DEFAULT_TAIL_BYTES) -> Mapping[str, str]:
        reached, _ = self._reached()
        return reached.log_tails(fleet_key, max_bytes)

    def sweep(self, deployment: str, **more: Any) -> SweepReport:
        reached, failures = self._reached()
        report = reached.sweep(deployment, **more)
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

    @property
    def has_internal_addresses(self) -> bool:
        """Hosts dial the addresses of the hosts file."""
        return False

    def _reached(self) -> tuple[InstanceProvisioner, tuple[SkyplaneFailure, ...]]:
        """One for the hosts that can be reached now, and why others cannot."""
        machines, failures = self._machines.reachable()
        clouds = Clouds([machines], self._context.clock)
        return InstanceProvisioner(replace(self._context, clouds=clouds)), failures
