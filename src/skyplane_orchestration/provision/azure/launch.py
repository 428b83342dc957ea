"""Launches one instance once, whatever else happens at the same time.

The name of a virtual machine is made of fleet, instance, launch number and zone. It is made on
the condition that there is none of its name, so Azure refuses a second one.

Azure bills a machine that has powered itself off. Where the option `self_delete_role` allows it,
the boot script asks the metadata service for a token of the machine's identity, and Resource
Manager to delete the machine, before it powers off. The identity gets the role on that very
machine, and on nothing else.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from skyplane_orchestration.errors import CloudUnavailable, QuotaExceeded
from skyplane_orchestration.provision.azure.describe import (
    REGIONAL,
    SPOT,
    VmSize,
    VmSizes,
    as_instance,
    exceeded,
    machines_of,
    power_of,
)
from skyplane_orchestration.provision.azure.error_mapping import (
    CHANGED,
    NO_CAPACITY,
    NO_GROUP,
    VCPU_QUOTA,
    translate,
)
from skyplane_orchestration.provision.azure.options import (
    IP,
    NIC,
    SUBNET,
    Kind,
    firewall_path,
    group_name,
    machine_name,
    machine_of,
    network_path,
    path_of,
)
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal, torn_down
from skyplane_orchestration.provision.fleet.launching import (
    MOST_NUMBERS,
    launch_in_turn,
    none_alive,
    oldest_first,
)
from skyplane_orchestration.provision.fleet.machines import Instance, LaunchRequest
from skyplane_orchestration.provision.fleet.user_data import with_last_act

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi

#: There is a machine of this name. The second comes where Azure ignores the condition and the
#: boot scripts differ, as they do for each launch; the third while one of this name is deleted.
_EXISTS: Final = frozenset({*CHANGED, "PropertyChangeNotAllowed", "Conflict"})
#: Azure wants one. Nobody can log in with its key.
_USER: Final = "skyplane"
#: Of names of role assignments: the same machine and identity give the same name.
_NAMES: Final = uuid.UUID("6f0f6a8e-9d0a-4a53-8f5c-0b8f2f1f7c11")

#: `printf` is part of the shell, so the token is in no argument of a process. A deletion that Azure
#: accepts ends the machine by itself; its power goes off in any case.
_DELETE: Final = r"""
    identity='http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01'
    attempt=1
    # A right takes minutes until it holds everywhere, and a shutdown waits for a minute only.
    while [ "$attempt" -le 4 ]; do
        token=$(curl --fail --silent --noproxy '*' --max-time 10 --header Metadata:true \
            "$identity&resource=@RESOURCE@") || token=
        token=${token#*'"access_token":"'}
        token=${token%%'"'*}
        if [ -n "$token" ] && printf 'header = "Authorization: Bearer %s"\n' "$token" |
            curl --fail --silent --max-time 30 --config - --request DELETE \
                '@MACHINE@'
        then
            say 'Azure deletes this machine'
            return 0
        fi
        sleep 5
        attempt=$((attempt + 1))
    done
    say 'Azure did not delete this machine: it is billed until a sweep'
"""


class AzureLaunch:
    def __init__(self, api: AzureApi, sizes: VmSizes, request: LaunchRequest) -> None:
        self._api = api
        self._options = api.options
        self._sizes = sizes
        self._request = request
        self._group = group_name(request.tags.fleet_key)
        self._what = f"launching {request.instance} ({request.instance_type}) in {request.region}"
        self._is_spot = api.options.spot_relays and not request.is_end

    @cached_property
    def _size(self) -> VmSize:
        return self._sizes.of(self._request.region, self._request.instance_type)

    def run(self) -> Instance:
        """See `Machines.launch`."""
        request, first = self._request, self._request.launch_number
        alive = oldest_first(one for one in self._named() if one.is_alive)
        instance = next(iter(alive), None) or launch_in_turn(
            request,
            range(first, first + MOST_NUMBERS),
            self._sizes.zones(request.region, request.instance_type),
            attempt=self._attempt,
            named=self._named,
            translate=translate,
        )
        if instance is None:
            raise none_alive("Azure", request)
        if self._options.self_delete_role:
            self._allow_to_delete_itself(self._path(machine_of(instance)))
        return instance

    def _allow_to_delete_itself(self, path: str) -> None:
        """Give a machine's identity the role on the machine; again is no error."""
        instance = self._request.instance
        machine = self._api.find(f"looking for {instance}", path)
        if machine is None:
            return  # It has ended meanwhile.
        # Of its only identity: a user-assigned one, or its own.
        assigned = machine["identity"].get("userAssignedIdentities") or {}
        principal = next(iter(assigned.values()), machine["identity"])["principalId"]
        name = uuid.uuid5(_NAMES, f"{machine['id'].lower()} {principal}")
        properties = {
            "roleDefinitionId": self._options.self_delete_role,
            "principalId": principal,
            # Azure then does not look for an identity that may be too new to be found.
            "principalType": "ServicePrincipal",
        }
        # Without a look at its end: it has ended with the answer, and a look needs a permission.
        self._api.call(
            f"allowing {instance} to delete itself",
            "PUT",
            f"{machine['id']}/providers/Microsoft.Authorization/roleAssignments/{name}",
            {"properties": properties},
            where=self._request.region,
        )

    def _attempt(self, number: int, zone: str) -> Instance | None:
        """See `launch_in_turn`."""
        name = machine_name(self._request, number, zone)
        try:
            self._make(name, zone)
        except CloudRefusal as refusal:
            if refusal.code in NO_CAPACITY:
                # Azure keeps some machines that it could not place.
                kept = self._found(name)
                if kept is not None and kept.is_alive:
                    return kept
                if kept is not None:
                    # Without a wait: another zone may have room, and a teardown waits for it.
                    what = f"deleting the machine of {kept.instance} that could not be placed"
                    self._api.call(what, "DELETE", f"{self._path(name)}?forceDeletion=true")
                raise
            if refusal.code not in _EXISTS:
                raise self._error(refusal) from refusal
        return self._found(name)

    def _make(self, name: str, zone: str) -> None:
        """Address, interface and machine. Raises CloudRefusal for what `_attempt` handles."""
        region = self._request.region
        put = partial(self._api.call, self._what, "PUT", where=region, is_awaited=True)
        if self._options.public_address:
            put(self._path(name + IP, Kind.ADDRESS), self._address(), expected={NO_GROUP})
        put(self._path(name + NIC, Kind.INTERFACE), self._interface(name), expected={NO_GROUP})
        put(
            self._path(name),
            self._machine(name, zone),
            headers={"If-None-Match": "*"},
            expected={*NO_CAPACITY, *VCPU_QUOTA, *_EXISTS, NO_GROUP},
        )

    def _error(self, refusal: CloudRefusal) -> Exception:
        request, what = self._request, self._what
        if refusal.code == NO_GROUP:
            return torn_down(f"{what}: its resource group")
        usage = exceeded(self._api, request.region, self._size, is_spot=self._is_spot)
        if usage is None:
            if refusal.code == "QuotaExceeded":
                return translate(refusal.answer, what)
            return CloudUnavailable(f"{what}: Azure refuses it: {refusal.answer.message}")
        quota = f"{usage.name} ({usage.what})"
        return QuotaExceeded(
            f"{what}: Azure refuses {refusal.answer.action} ({refusal.code}); the quota {quota} of"
            f" {request.region} is used up, {usage.used} of {usage.limit}: end other instances,"
            " plan with fewer, or ask for more in the portal under Quotas",
            quota=quota,
            # Azure does not tell which other types are of the family.
            series="" if usage.name in (REGIONAL, SPOT) else request.instance_type,
        )

    def _found(self, name: str) -> Instance | None:
        path = f"{self._path(name)}?$expand=instanceView"
        machine = self._api.find(f"looking for {self._request.instance}", path)
        return None if machine is None else as_instance(machine, power_of(machine), "")

    def _named(self) -> Iterator[Instance]:
        """The instances of this name. One call, and one for each."""
        for machine in machines_of(self._api, self._group, [self._request.region]):
            found = as_instance(machine, "", "")
            if found is not None and found.instance == self._request.instance:
                # The list does not tell whether they run.
                look = self._found(machine["name"])
                if look is not None:
                    yield look

    def _address(self) -> dict[str, Any]:
        off_at_once = {"ipTagType": "RoutingPreference", "tag": "Internet"}
        properties = {
            "publicIPAllocationMethod": "Static",
            "publicIPAddressVersion": "IPv4",
            "deleteOption": "Delete",
            "ipTags": [off_at_once] if self._request.network_tier == "standard" else [],
        }
        return {**self._body(properties), "sku": {"name": "Standard"}}

    def _interface(self, name: str) -> dict[str, Any]:
        fleet_key, region = self._request.tags.fleet_key, self._request.region
        # That of the options, or of the fleet's own network.
        own = f"{network_path(fleet_key, region)}/subnets/{SUBNET}"
        subnet = self._options.subnets.get(region) or self._api.id_of(own)
        configuration: dict[str, Any] = {
            "primary": True,
            "privateIPAllocationMethod": "Dynamic",
            "subnet": {"id": subnet},
        }
        if self._options.public_address:
            configuration["publicIPAddress"] = {
                "id": self._api.id_of(self._path(name + IP, Kind.ADDRESS)),
                "properties": {"deleteOption": "Delete"},
            }
        properties = {
            "enableAcceleratedNetworking": self._size.is_accelerated,
            "networkSecurityGroup": {"id": self._api.id_of(firewall_path(fleet_key, region))},
            "ipConfigurations": [{"name": "primary", "properties": configuration}],
        }
        return self._body(properties)

    def _machine(self, name: str, zone: str) -> dict[str, Any]:
        request, options = self._request, self._options
        script = options.script_of(request)
        if options.self_delete_role:
            url = self._api.url_of(self._path(name))
            scope = url.partition("/subscriptions/")[0] + "/"
            last_act = _DELETE.replace("@RESOURCE@", scope).replace("@MACHINE@", url)
            script = with_last_act(script, last_act)
        interface = self._api.id_of(self._path(name + NIC, Kind.INTERFACE))
        # Its private half is thrown away here.
        public = Ed25519PrivateKey.generate().public_key()
        text = public.public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()
        key = {"path": f"/home/{_USER}/.ssh/authorized_keys", "keyData": text}
        ends_too = {"primary": True, "deleteOption": "Delete"}
        properties: dict[str, Any] = {
            "hardwareProfile": {"vmSize": request.instance_type},
            "storageProfile": self._storage(name),
            "osProfile": {
                "computerName": name,
                "adminUsername": _USER,
                "customData": base64.b64encode(script.encode()).decode(),
                "allowExtensionOperations": False,
                "linuxConfiguration": {
                    "disablePasswordAuthentication": True,
                    "ssh": {"publicKeys": [key]},
                },
            },
            "networkProfile": {"networkInterfaces": [{"id": interface, "properties": ends_too}]},
            # Kept by Azure itself; no storage account is needed.
            "diagnosticsProfile": {"bootDiagnostics": {"enabled": True}},
        }
        if self._is_spot:
            spot = {"priority": "Spot", "evictionPolicy": "Delete"}
            properties |= {**spot, "billingProfile": {"maxPrice": -1}}
        body = self._body(properties, instance=request.instance, launch=request.launch_id)
        if zone:
            body["zones"] = [zone]
        if identity := options.own_identity(request) or options.registry_identity:
            assigned: dict[str, Any] = {identity: {}}
            body["identity"] = {"type": "UserAssigned", "userAssignedIdentities": assigned}
        elif options.self_delete_role:
            # Not besides the other one: SDKs of stores would take this one.
            body["identity"] = {"type": "SystemAssigned"}
        return body

    def _storage(self, name: str) -> dict[str, Any]:
        kind = self._request.instance_type
        disk: dict[str, Any] = {"storageAccountType": "StandardSSD_LRS"}
        if self._options.disk_encryption_set:
            disk["diskEncryptionSet"] = {"id": self._options.disk_encryption_set}
        return {
            "imageReference": self._options.image_reference(self._size.architecture, kind),
            "osDisk": {
                "name": f"{name}-disk",
                "createOption": "FromImage",
                "deleteOption": "Delete",
                "diskSizeGB": self._options.disk_gib,
                "managedDisk": disk,
            },
        }

    def _body(self, properties: Mapping[str, Any], **tags: str) -> dict[str, Any]:
        return self._options.body(self._request.tags, self._request.region, properties, **tags)

    def _path(self, name: str, kind: str = Kind.MACHINE) -> str:
        return path_of(self._group, kind, name)
