"""Chooses a provisioner by its name, for the command, the Airflow hook and the Dagster resource."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.common.schema import check, checked
from skyplane_gateway.common.wording import FieldName, Text
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.fleet import CLOUD, LOCAL, SSH, GatewayPlace
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.location import CLOUDS
from skyplane_orchestration.provision.local.settings import check_processes_per_instance

if TYPE_CHECKING:
    from skyplane_orchestration.provision.provisioner import Provisioner
    from skyplane_orchestration.security.store_credentials import CredentialSources

PROVISIONERS: Final = (LOCAL, SSH, CLOUD, *CLOUDS)


@dataclass(frozen=True, slots=True)
class ProvisionerChoice:
    """A provisioner and its settings.

    Args:
        provisioner: `local`: processes of this machine. `ssh`: processes of the machines in
            `hosts_file`. `cloud`: on instances in the plan's regions, as `clouds_file` says. `aws`,
            `gcp`, `azure`: the same in the regions of that cloud only.
        run_root: directory of local fleets; None for the default.
        hosts_file: YAML or JSON file, see docs/how-to/ssh-hosts.md.
        hosts: the content of such a file, in its place. It may also hold private keys.
        clouds_file: YAML or JSON file, see docs/how-to/cloud-instances.md.
        clouds: the content of such a file, in its place.
        processes_per_instance: gateways of each instance; None for the provisioner's default.
        gateway_settings: more fields of every gateway's configuration.

    Raises ConfigurationInvalid for an unknown name, or settings of another provisioner.
    """

    provisioner: str = LOCAL
    run_root: Path | None = None
    hosts_file: Path | None = None
    hosts: Mapping[str, Any] | None = field(default=None, repr=False)
    clouds_file: Path | None = None
    clouds: Mapping[str, Any] | None = field(default=None, repr=False)
    processes_per_instance: int | None = None
    gateway_settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check(self)
        check_processes_per_instance(self.processes_per_instance)
        if self.provisioner not in PROVISIONERS:
            raise ConfigurationInvalid(
                f"there is no provisioner {self.provisioner!r}; this release has"
                f" {', '.join(map(repr, PROVISIONERS))}"
            )
        for owners, what, given in (
            ((SSH,), "hosts", (self.hosts_file, self.hosts)),
            ((CLOUD, *CLOUDS), "clouds", (self.clouds_file, self.clouds)),
        ):
            count = sum(one is not None for one in given)
            file, content = FieldName(f"{what}_file"), FieldName(what)
            if self.provisioner in owners and count == 0:
                shown = file._replace(shown=f"a {what}_file, or {what} in its place")
                raise ConfigurationInvalid(
                    Text(f"the provisioner {self.provisioner!r} needs ", shown)
                )
            if count > 1:
                raise ConfigurationInvalid(
                    Text(file, " and ", content, " exclude each other; omit one")
                )
            if self.provisioner not in owners and count:
                kinds = " or ".join(map(repr, owners))
                named = content if given[0] is None else file
                raise ConfigurationInvalid(Text(named, f" is for the provisioner {kinds} only"))
        if self.provisioner == SSH and self.run_root is not None:
            raise ConfigurationInvalid.about(
                "{run_root} is for the provisioner 'local' only; `directory` of a host in "
                "{file} is its place for fleets",
                file=FieldName("hosts_file", shown="the hosts_file"),
            )
        if self._is_on_instances and (self.gateway_settings or self.processes_per_instance):
            raise ConfigurationInvalid.about(
                "{gateway_settings} and {processes_per_instance} of the provisioner {name!r} "
                "are fields of {file}",
                name=self.provisioner,
                file=FieldName("clouds_file", shown="the clouds_file, or of clouds"),
            )

    @property
    def _is_on_instances(self) -> bool:
        return self.provisioner in (CLOUD, *CLOUDS)

    def command(self, deployment: str, *words: str) -> str:
        """A command line of `skyplane-orch` that finds the fleets of this choice.

        Args:
            words: the subcommand and its own arguments.
        """
        named: list[str] = []
        if self.run_root is not None:
            named += ["--run-root", str(self.run_root)]
        # What is in the settings of an orchestrator has no file.
        if self.provisioner == SSH:
            named += ["--hosts", str(self.hosts_file or "HOSTS.yaml")]
        if self._is_on_instances:
            named += ["--clouds", str(self.clouds_file or "CLOUDS.yaml")]
        if self.provisioner != LOCAL:
            named = ["--provisioner", self.provisioner, *named]
        if {deployment, os.environ.get("SKYPLANE_DEPLOYMENT") or deployment} != {
            DEFAULT_DEPLOYMENT
        }:
            named += ["--deployment", deployment]
        return shlex.join(["skyplane-orch", *words, *named])

    def open(
        self, place: GatewayPlace = "always", sources: CredentialSources | None = None
    ) -> Provisioner:
        """The provisioner.

        Args:
            place: whether gateways may run inside this process. Over ssh they never do: a store
                may be reachable from its host only.
            sources: resolves the `credential_ref`s of clouds.

        Raises:
            ConfigurationInvalid: the hosts or the clouds cannot be used, or `place` is unknown.
            MissingExtra: the SDK of a cloud is not installed.
        """
        checked(GatewayPlace, place, "gateways")
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
        outside = self._open_clouds(sources) if self._is_on_instances else local
        if place == "always":
            return outside
        from skyplane_orchestration.provision.in_process.small_jobs import (
            SmallJobsProvisioner,
            is_small_beside_clouds,
            is_small_on_this_machine,
        )

        is_small = is_small_beside_clouds if self._is_on_instances else is_small_on_this_machine
        return SmallJobsProvisioner(outside, local.root, place, is_small=is_small)

    def _open_clouds(self, sources: CredentialSources | None) -> Provisioner:
        from skyplane_orchestration.provision.cloud_registry import parse_clouds, read_clouds
        from skyplane_orchestration.security.store_credentials import CredentialSources

        file = self.clouds_file
        settings = parse_clouds(self.clouds) if file is None else read_clouds(file)
        if self.provisioner != CLOUD:
            settings = settings.only(self.provisioner)
        return settings.open(sources or CredentialSources())

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
                parse_hosts(self.hosts, may_hold_secrets=True)
                if file is None
                else read_hosts(file),
                source="the setting hosts" if file is None else f"the hosts file {file}",
                processes_per_instance=self.processes_per_instance,
                gateway_settings=self.gateway_settings,
            )
        )
