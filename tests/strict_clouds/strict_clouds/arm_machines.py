"""Virtual machines of the strict Resource Manager."""

from __future__ import annotations

import base64
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from strict_clouds.arm_disks import DiskRules
from strict_clouds.arm_network import openings
from strict_clouds.arm_offers import OfferRules
from strict_clouds.arm_state import (
    ADDRESSES,
    DISKS,
    MACHINES,
    SIZES,
    Conditions,
    Resource,
    Rule,
    State,
    check_tags,
    now,
    properties,
)
from strict_clouds.arm_wire import SUBSCRIPTION, ArmError, Reply, Request
from strict_clouds.machines import Machine, MachineBooter
from strict_clouds.usage import Usage

_PROVIDER: Final = "Microsoft.Compute"
_MOST_CUSTOM_DATA_BYTES: Final = 65536


#: The role with which machines delete themselves.
SELF_DELETE: Final = (
    f"/subscriptions/{SUBSCRIPTION}/providers/Microsoft.Authorization/roleDefinitions/"
    "5e1fde1e-7e00-4000-8000-000000000001"
)
#: The begin of tokens of machines.
TOKEN: Final = "machine:"


def principal_of(machine: Resource) -> str:
    """Of the only identity of a machine."""
    identity = machine["identity"]
    assigned = identity.get("userAssignedIdentities") or {}
    return str(next(iter(assigned.values()), identity)["principalId"])


def _identity_of(body: Any) -> Resource:
    """The identity that was asked for, with its principals; empty for none."""
    sent = body.get("identity")
    if sent is None:
        return {}
    if sent["type"] == "SystemAssigned":
        return {"identity": {**sent, "principalId": str(uuid.uuid4())}}
    assigned = {
        one: {"principalId": str(uuid.uuid5(uuid.NAMESPACE_URL, one)), "clientId": one}
        for one in sent["userAssignedIdentities"]
    }
    return {"identity": {**sent, "userAssignedIdentities": assigned}}


