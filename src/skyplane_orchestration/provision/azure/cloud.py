"""Azure as a `Machines`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import MissingExtra
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.azure import tags as azure_tags
from skyplane_orchestration.provision.azure.names import group_name
from skyplane_orchestration.provision.azure.options import AzureOptions
from skyplane_orchestration.provision.base import Finding
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    FleetTags,
    Ingress,
    Instance,
    LaunchRequest,
    PublicHosts,
)
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.regions import in_regions
from skyplane_orchestration.security.credentials import CredentialSources


class AzureCloud:
    """See `Machines`. Threads may share it.

    Args:
        options: subscription, credentials, images, networks.
        sources: resolves `credential_ref`; None for those without an orchestrator's hook.
        clock: of waits.

    Raises MissingExtra: the SDK is not installed.
    """

    name = "azure"

    def __init__(
        self,
        options: AzureOptions,
        sources: CredentialSources | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        try:
            from skyplane_orchestration.provision.azure.client import AzureApi
            from skyplane_orchestration.provision.azure.describe import PowerStates
            from skyplane_orchestration.provision.azure.launch import Launcher
            from skyplane_orchestration.provision.azure.network import Networks
            from skyplane_orchestration.provision.azure.remainders import Remainders
            from skyplane_orchestration.provision.azure.types import Sizes
        except ModuleNotFoundError as error:
            raise MissingExtra.of("the provisioner 'azure'", "azure") from error
        self._options = options
        self._api = AzureApi(options, sources or CredentialSources(), clock)
        self._networks = Networks(self._api, options)
        self._sizes = Sizes(self._api, options)
        self._powers = PowerStates(self._api)
        self._remainders = Remainders(self._api)
        self._launcher = Launcher(self._api, options, self._networks, self._sizes)

    @property
    def store_identity(self) -> str:
        return "azure" if self._options.managed_identity else ""

    @property
    def public_hosts(self) -> PublicHosts | None:
        if self._options.endpoint_url or not self._options.public_address:
            return None
        # The second is what Windows looks for to tell whether it has internet access.
        return PublicHosts("management.azure.com", "www.msftconnecttest.com")

    def regions(self) -> tuple[str, ...]:
        from skyplane_orchestration.provision.azure.checks import usable_regions

        return self._options.regions or usable_regions(self._api)

    def vcpus(self, region: str, instance_type: str) -> int:
        return self._sizes.of(region, instance_type).vcpus

    def describe(self, fleet_key: str, regions: Sequence[str]) -> tuple[Instance, ...]:
        return self._instances(group_name(fleet_key), regions)

    def list_resources(
        self, deployment: str, regions: Sequence[str]
    ) -> tuple[tuple[Instance, ...], tuple[FleetResource, ...]]:
        groups = self._api.resources.resource_groups
        named = azure_tags.filter_of_deployment(deployment)
        found = list(
            self._api.listed(
                f"looking for the fleets of {deployment!r}",
                "the subscription",
                lambda: groups.list(filter=named),
            )
        )
        instances = in_parallel(
            [partial(self._instances, group["name"], regions) for group in found]
        )
        rest = in_parallel([partial(self._remainders.of_group, group, regions) for group in found])
        return (
            tuple(one for row in instances for one in row),
            tuple(one for row in rest for one in row),
        )

    def prepare(self, tags: FleetTags, regions: Sequence[str], ingress: Sequence[Ingress]) -> None:
        if not regions:
            return
        # The same one for all workers: a group cannot be made again in another region.
        self._networks.ensure_group(tags, min(regions))
        in_regions(regions, lambda region: self._networks.ensure(tags, region, ingress))

    def launch(self, request: LaunchRequest) -> Instance:
        return self._launcher.launch(request)

    def pin_key(self, instance: Instance, key_id: str) -> None:
        from skyplane_orchestration.provision.azure.pin import pin_key

        pin_key(self._api, self._options.subscription_id, instance, key_id)

    def allow(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        self._networks.allow(tags, region, ingress)

    def terminate(self, instances: Sequence[Instance]) -> None:
        from skyplane_orchestration.provision.azure.terminate import terminate

        terminate(self._api, instances)

    def delete_leftovers(self, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        by_fleet = defaultdict(list)
        for resource in resources:
            by_fleet[resource.tags.fleet_key].append(resource)
        left = in_parallel([partial(self._remainders.delete, its) for its in by_fleet.values()])
        return tuple(one for row in left for one in row)

    def leftovers(self, fleet_key: str, regions: Sequence[str]) -> tuple[FleetResource, ...]:
        return self._remainders.of_fleet(fleet_key, regions)

    def console_url(self, fleet_key: str, region: str) -> str:
        # Other Resource Managers, such as those of sovereign clouds, have other portals.
        if self._options.endpoint_url:
            return ""
        from skyplane_orchestration.provision.azure.console import console_url

        return console_url(self._options.subscription_id, fleet_key)

    def console_tail(self, instance: Instance, max_bytes: int) -> str:
        from skyplane_orchestration.provision.azure.console import console_tail

        return console_tail(self._api, instance, max_bytes)

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        from skyplane_orchestration.provision.azure.quotas import region_quotas

        with_spot = self._options.spot_relays
        found = in_regions(
            regions, lambda region: region_quotas(self._api, region, with_spot=with_spot)
        )
        return tuple(quota for rows in found for quota in rows)

    def quota_uses(self, regions: Sequence[str]) -> tuple[QuotaUse, ...]:
        from skyplane_orchestration.provision.azure.quotas import quota_uses

        found = in_regions(regions, lambda region: quota_uses(self._api, self._sizes, region))
        return tuple(use for rows in found for use in rows)

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        from skyplane_orchestration.provision.azure.checks import Checks

        return Checks(self._api, self._options, self._sizes).findings()

    def _instances(self, group: str, regions: Sequence[str]) -> tuple[Instance, ...]:
        from skyplane_orchestration.provision.azure.describe import ours

        is_public = self._options.public_address
        return tuple(ours(self._api, self._powers, group, regions, has_public_address=is_public))
