"""Launches one instance once, whatever else happens at the same time.

Names are made of fleet and instance, so a zone has one instance of each name. The name of one that
has stopped is not free before it is deleted: then the next number is taken. Every worker tries the
numbers from 0, so how many launches it knows of does not count. Two workers can launch two
instances if a zone has capacity for one of them only; the caller keeps the older.
"""

from __future__ import annotations

import uuid
from functools import partial
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.errors import CloudUnavailable, ConfigurationInvalid
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal
from skyplane_orchestration.provision.fleet.launching import (
    MOST_NUMBERS,
    launch_in_turn,
    none_alive,
)
from skyplane_orchestration.provision.fleet.machines import Instance, LaunchRequest
from skyplane_orchestration.provision.gcp.describe import as_instance, our_instances
from skyplane_orchestration.provision.gcp.error_mapping import EXISTS, NO_CAPACITY, translate
from skyplane_orchestration.provision.gcp.options import (
    ALPHABET,
    REGISTRY_SCOPE,
    filter_of,
    instance_name,
    network_tag,
)

if TYPE_CHECKING:
    from skyplane_orchestration.provision.gcp.client import GcpApi
    from skyplane_orchestration.provision.gcp.describe import MachineTypes


class GcpLauncher:
    """Launches instances. Threads may share it."""

    def __init__(self, api: GcpApi, types: MachineTypes) -> None:
        self._api = api
        self._options = api.options
        self._types = types

    def launch(self, request: LaunchRequest) -> Instance:
        """See `Machines.launch`."""
        fleet = filter_of("fleet", request.tags.fleet_key)
        instance = launch_in_turn(
            request,
            range(MOST_NUMBERS),
            self._types.zones(request.region, request.instance_type),
            attempt=partial(self._in_zone, request),
            named=lambda: (
                one
                for one in our_instances(self._api, fleet, [request.region])
                if one.instance == request.instance
            ),
            translate=translate,
        )
        if instance is None:
            raise none_alive("Google Cloud", request)
        return instance

    def _in_zone(self, request: LaunchRequest, number: int, zone: str) -> Instance | None:
        """See `launch_in_turn`."""
        name = instance_name(request.tags.fleet_key, request.instance, number)
        what = f"launching {request.instance} ({request.instance_type}) in {zone}"
        try:
            self._api.done(
                "instances.insert",
                {
                    "zone": zone,
                    "instance_resource": self._body(request, name, zone),
                    # For the retries of this one request: another launch is another request.
                    "request_id": str(uuid.uuid4()),
                },
                what=what,
                where=request.region,
                expected=NO_CAPACITY | EXISTS,
            )
        except CloudRefusal as refusal:
            if refusal.code in NO_CAPACITY:
                raise
            return self._shown(request, name, zone)
        launched = self._shown(request, name, zone)
        if launched is None:
            raise CloudUnavailable(
                f"{what}: Google Cloud has launched it, and does not show it; try again"
            )
        return launched

    def _shown(self, request: LaunchRequest, name: str, zone: str) -> Instance | None:
        """The instance of this name, once Google shows it; None for nothing."""
        asked, what = {"zone": zone, "instance": name}, f"looking for {request.instance} in {zone}"
        entry = self._api.until_visible(
            lambda: self._api.find("instances.get", asked, what=what, where=request.region)
        )
        if entry is None:
            return None
        found = as_instance(self._api, entry, zone)
        if found is None or (found.tags.fleet_key, found.instance) != (
            request.tags.fleet_key,
            request.instance,
        ):
            raise ConfigurationInvalid(
                f"the instance {name} in {zone} does not have the labels of {request.instance} of"
                f" fleet {request.tags.fleet_key}; delete it, or give it the labels again"
            )
        return found

    def _body(self, request: LaunchRequest, name: str, zone: str) -> dict[str, Any]:
        """The instance, for instances.insert."""
        options = self._options
        labels = ALPHABET.written(
            request.tags, options.user_labels, instance=request.instance, launch=request.launch_id
        )
        body: dict[str, Any] = {
            "name": name,
            "machine_type": f"zones/{zone}/machineTypes/{request.instance_type}",
            "labels": labels,
            "tags": {"items": [network_tag(request.tags.fleet_key, request.region)]},
            "disks": [self._disk(request, labels, zone)],
            "network_interfaces": [self._interface(request)],
            "metadata": {
                "items": [
                    {"key": "startup-script", "value": options.script_of(request)},
                    # Keys of the project's users open no gateway.
                    {"key": "block-project-ssh-keys", "value": "TRUE"},
                ]
            },
            "scheduling": self._scheduling(request),
        }
        own = options.own_identity(request)
        if account := own or options.registry_identity:
            scopes = list(options.scopes) if own else [REGISTRY_SCOPE]
            body["service_accounts"] = [{"email": account, "scopes": scopes}]
        return body

    def _disk(self, request: LaunchRequest, labels: dict[str, str], zone: str) -> dict[str, Any]:
        kind = self._types.disk_type(request.instance_type)
        disk: dict[str, Any] = {
            "boot": True,
            "auto_delete": True,
            "initialize_params": {
                "source_image": self._types.image(request.region, request.instance_type),
                "disk_size_gb": self._options.disk_gib,
                "disk_type": f"zones/{zone}/diskTypes/{kind}",
                "labels": labels,
            },
        }
        if self._options.kms_key:
            disk["disk_encryption_key"] = {"kms_key_name": self._options.kms_key}
        return disk

    def _interface(self, request: LaunchRequest) -> dict[str, Any]:
        options = self._options
        interface: dict[str, Any] = {"network": options.network_path, "nic_type": "GVNIC"}
        if subnetwork := options.subnetwork_path(request.region):
            interface["subnetwork"] = subnetwork
        if options.public_address:
            interface["access_configs"] = [
                {
                    "name": "External NAT",
                    "type_": "ONE_TO_ONE_NAT",
                    "network_tier": (request.network_tier or "premium").upper(),
                }
            ]
        return interface

    def _scheduling(self, request: LaunchRequest) -> dict[str, Any]:
        """Google deletes the instance at the hard end, whatever the instance does."""
        left_s = request.tags.hard_end_unix_s - int(self._api.clock.wall())
        scheduling: dict[str, Any] = {
            # Google's limits of it.
            "max_run_duration": {"seconds": min(max(left_s, 30), 120 * 86400)},
            "instance_termination_action": "DELETE",
            # Keys are in memory only, so an instance that starts again is of no use.
            "automatic_restart": False,
        }
        if not request.is_end and self._options.spot_relays:
            scheduling |= {"provisioning_model": "SPOT", "on_host_maintenance": "TERMINATE"}
        return scheduling
