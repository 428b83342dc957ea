"""Options of the ssh provisioner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyplane_gateway.common.schema import check
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.provision.fleet.options import InstanceOptions
from skyplane_orchestration.provision.ssh.hosts import SshHost, read_hosts


@dataclass(frozen=True, slots=True)
class SshOptions:
    """How gateways run on other machines.

    Args:
        hosts: region tag -> its machines; instance number N of a region is machine number N.
        source: where the hosts are from, for messages.
        connect_timeout_s: timeout of each step of a login.
        processes_per_instance: gateways of each instance, from 1 to 32; None for as many as give
            each processor of the smallest machine a gateway, up to 8.
        term_grace_s: time from SIGTERM to SIGKILL; the supervisor kills its gateways after 35 s.
        gateway_settings: more fields of every gateway's configuration.

    Raises ConfigurationInvalid for an unknown setting or an invalid value.
    """

    hosts: Mapping[str, tuple[SshHost, ...]]
    source: str = "the hosts"
    connect_timeout_s: float = 15.0
    processes_per_instance: int | None = None
    term_grace_s: float = 40.0
    gateway_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self)
        self.of_instances()
        names = [(host.name, host.directory) for host in self.all_hosts()]
        twice = sorted({name for name, directory in names if names.count((name, directory)) > 1})
        if twice:
            raise ConfigurationInvalid(
                f"{self.source} describes {', '.join(twice)} in two ways; a machine of several"
                " regions needs the same fields in each"
            )

    @classmethod
    def from_file(cls, path: Path, **more: Any) -> SshOptions:
        """Options with the hosts of a file. Raises ConfigurationInvalid."""
        return cls(read_hosts(path), source=f"the hosts file {path}", **more)

    def host_of(self, region: str, index: int, count: int) -> SshHost:
        """The machine of instance `index` of the `count` instances that a plan has in a region.

        Raises ConfigurationInvalid: the region has no such machine.
        """
        hosts = self.hosts.get(region, ())
        if not hosts:
            raise ConfigurationInvalid(
                f"{self.source} has no host for region {region}; add one, or give the location a"
                f" region that it has: {', '.join(sorted(self.hosts))}"
            )
        if len(hosts) < count:
            raise ConfigurationInvalid(
                f"the plan has {count} instances in {region}, and {self.source} has {len(hosts)};"
                f" add hosts, or plan with at most {len(hosts)} (instance_limit)"
            )
        return hosts[index]

    def quota(self, region: str) -> RegionQuota:
        """How many instances a region may have: as many as it has machines."""
        count = len(self.hosts.get(region, ()))
        name = self.source if count else f"{self.source}, which has {', '.join(sorted(self.hosts))}"
        return RegionQuota(region, name, instances=count)

    def of_instances(self) -> InstanceOptions:
        """Those that all fleets of instances have."""
        return InstanceOptions(
            control_cidrs=(),
            processes_per_instance=self.processes_per_instance,
            # An image that must be pulled takes minutes; one that fails is seen at once.
            ready_timeout_s=900.0,
            boot_timeout_s=600.0,
            poll_s=0.5,
            gateway_settings=self.gateway_settings,
        )

    def all_hosts(self) -> tuple[SshHost, ...]:
        """Every machine once."""
        return tuple(dict.fromkeys(host for hosts in self.hosts.values() for host in hosts))
