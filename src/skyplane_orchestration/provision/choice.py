"""Chooses a provisioner by its name, for the command, the Airflow hook and the Dagster resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import LOCAL, SSH

if TYPE_CHECKING:
    from skyplane_orchestration.provision.base import Provisioner
    from skyplane_orchestration.provision.in_process import GatewayPlace

PROVISIONERS: Final = (LOCAL, SSH)


@dataclass(frozen=True, slots=True)
class ProvisionerChoice:
    """A provisioner and its settings.

    Args:
        provisioner: `local`: processes of this machine. `ssh`: processes of the machines in
            `hosts_file`.
        run_root: directory of local fleets; None for the default.
        hosts_file: YAML or JSON file, see docs/how-to/ssh-hosts.md.
        hosts: the content of such a file, in its place.
        processes_per_instance: gateways of each instance; None for the provisioner's default.
        gateway_settings: more fields of every gateway's configuration.

    Raises ConfigurationInvalid for an unknown name, or settings of another provisioner.
    """

    provisioner: str = LOCAL
    run_root: Path | None = None
    hosts_file: Path | None = None
    hosts: Mapping[str, Any] | None = None
    processes_per_instance: int | None = None
    gateway_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.provisioner not in PROVISIONERS:
            raise ConfigurationInvalid(
                f"there is no provisioner {self.provisioner!r}; this release has"
                f" {' and '.join(map(repr, PROVISIONERS))}"
            )
        given = (self.hosts_file is not None) + (self.hosts is not None)
        if self.provisioner == SSH and given != 1:
            raise ConfigurationInvalid("the provisioner 'ssh' needs a hosts_file, and only one")
        if self.provisioner == SSH and self.run_root is not None:
            raise ConfigurationInvalid(
                "run_root is for the provisioner 'local' only; `directory` of a host in the"
                " hosts_file is its place for fleets"
            )
        if self.provisioner != SSH and given:
            raise ConfigurationInvalid("hosts_file is for the provisioner 'ssh' only")

    def open(self, place: GatewayPlace = "always") -> Provisioner:
        """The provisioner; `place` says whether gateways may run inside this process.

        Over ssh they never do: a store may be reachable from its host only.

        Raises ConfigurationInvalid: the hosts file cannot be used.
        """
        if self.provisioner == SSH:
            return self._open_ssh(place)
        from skyplane_orchestration.provision.local import LocalOptions, LocalProvisioner

        local = LocalProvisioner(
            LocalOptions(
                run_root=self.run_root,
                processes_per_instance=self.processes_per_instance,
                gateway_settings=self.gateway_settings,
            )
        )
        if place == "always":
            return local
        from skyplane_orchestration.provision.in_process import SmallJobsProvisioner

        return SmallJobsProvisioner(local, place)

    def _open_ssh(self, place: GatewayPlace) -> Provisioner:
        from skyplane_orchestration.provision.ssh import SshOptions, SshProvisioner
        from skyplane_orchestration.provision.ssh.hosts import parse_hosts, read_hosts

        if place == "never":
            raise ConfigurationInvalid(
                "a copy without gateways has no use for the provisioner 'ssh'; omit one of both"
            )
        file = self.hosts_file
        return SshProvisioner(
            SshOptions(
                parse_hosts(self.hosts) if file is None else read_hosts(file),
                source="the setting hosts" if file is None else f"the hosts file {file}",
                processes_per_instance=self.processes_per_instance,
                gateway_settings=self.gateway_settings,
            )
        )
