"""Google Cloud as a `Machines`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import MissingExtra
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.base import Finding
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    FleetTags,
    Ingress,
    Instance,
    LaunchRequest,
    PublicHosts,
)
from skyplane_orchestration.provision.gcp import tags as gcp_tags
from skyplane_orchestration.provision.gcp.checks import findings
from skyplane_orchestration.provision.gcp.console import console_tail, console_url
from skyplane_orchestration.provision.gcp.describe import ours, usable_regions
from skyplane_orchestration.provision.gcp.launch import Launcher
from skyplane_orchestration.provision.gcp.network import FIREWALL, Firewalls
from skyplane_orchestration.provision.gcp.options import GcpOptions
from skyplane_orchestration.provision.gcp.pin import pin_key
from skyplane_orchestration.provision.gcp.quotas import quota_uses, region_quotas
from skyplane_orchestration.provision.gcp.remainders import delete_disk, disks
from skyplane_orchestration.provision.gcp.terminate import terminate
from skyplane_orchestration.provision.gcp.types import Types
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.security.credentials import CredentialSources


class GcpCloud:
    """See `Machines`. Threads may share it.

    Args:
        options: project, credentials, images, networks.
        sources: resolves `credential_ref`; None for those without an orchestrator's hook.
        clock: of waits.

    Raises MissingExtra: the SDK is not installed.
    """

    name = "gcp"

    def __init__(
        self,
        options: GcpOptions,
        sources: CredentialSources | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        try:
            from skyplane_orchestration.provision.gcp.client import GcpApi
        except ModuleNotFoundError as error:
            raise MissingExtra.of("the provisioner 'gcp'", "gcp") from error
        self._options = options
        self._api = GcpApi(options, sources or CredentialSources(), clock)
        self._firewalls = Firewalls(self._api, options)
        self._types = Types(self._api, options)
        self._launcher = Launcher(self._api, options, self._types)

    @property
    def store_identity(self) -> str:
        return "gcs" if self._options.service_account else ""

    @property
    def public_hosts(self) -> PublicHosts | None:
        if self._options.endpoint_url or not self._options.public_address:
            return None
        return PublicHosts("compute.googleapis.com", "storage.googleapis.com")

    def regions(self) -> tuple[str, ...]:
        return self._options.regions or usable_regions(self._api)

    def vcpus(self, region: str, instance_type: str) -> int:
        return self._types.of(region, instance_type).vcpus

    def describe(self, fleet_key: str, regions: Sequence[str]) -> tuple[Instance, ...]:
        return self._instances(gcp_tags.filter_of_fleet(fleet_key), regions)

    def list_resources(
        self, deployment: str, regions: Sequence[str]
    ) -> tuple[tuple[Instance, ...], tuple[FleetResource, ...]]:
        chosen = gcp_tags.filter_of_deployment(deployment)
        firewalls = self._firewalls.of_deployment(deployment)
        rest = (
            *(one for one in firewalls if one.region in regions),
            *disks(self._api, chosen, regions),
        )
        return self._instances(chosen, regions), rest

    def prepare(self, tags: FleetTags, regions: Sequence[str], ingress: Sequence[Ingress]) -> None:
        self._firewalls.prepare(tags, regions, ingress)

    def launch(self, request: LaunchRequest) -> Instance:
        return self._launcher.launch(request)

    def pin_key(self, instance: Instance, key_id: str) -> None:
        pin_key(self._api, instance, key_id)

    def allow(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        self._firewalls.allow(tags, region, ingress)

    def terminate(self, instances: Sequence[Instance]) -> None:
        in_parallel([partial(terminate, self._api, instance) for instance in instances])

    def delete_leftovers(self, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        used = self._used_firewalls(resources)
        are_deleted = in_parallel([partial(self._is_deleted, one, used) for one in resources])
        return tuple(
            one for one, is_deleted in zip(resources, are_deleted, strict=True) if not is_deleted
        )

    def leftovers(self, fleet_key: str, regions: Sequence[str]) -> tuple[FleetResource, ...]:
        firewalls = self._firewalls.of_fleet(fleet_key)
        chosen = gcp_tags.filter_of_fleet(fleet_key)
        return (
            *(
                one
                for one in firewalls
                if one.tags.fleet_key == fleet_key and one.region in regions
            ),
            *disks(self._api, chosen, regions),
        )

    def console_url(self, fleet_key: str, region: str) -> str:
        return console_url(self._options.project)

    def console_tail(self, instance: Instance, max_bytes: int) -> str:
        return console_tail(self._api, instance, max_bytes)

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        return region_quotas(self._api, regions, with_spot=self._options.spot_relays)

    def quota_uses(self, regions: Sequence[str]) -> tuple[QuotaUse, ...]:
        return quota_uses(self._api, regions)

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        return findings(self._api, self._options, self._types)

    def _instances(self, filter_: str, regions: Sequence[str]) -> tuple[Instance, ...]:
        return ours(self._api, filter_, regions, has_public_address=self._options.public_address)

    def _used_firewalls(self, resources: Sequence[FleetResource]) -> set[tuple[str, str]]:
        """Fleet and region of the firewalls that still have instances.

        Google would delete them, and open running instances to whatever else the network allows.
        """
        keys = {one.tags.fleet_key for one in resources if one.kind == FIREWALL}
        regions = {one.region for one in resources if one.kind == FIREWALL}
        return {
            (key, instance.region)
            for key in keys
            for instance in self.describe(key, tuple(regions))
        }

    def _is_deleted(self, resource: FleetResource, used: set[tuple[str, str]]) -> bool:
        if resource.kind != FIREWALL:
            return delete_disk(self._api, resource)
        if (resource.tags.fleet_key, resource.region) in used:
            return False
        self._firewalls.delete(resource)
        return True
