"""Google Cloud as a `Machines`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlencode

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import CloudUnavailable, NotAuthorised
from skyplane_orchestration.model.identity import DEFAULT_DEPLOYMENT
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
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
from skyplane_orchestration.provision.gcp.checks import findings
from skyplane_orchestration.provision.gcp.client import GcpApi
from skyplane_orchestration.provision.gcp.describe import (
    MachineTypes,
    delete_disk,
    disks,
    our_instances,
    quota_uses,
    region_quotas,
    usable_regions,
    zone_and_id,
)
from skyplane_orchestration.provision.gcp.error_mapping import NOT_FOUND, NOT_READY, STALE
from skyplane_orchestration.provision.gcp.firewall import FIREWALL, FirewallRules
from skyplane_orchestration.provision.gcp.launch import GcpLauncher
from skyplane_orchestration.provision.gcp.options import ALPHABET, GcpOptions, filter_of
from skyplane_orchestration.provision.parallel import in_parallel
from skyplane_orchestration.provision.provisioner import Finding
from skyplane_orchestration.security.store_credentials import CredentialSources

#: Attempts to pin a key: each is spoilt by another change of the labels at the same moment.
_PIN_ATTEMPTS: Final = 5
#: Google shows an instance within a fraction of this time; clocks may differ by as much.
_FRESH_S: Final = 600.0


class GcpCloud(Machines):
    """See `Machines`. Threads may share it.

    Args:
        options: project, credentials, images, networks.
        sources: resolves `credential_ref`; None for those without an orchestrator's hook.
        clock: of waits.
    """

    name = "gcp"

    def __init__(
        self,
        options: GcpOptions,
        sources: CredentialSources | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._options = options
        self._api = GcpApi(options, sources or CredentialSources(), clock)
        self._firewalls = FirewallRules(self._api)
        self._types = MachineTypes(self._api)
        self._launcher = GcpLauncher(self._api, self._types)

    def store_identity(self, region: str) -> str:
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
        return our_instances(self._api, filter_of("fleet", fleet_key), regions)

    def list_resources(
        self, deployment: str, regions: Sequence[str]
    ) -> tuple[tuple[Instance, ...], tuple[FleetResource, ...]]:
        chosen = filter_of("deployment", deployment)
        rest = (
            *self._firewalls.found(regions, lambda tags: tags.deployment == deployment),
            *disks(self._api, chosen, regions),
        )
        return our_instances(self._api, chosen, regions), rest

    def create_firewalls(self, tags: FleetTags, regions: Sequence[str]) -> None:
        self._firewalls.create_firewalls(tags, regions)

    def admit(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        self._firewalls.admit(tags, region, ingress)

    def launch(self, request: LaunchRequest) -> Instance:
        return self._launcher.launch(request)

    def pin_key(self, instance: Instance, key_id: str) -> None:
        """The fingerprint of the labels keeps two workers apart.

        Raises NotAuthorised: another key is pinned already.
        """
        api, key = self._api, ALPHABET.name(KEY)
        what = f"writing a label of {instance.instance}"
        for _ in range(_PIN_ATTEMPTS):
            entry = api.until_visible(
                lambda: api.find(
                    "instances.get", zone_and_id(instance), what=what, where=instance.region
                )
            )
            if entry is None:
                raise CloudUnavailable(f"{what}: Google Cloud does not know the instance any more")
            labels = dict(entry.labels)
            pinned = labels.get(key, "")
            if pinned == key_id:
                return
            if pinned:
                raise NotAuthorised(
                    f"instance {instance.instance} shows the key {key_id}, and another one"
                    f" ({pinned}) is pinned; end the instance"
                )
            change = {
                "labels": {**labels, key: key_id},
                "label_fingerprint": entry.label_fingerprint,
            }
            with suppress(CloudRefusal):  # The labels have changed since they were read.
                api.done(
                    "instances.setLabels",
                    {**zone_and_id(instance), "instances_set_labels_request_resource": change},
                    what=what,
                    where=instance.region,
                    expected=STALE,
                )
                return
        raise CloudUnavailable(f"{what}: others change its labels all the time; try again")

    def set_ingress(self, tags: FleetTags, region: str, ingress: Sequence[Ingress]) -> None:
        self._firewalls.set_ingress(tags, region, ingress)

    def terminate(self, instances: Sequence[Instance]) -> None:
        in_parallel(instances, self._terminate)

    def delete_leftovers(self, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        firewalls = [one for one in resources if one.kind == FIREWALL]
        regions = tuple({one.region for one in firewalls})
        # Google would delete a firewall that still has instances, and open them to whatever else
        # the network allows.
        used = {
            (key, instance.region)
            for key in {one.tags.fleet_key for one in firewalls}
            for instance in self.describe(key, regions)
        }
        are_deleted = in_parallel(resources, lambda one: self._is_deleted(one, used))
        return tuple(
            one for one, is_deleted in zip(resources, are_deleted, strict=True) if not is_deleted
        )

    def leftovers(self, fleet_key: str, regions: Sequence[str]) -> tuple[FleetResource, ...]:
        return (
            *self._firewalls.found(regions, lambda tags: tags.fleet_key == fleet_key, fleet_key),
            *disks(self._api, filter_of("fleet", fleet_key), regions),
        )

    def console_url(self, fleet_key: str, region: str) -> str:
        """The list of the project's instances; no filter is documented for its address."""
        query = urlencode({"project": self._options.project})
        return f"https://console.cloud.google.com/compute/instances?{query}"

    def console_tail(self, instance: Instance, max_bytes: int) -> str:
        """The end of the output of the first serial port."""
        try:
            answer = self._api.call(
                "instances.getSerialPortOutput",
                {**zone_and_id(instance), "port": 1},
                what=f"reading the console of {instance.instance}",
                where=instance.region,
                # It has not started, or has stopped for long.
                expected=NOT_FOUND | NOT_READY,
            )
        except CloudRefusal:
            return ""
        return tail(str(answer.contents).encode(), max_bytes)

    def quotas(self, regions: Sequence[str]) -> tuple[RegionQuota, ...]:
        return region_quotas(self._api, regions, with_spot=self._options.spot_relays)

    def quota_uses(self, regions: Sequence[str]) -> tuple[QuotaUse, ...]:
        return quota_uses(self._api, regions)

    def check(self, deployment: str = DEFAULT_DEPLOYMENT) -> tuple[Finding, ...]:
        return findings(self._api, self._types)

    def _is_deleted(self, resource: FleetResource, used: set[tuple[str, str]]) -> bool:
        if resource.kind != FIREWALL:
            return delete_disk(self._api, resource)
        if (resource.tags.fleet_key, resource.region) in used:
            return False
        self._firewalls.delete(resource)
        return True

    def _terminate(self, instance: Instance) -> None:
        """Begin to delete an instance, stopped ones included, also if Google shows it later."""
        if self._is_ending(instance):
            return
        if abs(self._api.clock.wall() - instance.launched_unix_s) < _FRESH_S:
            self._api.until_visible(lambda: self._is_ending(instance) or None)

    def _is_ending(self, instance: Instance) -> bool:
        """Whether the end has begun; False if Google does not know the instance."""
        try:
            self._api.call(
                "instances.delete",
                zone_and_id(instance),
                what=f"ending {instance.instance}",
                where=instance.region,
                # Another worker ends it at this moment.
                expected=NOT_FOUND | NOT_READY,
            )
        except CloudRefusal as refusal:
            return refusal.code not in NOT_FOUND
        return True