class MachineRules:
    """Args:
    machines: boots a machine for each virtual machine; None for none.
    require: raises ArmError for an action that is not allowed.
    """

    def __init__(
        self,
        conditions: Conditions,
        state: State,
        machines: MachineBooter | None,
        require: Callable[[str], None],
    ) -> None:
        self._conditions = conditions
        self._state = state
        self._machines = machines
        self._require = require
        self._powers: dict[str, str] = {}
        self._deleting: dict[str, int] = {}
        #: Resource ids of machines, and principals with the role on them.
        self._may_delete: set[tuple[str, str]] = set()
        self._not_before_s: dict[str, float] = {}
        self.booted: dict[str, Machine] = {}
        self.usage = Usage()
        self.user_data: dict[str, str] = {}
        #: Resource ids of machines that were placed.
        self.ever_placed: list[str] = []
        self._offers = OfferRules(conditions, self.used)
        self.rules: dict[str, Rule] = {
            "machines.put": self._put,
            "machines.get": self._get,
            "machines.list": self._list,
            "machines.listAll": self._list_all,
            "machines.delete": self._delete,
            "machines.tag": self._tag,
            "machines.tags": self._tags,
            "machines.console": self._console,
            "machines.assign": self._assign,
            **DiskRules(state).rules,
            **self._offers.rules,
        }

    # What tests do.

    def end_by_hand(self, machine: Resource) -> None:
        """As somebody does in the portal; takes effect at once."""
        self._really_end(machine)

    def set_power(self, machine: Resource, power: str) -> None:
        """`stopped`, `deallocated`, ..."""
        self._powers[machine["id"].lower()] = power

    def refresh_firewalls(self, firewall: Resource) -> None:
        """Its rules are those of the machines behind it."""
        for key, booted in self.booted.items():
            machine = self._state.find(key)
            if machine is not None and self._firewall_of(machine) is firewall:
                booted.allow(openings(firewall))

    def advance(self) -> None:
        """A machine that has powered itself off is stopped, and billed as before."""
        for key, booted in self.booted.items():
            if not booted.is_running and self._powers.get(key) == "running":
                self._powers[key] = "stopped"

    def console_of(self, key: str) -> bytes:
        booted = self.booted.get(key.lower())
        return booted.console().encode() if booted is not None else b""

    def used(self, location: str, *, is_spot: bool, family: str = "") -> int:
        """vCPUs of a location that are counted."""
        return sum(
            SIZES[size][1]
            for one in self._state.of_kind(MACHINES)
            if one["location"] == location
            and (properties(one).get("priority") == "Spot") == is_spot
            and properties(one)["provisioningState"] != "Failed"
            and self._powers.get(one["id"].lower()) != "deallocated"
            and (size := properties(one)["hardwareProfile"]["vmSize"])
            and (not family or SIZES[size][0] == family)
        )

    # What clients do.

    def _put(self, request: Request) -> Reply:
        group, name, body = request.path["group"], request.path["name"], request.body
        self._state.writable_group(group)
        before = self._state.find(self._state.id_of(group, MACHINES, name))
        if before is not None:
            self._refuse_second(request, before)
        facts = body["properties"]
        check_tags(body.get("tags") or {})
        data = base64.b64decode(facts["osProfile"]["customData"])
        if len(data) > _MOST_CUSTOM_DATA_BYTES:
            raise ArmError(400, "InvalidParameter", "customData")
        linux = facts["osProfile"]["linuxConfiguration"]
        if not linux["disablePasswordAuthentication"] or not linux["ssh"]["publicKeys"]:
            raise ArmError(400, "InvalidParameter", "linuxConfiguration")
        self._require("Microsoft.Compute/disks/write")
        if "identity" in body:
            self._require("Microsoft.ManagedIdentity/userAssignedIdentities/assign/action")
        interfaces = self._interfaces(body)
        self._offers.check_room(body)
        made = self._state.put(group, MACHINES, name, {**body, **_identity_of(body)})
        self._place(made, interfaces, data.decode())
        zone = f"{body['location']}-{(body.get('zones') or [''])[0]}"
        size = body["properties"]["hardwareProfile"]["vmSize"]
        is_full = not self._conditions.full.isdisjoint((zone, f"{zone}/{size}"))

        def finish() -> ArmError | None:
            # It may be deleted by now.
            if is_full and self._state.find(made["id"]) is made:
                properties(made)["provisioningState"] = "Failed"
            elif properties(made)["provisioningState"] == "Creating":
                properties(made)["provisioningState"] = "Succeeded"
            code = "ZonalAllocationFailed" if body.get("zones") else "AllocationFailed"
            return ArmError(200, code) if is_full else None

        if not is_full:
            self._powers[made["id"].lower()] = "running"
            self.ever_placed.append(made["id"])
            self._boot(made, data.decode())
        return self._state.begin(body["location"], _PROVIDER, finish, 201, made)

    def _refuse_second(self, request: Request, before: Resource) -> None:
        if request.headers.get("if-none-match") == "*" and not self._conditions.ignores_conditions:
            raise ArmError(412, "PreconditionFailed")
        if properties(before)["provisioningState"] == "Deleting":
            raise ArmError(409, "Conflict")
        raise ArmError(409, "PropertyChangeNotAllowed", "osProfile.customData")

    def _interfaces(self, body: Any) -> list[Resource]:
        found = []
        for one in body["properties"]["networkProfile"]["networkInterfaces"]:
            self._require("Microsoft.Network/networkInterfaces/join/action")
            interface = self._state.find(one["id"])
            if interface is None or interface["location"] != body["location"]:
                raise ArmError(400, "InvalidResourceReference", one["id"])
            if "virtualMachine" in properties(interface):
                raise ArmError(400, "NicInUse", one["id"])
            found.append(interface)
        return found

    def _place(self, machine: Resource, interfaces: list[Resource], user_data: str) -> None:
        facts = properties(machine)
        facts |= {
            "provisioningState": "Creating",
            "vmId": str(uuid.uuid4()),
            "timeCreated": now(),
        }
        facts["osProfile"] = {
            name: value for name, value in facts["osProfile"].items() if name != "customData"
        }
        self.user_data[machine["id"].lower()] = user_data
        group = machine["id"].split("/")[4]
        sent = facts["storageProfile"]["osDisk"]
        disk = self._state.put(
            group,
            DISKS,
            sent["name"],
            {
                "location": machine["location"],
                "tags": machine.get("tags") or {},
                "managedBy": machine["id"],
                "properties": {
                    "creationData": {"createOption": "FromImage"},
                    "diskSizeGB": sent["diskSizeGB"],
                },
            },
        )
        facts["storageProfile"] = {
            **facts["storageProfile"],
            "osDisk": {**sent, "managedDisk": {**sent["managedDisk"], "id": disk["id"]}},
        }
        for interface in interfaces:
            properties(interface)["virtualMachine"] = {"id": machine["id"]}

    def _boot(self, machine: Resource, user_data: str) -> None:
        if self._machines is None:
            return
        booted = self.booted[machine["id"].lower()] = self._machines.boot(
            user_data, metadata_url=f"{self._state.url}/metadata{machine['id']}"
        )
        address = self._public_address(machine)
        if address is not None:
            properties(address)["ipAddress"] = booted.address
        else:
            for interface in self._interfaces_of(machine):
                for one in properties(interface)["ipConfigurations"]:
                    one["properties"]["privateIPAddress"] = booted.address
        facts = properties(machine)
        self.usage.begin(
            machine["id"].lower(),
            f"azure:{machine['location']}",
            facts["hardwareProfile"]["vmSize"],
            disk_gib=int(facts["storageProfile"]["osDisk"]["diskSizeGB"]),
            has_address=address is not None,
            address=booted.address,
        )
        firewall = self._firewall_of(machine)
        if firewall is not None:
            booted.allow(openings(firewall))

    def _interfaces_of(self, machine: Resource) -> Iterator[Resource]:
        for one in properties(machine)["networkProfile"]["networkInterfaces"]:
            found = self._state.find(one["id"])
            if found is not None:
                yield found

    def _public_address(self, machine: Resource) -> Resource | None:
        for interface in self._interfaces_of(machine):
            for one in properties(interface)["ipConfigurations"]:
                if "publicIPAddress" in one["properties"]:
                    return self._state.find(one["properties"]["publicIPAddress"]["id"])
        return None

    def _firewall_of(self, machine: Resource) -> Resource | None:
        for interface in self._interfaces_of(machine):
            return self._state.find(properties(interface)["networkSecurityGroup"]["id"])
        return None

    def _view(self, machine: Resource) -> dict[str, Any]:
        state = properties(machine)["provisioningState"].lower()
        statuses = [{"code": f"ProvisioningState/{state}"}]
        power = self._powers.get(machine["id"].lower())
        if power:
            statuses.append({"code": f"PowerState/{power}"})
        return {"statuses": statuses}

    def _get(self, request: Request) -> Reply:
        self._state.group(request.path["group"])
        machine = self._state.required(self._id(request))
        if request.query.get("$expand") != "instanceView":
            return Reply(body=machine)
        facts = {**properties(machine), "instanceView": self._view(machine)}
        return Reply(body={**machine, "properties": facts})

    def _list(self, request: Request) -> Reply:
        self._state.group(request.path["group"])
        if "$expand" in request.query:
            raise ArmError(400, "InvalidParameter", "$expand needs a $filter")
        found = self._state.of_kind(MACHINES, request.path["group"])
        if "$skiptoken" not in request.query:
            for machine in found:
                self._listed(machine)
        found = [
            one
            for one in self._state.of_kind(MACHINES, request.path["group"])
            if self._state.is_shown(one)
        ]
        return self._state.page(found, request)

    def _listed(self, machine: Resource) -> None:
        """One list nearer to the end of a machine that is deleted."""
        key = machine["id"].lower()
        if key not in self._deleting or time.monotonic() < self._not_before_s[key]:
            return
        if self._deleting[key] <= 0:
            self._really_end(machine)
        else:
            self._deleting[key] -= 1

    def _list_all(self, request: Request) -> Reply:
        if request.query.get("statusOnly") != "true":
            raise ArmError(400, "InvalidParameter", "the strict fake wants statusOnly")
        found = [
            {
                "id": one["id"].replace("resourceGroups", "RESOURCEGROUPS"),
                "name": one["name"],
                "location": one["location"],
                "properties": {"instanceView": self._view(one)},
            }
            for one in self._state.of_kind(MACHINES)
            if self._state.is_shown(one)
        ]
        return self._state.page(found, request)

    def _delete(self, request: Request) -> Reply:
        self._state.group(request.path["group"])
        machine = self._state.find(self._id(request))
        if machine is None:
            return Reply(204)
        key = machine["id"].lower()
        if properties(machine)["provisioningState"] != "Deleting":
            properties(machine)["provisioningState"] = "Deleting"
            self._deleting[key] = self._conditions.deleting_for
            self._not_before_s[key] = time.monotonic() + self._conditions.ending_s
            booted = self.booted.get(key)
            if booted is not None and booted.is_running:
                booted.shut_down()

        def finish() -> ArmError | None:
            if self._state.find(key) is machine:
                self._really_end(machine)
            return None

        return self._state.begin(machine["location"], _PROVIDER, finish)

    def _really_end(self, machine: Resource) -> None:
        key = machine["id"].lower()
        self._deleting.pop(key, None)
        self._powers.pop(key, None)
        # Azure bills a machine that has powered itself off until it is deleted.
        self.usage.end(key)
        booted = self.booted.get(key)
        if booted is not None and booted.is_running:
            booted.cut_power()
        sent = properties(machine)["storageProfile"]["osDisk"]
        disk = self._state.required(sent["managedDisk"]["id"])
        if sent.get("deleteOption") == "Delete":
            self._state.remove(disk["id"])
        else:
            del disk["managedBy"]
        for one in properties(machine)["networkProfile"]["networkInterfaces"]:
            self._release(one)
        self._state.remove(machine["id"])

    def _release(self, used: Resource) -> None:
        """An interface of a machine that is gone."""
        interface = self._state.required(used["id"])
        del properties(interface)["virtualMachine"]
        if used["properties"].get("deleteOption") != "Delete":
            return
        self._state.remove(interface["id"])
        for address in self._state.of_kind(ADDRESSES):
            owner = (properties(address).get("ipConfiguration") or {}).get("id", "")
            if owner.lower().startswith(f"{interface['id'].lower()}/"):
                del properties(address)["ipConfiguration"]
                if properties(address).get("deleteOption") == "Delete":
                    self._state.remove(address["id"])

    def cut_power_in(self, group: str) -> None:
        """All machines of a group end with it."""
        for machine in self._state.of_kind(MACHINES, group):
            self._really_end(machine)

    def _tags(self, request: Request) -> Reply:
        machine = self._state.required(self._id(request))
        body = {"id": f"{machine['id']}/tags", "properties": {"tags": machine.get("tags") or {}}}
        return Reply(body=body)

    def _tag(self, request: Request) -> Reply:
        machine = self._state.required(self._id(request))
        if request.body.get("operation") != "Merge":
            raise ArmError(400, "InvalidParameter", "other operations lose tags")
        merged = {**(machine.get("tags") or {}), **request.body["properties"]["tags"]}
        check_tags(merged)
        machine["tags"] = merged
        body = self._tags(request).body
        return self._state.begin(machine["location"], _PROVIDER, lambda: None, 200, body)

    def _console(self, request: Request) -> Reply:
        machine = self._state.required(self._id(request))
        if not properties(machine)["diagnosticsProfile"]["bootDiagnostics"]["enabled"]:
            raise ArmError(409, "BootDiagnosticsNotEnabled")
        address = f"{self._state.url}/console{machine['id']}?sig=secret"
        return Reply(body={"serialConsoleLogBlobUri": address})

    def _assign(self, request: Request) -> Reply:
        """A role on a machine, for its identity only."""
        machine, sent = self._state.required(self._id(request)), request.body["properties"]
        if sent["principalType"] != "ServicePrincipal" or sent["roleDefinitionId"] != SELF_DELETE:
            raise ArmError(400, "InvalidParameter", "the strict fake knows one role")
        if sent["principalId"] != principal_of(machine):
            raise ArmError(400, "PrincipalNotFound")
        key = machine["id"].lower()
        status = 200 if (key, sent["principalId"]) in self._may_delete else 201
        self._may_delete.add((key, sent["principalId"]))
        assigned = {"id": f"{machine['id']}/roleAssignments/{request.path['assignment']}"}
        return Reply(status, {**assigned, "properties": dict(sent)})

    def token(self, key: str) -> str:
        """A token of a machine's identity, as its metadata service gives it; empty for none."""
        machine = self._state.find(key)
        return TOKEN + principal_of(machine) if machine and machine.get("identity") else ""

    def require_right(self, request: Request, principal: str) -> None:
        """Raises ArmError unless a machine's identity may do what it asks."""
        is_allowed = (self._id(request).lower(), principal) in self._may_delete
        if request.rule != "machines.delete" or not is_allowed:
            raise ArmError(403, "AuthorizationFailed", f"{principal} may not do {request.action}")

    def _id(self, request: Request) -> str:
        return self._state.id_of(request.path["group"], MACHINES, request.path["name"])
