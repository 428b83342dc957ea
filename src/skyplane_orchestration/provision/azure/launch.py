"""Launches one instance once, whatever else happens at the same time.

The name of a virtual machine is made of fleet, instance, launch number and zone. It is made on
the condition that there is none of its name, so Azure refuses a second one.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from skyplane_orchestration.errors import (
    CapacityUnavailable,
    CloudUnavailable,
    QuotaExceeded,
)
from skyplane_orchestration.provision.azure.describe import as_instance, machines_of, power_of
from skyplane_orchestration.provision.azure.error_mapping import (
    CHANGED,
    NO_CAPACITY,
    NO_GROUP,
    VCPU_QUOTA,
    translate,
)
from skyplane_orchestration.provision.azure.options import (
    ALPHABET,
    Resource,
    address_name,
    disk_name,
    group_name,
    interface_name,
    machine_name,
    machine_of,
    region_name,
)
from skyplane_orchestration.provision.azure.self_delete import (
    allow_to_delete_itself,
    deleting_itself,
)
from skyplane_orchestration.provision.azure.types import REGIONAL, SPOT, exceeded
from skyplane_orchestration.provision.fleet.error_rules import Refusal
from skyplane_orchestration.provision.fleet.launching import (
    MOST_NUMBERS,
    launch_in_turn,
    oldest_first,
)
from skyplane_orchestration.provision.fleet.machines import Instance, LaunchRequest

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi
    from skyplane_orchestration.provision.azure.network import Networks
    from skyplane_orchestration.provision.azure.options import AzureOptions
    from skyplane_orchestration.provision.azure.types import Sizes

#: There is a machine of this name. The second comes where Azure ignores the condition and the
#: boot scripts differ, as they do for each launch; the third while one of this name is deleted.
_EXISTS: Final = frozenset({*CHANGED, "PropertyChangeNotAllowed", "Conflict"})
#: Azure wants one. Nobody can log in: the private half of its key is thrown away.
_USER: Final = "skyplane"


class Launcher:
    """Launches instances. Threads may share it."""

    def __init__(
        self, api: AzureApi, options: AzureOptions, networks: Networks, sizes: Sizes
    ) -> None:
        self._api = api
        self._options = options
        self._networks = networks
        self._sizes = sizes

    def launch(self, request: LaunchRequest) -> Instance:
        """See `Machines.launch`."""
        alive = oldest_first(one for one in self._named(request) if one.is_alive)
        failed: list[str] = []
        first = request.launch_number
        try:
            instance = (
                alive[0]
                if alive
                else launch_in_turn(
                    request,
                    range(first, first + MOST_NUMBERS),
                    self._sizes.zones(request.region, request.instance_type),
                    attempt=partial(self._attempt, request, failed),
                    named=partial(self._named, request),
                    translate=translate,
                )
            )
        except CapacityUnavailable:
            # Nobody waits for these if another zone has room: it would only delay that machine.
            for name in failed:
                self._wait_deleted(request, name)
            raise
        if instance is None:
            raise CloudUnavailable(
                f"launching {request.instance}: Azure has {MOST_NUMBERS} launches of it and none"
                " that is alive; try again later"
            )
        return self._with_rights(request, instance)

    def _with_rights(self, request: LaunchRequest, instance: Instance) -> Instance:
        """The instance, which may delete itself from now on if the options say so."""
        role = self._options.self_delete_role
        if role:
            name = machine_of(instance)
            try:
                machine = self._get(request, name)
            except Refusal:
                return instance  # It has ended meanwhile.
            allow_to_delete_itself(self._api, request.instance, request.region, role, machine)
        return instance

    def _attempt(
        self, request: LaunchRequest, failed: list[str], number: int, zone: str
    ) -> Instance | None:
        """See `launch_in_turn`. Adds to `failed` a machine whose deletion it has begun."""
        name = machine_name(request, number, zone)
        try:
            self._make(request, name, zone)
        except Refusal as refusal:
            if refusal.code in NO_CAPACITY:
                # Azure keeps some machines that it could not place.
                kept = self._found(request, name)
                if kept is not None and kept.is_alive:
                    return kept
                if kept is not None:
                    failed.append(name)
                    self._begin_delete(request, name)
                raise
            if refusal.code not in _EXISTS:
                raise self._error(request, refusal) from refusal
        return self._found(request, name)

    def _make(self, request: LaunchRequest, name: str, zone: str) -> None:
        """Address, interface and machine. Raises Refusal for what `_attempt` handles."""
        group, region = group_name(request.tags.fleet_key), request.region
        network = self._api.network
        body: Any
        if self._options.public_address:
            body = self._address(request)
            self._api.finished(
                f"making the address of {request.instance}",
                region,
                lambda polling: network.public_ip_addresses.begin_create_or_update(
                    group, address_name(name), body, polling=polling
                ),
                expected={NO_GROUP},
            )
        interface: Any = self._interface(request, name)
        self._api.finished(
            f"making the interface of {request.instance}",
            region,
            lambda polling: network.network_interfaces.begin_create_or_update(
                group, interface_name(name), interface, polling=polling
            ),
            expected={NO_GROUP},
        )
        machine = cast("Any", self._machine(request, name, zone))
        compute = self._api.compute
        self._api.finished(
            f"launching {request.instance} ({request.instance_type}) in {region}",
            region,
            lambda polling: compute.virtual_machines.begin_create_or_update(
                group, name, machine, headers={"If-None-Match": "*"}, polling=polling
            ),
            expected={*NO_CAPACITY, *VCPU_QUOTA, *_EXISTS, NO_GROUP},
        )

    def _error(self, request: LaunchRequest, refusal: Refusal) -> Exception:
        what = f"launching {request.instance} ({request.instance_type})"
        if refusal.code == NO_GROUP:
            return CloudUnavailable(
                f"{what}: its resource group is gone; another worker may be tearing the fleet"
                " down: try again"
            )
        size = self._sizes.of(request.region, request.instance_type)
        usage = exceeded(
            self._api,
            request.region,
            size.vcpus,
            size.family,
            is_spot=self._is_spot(request),
        )
        if usage is None:
            if refusal.code == "QuotaExceeded":
                return translate(refusal.answer, what)
            return CloudUnavailable(f"{what}: Azure refuses it: {refusal.answer.message}")
        return QuotaExceeded(
            f"{what}: Azure refuses {refusal.answer.action} ({refusal.code}); the quota"
            f" {usage.name} ({usage.shown}) of {request.region} is used up, {usage.used} of"
            f" {usage.limit}: end other instances, plan with fewer, or ask for more in the portal"
            " under Quotas",
            quota=f"{usage.name} ({usage.shown})",
            # Azure does not tell which other types are of the family.
            series="" if usage.name in (REGIONAL, SPOT) else request.instance_type,
        )

    def _found(self, request: LaunchRequest, name: str) -> Instance | None:
        try:
            machine = self._get(request, name)
        except Refusal:
            return None
        return as_instance(machine, power_of(machine), "")

    def _get(self, request: LaunchRequest, name: str) -> Resource:
        """A machine. Raises Refusal if there is none."""
        compute = self._api.compute
        return self._api.get(
            f"looking for {request.instance}",
            request.region,
            lambda: compute.virtual_machines.get(
                group_name(request.tags.fleet_key), name, expand="instanceView"
            ),
        )

    def _named(self, request: LaunchRequest) -> Iterator[Instance]:
        """The instances of this name. One call, and one for each."""
        for machine in machines_of(self._api, group_name(request.tags.fleet_key), [request.region]):
            found = as_instance(machine, "", "")
            if found is not None and found.instance == request.instance:
                # The list does not tell whether they run.
                look = self._found(request, machine["name"])
                if look is not None:
                    yield look

    def _begin_delete(self, request: LaunchRequest, name: str) -> None:
        """Of a machine that Azure keeps although it could not place it."""
        compute = self._api.compute
        self._api.begin(
            f"deleting the machine of {request.instance} that could not be placed",
            request.region,
            lambda: compute.virtual_machines.begin_delete(
                group_name(request.tags.fleet_key), name, force_deletion=True, polling=False
            ),
        )

    def _wait_deleted(self, request: LaunchRequest, name: str) -> None:
        compute = self._api.compute
        self._api.finished(
            f"deleting the machine of {request.instance} that could not be placed",
            request.region,
            lambda polling: compute.virtual_machines.begin_delete(
                group_name(request.tags.fleet_key), name, force_deletion=True, polling=polling
            ),
        )

    def _is_spot(self, request: LaunchRequest) -> bool:
        return self._options.spot_relays and not request.is_end

    def _address(self, request: LaunchRequest) -> dict[str, Any]:
        return {
            "location": region_name(request.region),
            "tags": ALPHABET.written(request.tags, self._options.user_tags),
            "sku": {"name": "Standard"},
            "properties": {
                "publicIPAllocationMethod": "Static",
                "publicIPAddressVersion": "IPv4",
                "deleteOption": "Delete",
            },
        }

    def _interface(self, request: LaunchRequest, name: str) -> dict[str, Any]:
        fleet_key, region = request.tags.fleet_key, request.region
        configuration: dict[str, Any] = {
            "primary": True,
            "privateIPAllocationMethod": "Dynamic",
            "subnet": {"id": self._networks.subnet_id(fleet_key, region)},
        }
        if self._options.public_address:
            configuration["publicIPAddress"] = {
                "id": self._id(request, "Microsoft.Network/publicIPAddresses", address_name(name)),
                "properties": {"deleteOption": "Delete"},
            }
        size = self._sizes.of(region, request.instance_type)
        return {
            "location": region_name(region),
            "tags": ALPHABET.written(request.tags, self._options.user_tags),
            "properties": {
                "enableAcceleratedNetworking": size.is_accelerated,
                "networkSecurityGroup": {"id": self._networks.firewall_id(fleet_key, region)},
                "ipConfigurations": [{"name": "primary", "properties": configuration}],
            },
        }

    def _machine(self, request: LaunchRequest, name: str, zone: str) -> dict[str, Any]:
        """The body of the request for a virtual machine."""
        options = self._options
        interface = self._id(request, "Microsoft.Network/networkInterfaces", interface_name(name))
        properties: dict[str, Any] = {
            "hardwareProfile": {"vmSize": request.instance_type},
            "storageProfile": self._storage(request, name),
            "osProfile": {
                "computerName": name,
                "adminUsername": _USER,
                "customData": base64.b64encode(self._user_data(request, name).encode()).decode(),
                "allowExtensionOperations": False,
                "linuxConfiguration": {
                    "disablePasswordAuthentication": True,
                    "ssh": {
                        "publicKeys": [
                            {
                                "path": f"/home/{_USER}/.ssh/authorized_keys",
                                "keyData": _key_of_nobody(),
                            }
                        ]
                    },
                },
            },
            "networkProfile": {
                "networkInterfaces": [
                    {"id": interface, "properties": {"primary": True, "deleteOption": "Delete"}}
                ]
            },
            # Kept by Azure itself; no storage account is needed.
            "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
        }
        body: dict[str, Any] = {
            "location": region_name(request.region),
            "tags": ALPHABET.written(
                request.tags,
                options.user_tags,
                instance=request.instance,
                launch=request.launch_id,
            ),
            "properties": properties,
        }
        if zone:
            body["zones"] = [zone]
        if self._is_spot(request):
            properties |= {
                "priority": "Spot",
                "evictionPolicy": "Delete",
                "billingProfile": {"maxPrice": -1},
            }
        if request.is_end and options.managed_identity:
            body["identity"] = {
                "type": "UserAssigned",
                "userAssignedIdentities": {options.managed_identity: {}},
            }
        elif options.self_delete_role:
            # Not besides the other one: SDKs of stores would take this one.
            body["identity"] = {"type": "SystemAssigned"}
        return body

    def _user_data(self, request: LaunchRequest, name: str) -> str:
        if not self._options.self_delete_role:
            return request.user_data
        machine_id = self._id(request, "Microsoft.Compute/virtualMachines", name)
        return deleting_itself(request.user_data, self._options.endpoint_url, machine_id)

    def _storage(self, request: LaunchRequest, name: str) -> dict[str, Any]:
        size = self._sizes.of(request.region, request.instance_type)
        disk: dict[str, Any] = {"storageAccountType": "StandardSSD_LRS"}
        if self._options.disk_encryption_set:
            disk["diskEncryptionSet"] = {"id": self._options.disk_encryption_set}
        return {
            "imageReference": self._options.image_reference(size.architecture),
            "osDisk": {
                "name": disk_name(name),
                "createOption": "FromImage",
                "deleteOption": "Delete",
                "diskSizeGB": self._options.disk_gib,
                "managedDisk": disk,
            },
        }

    def _id(self, request: LaunchRequest, kind: str, name: str) -> str:
        return (
            f"/subscriptions/{self._options.subscription_id}/resourceGroups/"
            f"{group_name(request.tags.fleet_key)}/providers/{kind}/{name}"
        )


def _key_of_nobody() -> str:
    """A public SSH key; its private half is thrown away here."""
    public = Ed25519PrivateKey.generate().public_key()
    return public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
