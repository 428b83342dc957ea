"""Settings of clients; the command, the Airflow hook and the Dagster resource use these names."""

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
from skyplane_orchestration.model.fleet import (
    CLOUD,
    KUBERNETES,
    LOCAL,
    SSH,
    GatewayCredentials,
    GatewayPlace,
)
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.job import VALUE_OF_TIME_USD_PER_HOUR
from skyplane_orchestration.model.location import CLOUDS
from skyplane_orchestration.provision.provisioner import FleetTimes, require_fleet_limit

if TYPE_CHECKING:
    from skyplane_orchestration.client import Client
    from skyplane_orchestration.model.identity import RunIdentity
    from skyplane_orchestration.provision.provisioner import Provisioner
    from skyplane_orchestration.security.authority import FleetSecret
    from skyplane_orchestration.security.store_credentials import CredentialSources
    from skyplane_orchestration.transfer.client_context import StopAt

#: Those that have their settings in a clouds file.
_ON_INSTANCES: Final = (CLOUD, *CLOUDS, KUBERNETES)
PROVISIONERS: Final = (LOCAL, SSH, *_ON_INSTANCES)

_TIMES: Final = FleetTimes()

#: What every face says of a setting.
MEANINGS: Final = {
    "deployment": "Name of this installation, such as prod-eu. It is part of every fleet's key,"
    " and a sweep removes only its fleets, so two installations must not share it.",
    "fleet_secret": "Secret of at least 32 bytes, the same for all processes. Without it, a file"
    " of this user, for one machine only.",
    "grid": "Name or directory of the grid to plan on.",
    "learned_grid": "Directory or URL where ended transfers leave the rates that they achieved, and"
    " plans look for them before they look in the grid. Without it, transfers teach nothing.",
    "provisioner": "Where gateways run: local, on this machine; ssh, on the machines of the hosts"
    " file; cloud, on instances that it launches by the clouds file; aws, gcp or azure, on"
    " instances of that cloud only; kubernetes, in Pods of the clusters of that file.",
    "hosts_file": "File with the machines of each region, for the provisioner ssh.",
    "hosts": "The content of a hosts file, in its place.",
    "clouds_file": "File with what instances run and the settings of each cloud, for the"
    " provisioners cloud, aws, gcp, azure and kubernetes.",
    "clouds": "The content of a clouds file, in its place: an object for each cloud, and what holds"
    " for all of them, such as control_cidrs.",
    "run_root": "Directory of the gateways' files on this machine. All tasks of a local fleet must"
    " see the same one.",
    "processes_per_instance": "Gateway processes of each instance. Without it, as many as give"
    " each processor of the machine a gateway, 8 at most.",
    "max_active_fleets": "Highest number of living fleets of the deployment. A run that needs"
    " another one waits. Without it, there is no limit.",
    "gateway_credentials": "What credentials gateways on other machines get: limited, sessions that"
    " reach the places of the job only; or whole, those that this process itself uses. A run that"
    " gets no limited ones is refused.",
    "manifest_key": "Private Ed25519 key that signs the manifests of destinations: a PEM file, or"
    " env:NAME for a variable with its text. Without it, they are not signed.",
    "gateway_settings": "More fields of every gateway's configuration, such as ack_deadline_s and"
    " stall_deadline_s.",
    "start_within_s": "Longest time from provision to transfer, the time in a scheduler's queue"
    " included.",
    "value_of_time_usd_per_hour": "What an hour is worth, for plans of jobs without an objective:"
    " they have the least sum of the bill and of the time until the job is done.",
    "lease_s": "Gateways end after this time without contact.",
    "hard_end_s": "Gateways end after this time in any case.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """What all processes of one deployment share; `MEANINGS` describes each field.

    Raises ConfigurationInvalid for a value that cannot be, or settings of another provisioner.
    """

    deployment: str = DEFAULT_DEPLOYMENT
    fleet_secret: str | None = field(default=None, repr=False)
    grid: str = "shipped"
    learned_grid: str | None = None
    provisioner: str = LOCAL
    hosts_file: Path | None = None
    hosts: Mapping[str, Any] | None = field(default=None, repr=False)
    clouds_file: Path | None = None
    clouds: Mapping[str, Any] | None = field(default=None, repr=False)
    run_root: Path | None = None
    processes_per_instance: int | None = None
    max_active_fleets: int | None = None
    gateway_credentials: GatewayCredentials = "limited"
    manifest_key: str | None = None
    gateway_settings: Mapping[str, Any] = field(default_factory=dict)
    start_within_s: float = _TIMES.start_within_s
    value_of_time_usd_per_hour: float = VALUE_OF_TIME_USD_PER_HOUR
    lease_s: float = _TIMES.lease_s
    hard_end_s: float = _TIMES.hard_end_s

    def __post_init__(self) -> None:
        from skyplane_orchestration.provision.gateway_settings import check_processes_per_instance
        from skyplane_orchestration.storage.rate_samples import require_learned_grid

        check(self)
        check_processes_per_instance(self.processes_per_instance)
        require_fleet_limit(self.max_active_fleets)
        if self.learned_grid is not None:
            require_learned_grid(self.learned_grid)
        _ = self.times
        if self.fleet_secret:
            _ = self.secret
        if self.provisioner not in PROVISIONERS:
            raise ConfigurationInvalid(
                f"there is no provisioner {self.provisioner!r}; this release has"
                f" {', '.join(map(repr, PROVISIONERS))}"
            )
        for owners, what, given in (
            ((SSH,), "hosts", (self.hosts_file, self.hosts)),
            (_ON_INSTANCES, "clouds", (self.clouds_file, self.clouds)),
        ):
            count = sum(one is not None for one in given)
            file, content = FieldName(f"{what}_file"), FieldName(what)
            # A cloud alone is used with the settings of this process.
            if self.provisioner in owners and self.provisioner not in CLOUDS and count == 0:
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
    def times(self) -> FleetTimes:
        """The leases of the fleets."""
        return FleetTimes(self.start_within_s, self.lease_s, self.hard_end_s)

    @property
    def secret(self) -> FleetSecret | None:
        from skyplane_orchestration.security.authority import FleetSecret

        return FleetSecret.from_text(self.fleet_secret) if self.fleet_secret else None

    @property
    def _is_on_instances(self) -> bool:
        return self.provisioner in _ON_INSTANCES

    @property
    def _is_ambient(self) -> bool:
        """Whether a cloud is used with the credentials and variables of this process alone."""
        return self.provisioner in CLOUDS and self.clouds_file is None and self.clouds is None

    def command(self, *words: str) -> str:
        """A command line of `skyplane-orch` that finds the fleets of one deployment.

        Args:
            words: the subcommand and its own arguments.
        """
        named: list[str] = []
        if self.run_root is not None:
            named += ["--run-root", str(self.run_root)]
        # What is in the settings of an orchestrator has no file.
        if self.provisioner == SSH:
            named += ["--hosts", str(self.hosts_file or "HOSTS.yaml")]
        if self._is_on_instances and not self._is_ambient:
            named += ["--clouds", str(self.clouds_file or "CLOUDS.yaml")]
        if self.provisioner != LOCAL:
            named = ["--provisioner", self.provisioner, *named]
        usual = os.environ.get("SKYPLANE_DEPLOYMENT") or self.deployment
        if {self.deployment, usual} != {DEFAULT_DEPLOYMENT}:
            named += ["--deployment", self.deployment]
        return shlex.join(["skyplane-orch", *words, *named])

    def client(
        self,
        identity: RunIdentity,
        gateways: GatewayPlace = "always",
        sources: CredentialSources | None = None,
        *,
        price_overrides: Path | None = None,
        stop_at: StopAt | None = None,
    ) -> Client:
        """A client for a run; see `open_provisioner` and `Client`. Raises as these."""
        from skyplane_orchestration.client import Client

        return Client(
            identity=identity,
            provisioner=self.open_provisioner(gateways, sources),
            secret=self.secret,
            grid=self.grid,
            learned_grid=self.learned_grid,
            price_overrides=price_overrides,
            credentials=sources,
            times=self.times,
            max_active_fleets=self.max_active_fleets,
            value_of_time_usd_per_hour=self.value_of_time_usd_per_hour,
            gateway_credentials=self.gateway_credentials,
            manifest_key=self.manifest_key,
            stop_at=stop_at,
        )

    def open_provisioner(
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
        from skyplane_orchestration.provision.cloud_registry import (
            ambient_clouds,
            parse_clouds,
            read_clouds,
        )
        from skyplane_orchestration.security.store_credentials import CredentialSources

        file = self.clouds_file
        if self._is_ambient:
            settings = ambient_clouds(self.provisioner)
        else:
            settings = parse_clouds(self.clouds) if file is None else read_clouds(file)
        if self.provisioner != CLOUD:
            settings = settings.only(self.provisioner)
        return settings.open(sources or CredentialSources())

    def _open_ssh(self, place: GatewayPlace) -> Provisioner:
        from skyplane_orchestration.provision.ssh import SshOptions, SshProvisioner
        from skyplane_orchestration.provision.ssh.options import parse_hosts, read_hosts

        if place == "never":
            raise ConfigurationInvalid(
                "a copy without gateways does not use the provisioner 'ssh'; omit one of the two"
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
