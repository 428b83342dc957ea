"""Azure as a `Machines`."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Final
from urllib.parse import quote

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.azure import describe
from skyplane_orchestration.provision.azure.checks import findings, usable_regions
from skyplane_orchestration.provision.azure.client import AzureApi
from skyplane_orchestration.provision.azure.describe import VmSizes, quota_uses, region_quotas
from skyplane_orchestration.provision.azure.error_mapping import NOT_FOUND
from skyplane_orchestration.provision.azure.firewall import FleetNetworks
from skyplane_orchestration.provision.azure.launch import AzureLaunch
from skyplane_orchestration.provision.azure.options import (
    ALPHABET,
    AzureOptions,
    Kind,
    group_name,
    machine_of,
    path_of,
)
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    FleetTags,
    Ingress,
    Instance,
    LaunchRequest,
    Machines,
    PublicHosts,
    tail,
)
from skyplane_orchestration.provision.fleet.tags import KEY
from skyplane_orchestration.provision.parallel import in_parallel, in_regions
from skyplane_orchestration.provision.provisioner import Finding
from skyplane_orchestration.security.store_credentials import CredentialSources

#: Codes for a machine that has no output yet, or none any more.
_NO_CONSOLE: Final = NOT_FOUND | {"BlobNotFound", "BootDiagnosticsNotEnabled", "Conflict"}


class AzureCloud(Machines):
    """See `Machines`. Threads may share it.

    Args:
        options: subscription, credentials, images, networks.
        sources: resolves `credential_ref`; None for those without an orchestrator's hook.
        clock: of waits.
    """

    name = "azure"

    def __init__(
        self,
        options: AzureOptions,
        sources: CredentialSources | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._options = options
        self._api = AzureApi(options, sources or CredentialSources(), clock)
        self._networks = FleetNetworks(self._api)
        self._sizes = VmSizes(self._api)
        # Azure has one list of power states for the whole subscription, which may be long.
        self._powers = describe.Powers(keep_s=10.0, clock=clock)

    def store_identity(self, region: str) -> str:
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
        return describe.our_instances(self._api, self._powers, group_name(fleet_key), regions)

    def list_resources(
        self, deployment: str, regions: Sequence[str]
    ) -> tuple[tuple[Instance, ...], tuple[FleetResource, ...]]:
        what = f"looking for the fleets of {deployment!r}"
        value = deployment.replace("'", "''")
        chosen = f"tagName eq '{ALPHABET.name('deployment')}' and tagValue eq '{value}'"
        groups = list(self._api.listed(what, f"resourceGroups?$filter={quote(chosen)}"))
        look = partial(describe.our_instances, self._api, self._powers, regions=regions)
        instances = in_parallel([group["name"] for group in groups], look)
        rest = in_parallel(groups, lambda one: describe.leftovers(self._api, one, regions))
        return tuple(chain.from_iterable(instances)), tuple(chain.from_iterable(rest))

    def create_firewalls(self, tags: FleetTags, regions: Sequence[str]) -> None:
        if not regions:
            return
        # The same one for all workers: a group cannot be made again in another region.
        self._networks.ensure_group(tags, min(regions))
        in_regions(regions, lambda region: self._networks.ensure(tags, region))

    def admit(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        self._networks.admit(tags, region, ingress)

    def launch(self, request: LaunchRequest) -> Instance:
        return AzureLaunch(self._api, self._sizes, request).run()

    def pin_key(self, instance: Instance, key_id: str) -> None:
        """The other tags stay as they are."""
        self._api.call(
            f"writing a tag of {instance.instance}",
            "PATCH",
            f"{_path(instance)}/providers/Microsoft.Resources/tags/default",
            {"operation": "Merge", "properties": {"tags": {ALPHABET.name(KEY): key_id}}},
            where=instance.region,
            is_awaited=True,
        )

    def set_ingress(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        self._networks.set_ingress(tags, region, ingress)

    def terminate(self, instances: Sequence[Instance]) -> None:
        """Forced: there is nothing on the disks to be saved.

        Azure deletes disk, interface and address with each machine.
        """
        in_parallel(instances, self._terminate)

    def delete_leftovers(self, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        by_fleet = defaultdict(list)
        for resource in resources:
            by_fleet[resource.tags.fleet_key].append(resource)
        left = in_parallel(by_fleet.values(), partial(describe.delete, self._api))
        return tuple(chain.from_iterable(left))

    def leftovers(self, fleet_key: str, regions: Sequence[str]) -> tuple[FleetResource, ...]:
        group = describe.group_of(self._api, fleet_key)
        return describe.leftovers(self._api, group, regions)

    def console_url(self, fleet_key: str, region: str) -> str:
        """The resource group of the fleet, which has its instances in all regions."""
        # Other Resource Managers, such as those of sovereign clouds, have other portals.
        if self._options.endpoint_url:
            return ""
        group = f"subscriptions/{self._options.subscription_id}/resourceGroups"
        return f"https://portal.azure.com/#resource/{group}/{group_name(fleet_key)}/overview"

    def console_tail(self, instance: Instance, max_bytes: int) -> str:
        what = f"reading the console of {instance.instance}"
        # How long the address of the output can be read.
        path = f"{_path(instance)}/retrieveBootDiagnosticsData?sasUriExpirationTimeInMinutes=5"
        try:
            found = self._api.call(what, "POST", path, expected=_NO_CONSOLE)
        except CloudRefusal:
            return ""
        address = found.get("serialConsoleLogBlobUri")
        if not address or max_bytes <= 0:
            return ""
        return tail(self._api.download(what, address, most_bytes=max_bytes), max_bytes)

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        look = partial(region_quotas, self._api, with_spot=self._options.spot_relays)
        return tuple(chain.from_iterable(in_regions(regions, look)))

    def quota_uses(self, regions: Sequence[str]) -> tuple[QuotaUse, ...]:
        look = partial(quota_uses, self._api, self._sizes)
        return tuple(chain.from_iterable(in_regions(regions, look)))

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        return findings(self._api, self._sizes)

    def _terminate(self, instance: Instance) -> None:
        what = f"ending {instance.instance}"
        path = f"{_path(instance)}?forceDeletion=true"
        with contextlib.suppress(CloudRefusal):
            self._api.call(what, "DELETE", path, where=instance.region, expected=NOT_FOUND)


def _path(instance: Instance) -> str:
    return path_of(group_name(instance.tags.fleet_key), Kind.MACHINE, machine_of(instance))
