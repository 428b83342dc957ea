"""Options of the ssh provisioner."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.provision.local.settings import ProcessOptions
from skyplane_orchestration.provision.ssh.hosts import SshHost, read_hosts


@dataclass(frozen=True, slots=True)
class SshOptions(ProcessOptions):
    """How gateways run on other machines.

    Args:
        hosts: region tag -> its machines; instance number N of a region is machine number N.
        source: where the hosts are from, for messages.
        connect_timeout_s: timeout of each step of a login.
        ready_timeout_s: longer than on this machine: hosts may be far away.

    Raises ConfigurationInvalid for an unknown setting or an invalid value.
    """

    hosts: Mapping[str, tuple[SshHost, ...]]
    source: str = "the hosts"
    connect_timeout_s: float = 15.0
    ready_timeout_s: float = field(default=90.0, kw_only=True)

    def __post_init__(self) -> None:
        ProcessOptions.__post_init__(self)
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

    def all_hosts(self) -> tuple[SshHost, ...]:
        """Every machine once."""
        return tuple(dict.fromkeys(host for hosts in self.hosts.values() for host in hosts))
