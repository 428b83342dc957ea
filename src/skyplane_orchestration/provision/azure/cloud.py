"""Azure as a `Machines`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, cast
from urllib.parse import quote

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import MissingExtra
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.azure.checks import Checks, usable_regions
from skyplane_orchestration.provision.azure.describe import PowerStates, ours
from skyplane_orchestration.provision.azure.error_mapping import NOT_FOUND
from skyplane_orchestration.provision.azure.launch import Launcher
from skyplane_orchestration.provision.azure.leftovers import Leftovers
from skyplane_orchestration.provision.azure.network import Networks
from skyplane_orchestration.provision.azure.options import (
    ALPHABET,
    AzureOptions,
    filter_of_deployment,
    group_name,
    machine_of,
)
from skyplane_orchestration.provision.azure.types import Sizes, quota_uses, region_quotas
from skyplane_orchestration.provision.fleet.error_rules import Refusal
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    FleetTags,
    Ingress,
    Instance,
    LaunchRequest,
    PublicHosts,
    tail,
)
from skyplane_orchestration.provision.fleet.tags import KEY
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.per_region_calls import in_regions
from skyplane_orchestration.provision.provisioner import Finding
from skyplane_orchestration.security.store_credentials import CredentialSources

#: Codes for a machine that has no output yet, or none any more.
_NO_CONSOLE: Final = NOT_FOUND | {"BlobNotFound", "BootDiagnosticsNotEnabled", "Conflict"}
#: How long the address of the output can be read.
_CONSOLE_MINUTES: Final = 5


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
        except ModuleNotFoundError as error:
            raise MissingExtra.of("the provisioner 'azure'", "azure") from error
        self._options = options
        self._api = AzureApi(options, sources or CredentialSources(), clock)
        self._networks = Networks(self._api, options)
        self._sizes = Sizes(self._api, options)
        self._powers = PowerStates(self._api)
        self._leftovers = Leftovers(self._api)
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
        return self._options.regions or usable_regions(self._api)

    def vcpus(self, region: str, instance_type: str) -> int:
        return self._sizes.of(region, instance_type).vcpus

    def describe(self, fleet_key: str, regions: Sequence[str]) -> tuple[Instance, ...]:
        return self._instances(group_name(fleet_key), regions)

    def list_resources(
        self, deployment: str, regions: Sequence[str]
    ) -> tuple[tuple[Instance, ...], tuple[FleetResource, ...]]:
        groups = self._api.resources.resource_groups
        named = filter_of_deployment(deployment)
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
        rest = in_parallel([partial(self._leftovers.of_group, group, regions) for group in found])
        return (
            tuple(one for row in instances for one in row),
            tuple(one for row in rest for one in row),
        )

    def create_firewalls(
        self, tags: FleetTags, regions: Sequence[str], ingress: Sequence[Ingress]
    ) -> None:
        if not regions:
            return
        # The same one for all workers: a group cannot be made again in another region.
        self._networks.ensure_group(tags, min(regions))
        in_regions(regions, lambda region: self._networks.ensure(tags, region, ingress))

    def launch(self, request: LaunchRequest) -> Instance:
        return self._launcher.launch(request)

    def pin_key(self, instance: Instance, key_id: str) -> None:
        """The other tags stay as they are."""
        tags = {ALPHABET.name(KEY): key_id}
        body = cast("Any", {"operation": "Merge", "properties": {"tags": tags}})
        scope = (
            f"{self._group_path(instance.tags.fleet_key)}/providers/Microsoft.Compute"
            f"/virtualMachines/{machine_of(instance)}"
        )
        resources = self._api.resources
        self._api.finished(
            f"writing a tag of {instance.instance}",
            instance.region,
            lambda polling: resources.tags.begin_update_at_scope(scope, body, polling=polling),
        )

    def set_ingress(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        self._networks.set_ingress(tags, region, ingress)

    def terminate(self, instances: Sequence[Instance]) -> None:
        """Forced: there is nothing on the disks to be saved.

        Azure deletes disk, interface and address with each machine.
        """
        in_parallel([partial(self._terminate, instance) for instance in instances])

    def delete_leftovers(self, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        by_fleet = defaultdict(list)
        for resource in resources:
            by_fleet[resource.tags.fleet_key].append(resource)
        left = in_parallel([partial(self._leftovers.delete, its) for its in by_fleet.values()])
        return tuple(one for row in left for one in row)

    def leftovers(self, fleet_key: str, regions: Sequence[str]) -> tuple[FleetResource, ...]:
        return self._leftovers.of_fleet(fleet_key, regions)

    def console_url(self, fleet_key: str, region: str) -> str:
        """The resource group of the fleet, which has its instances in all regions."""
        # Other Resource Managers, such as those of sovereign clouds, have other portals.
        if self._options.endpoint_url:
            return ""
        return f"https://portal.azure.com/#resource/{self._group_path(fleet_key)}/overview"

    def console_tail(self, instance: Instance, max_bytes: int) -> str:
        compute = self._api.compute
        what = f"reading the console of {instance.instance}"
        try:
            found = self._api.call(
                what,
                instance.region,
                lambda: compute.virtual_machines.retrieve_boot_diagnostics_data(
                    group_name(instance.tags.fleet_key),
                    machine_of(instance),
                    sas_uri_expiration_time_in_minutes=_CONSOLE_MINUTES,
                ),
                expected=_NO_CONSOLE,
            )
        except Refusal:
            return ""
        address = found.serial_console_log_blob_uri
        if not address or max_bytes <= 0:
            return ""
        output = self._api.download(what, instance.region, address, most_bytes=max_bytes)
        return tail(output, max_bytes)

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        with_spot = self._options.spot_relays
        found = in_regions(
            regions, lambda region: region_quotas(self._api, region, with_spot=with_spot)
        )
        return tuple(quota for rows in found for quota in rows)

    def quota_uses(self, regions: Sequence[str]) -> tuple[QuotaUse, ...]:
        found = in_regions(regions, lambda region: quota_uses(self._api, self._sizes, region))
        return tuple(use for rows in found for use in rows)

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        return Checks(self._api, self._options, self._sizes).findings()

    def _instances(self, group: str, regions: Sequence[str]) -> tuple[Instance, ...]:
        is_public = self._options.public_address
        return tuple(ours(self._api, self._powers, group, regions, has_public_address=is_public))

    def _group_path(self, fleet_key: str) -> str:
        subscription = quote(self._options.subscription_id, safe="")
        return f"subscriptions/{subscription}/resourceGroups/{group_name(fleet_key)}"

    def _terminate(self, instance: Instance) -> None:
        compute = self._api.compute
        try:
            self._api.begin(
                f"ending {instance.instance}",
                instance.region,
                lambda: compute.virtual_machines.begin_delete(
                    group_name(instance.tags.fleet_key),
                    machine_of(instance),
                    force_deletion=True,
                    polling=False,
                ),
                expected=NOT_FOUND,
            )
        except Refusal:
            return
