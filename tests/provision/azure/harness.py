"""Azure for the conformance suite of clouds."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import astuple
from typing import Any, Final

from tests.clouds.fakes import open_arm
from tests.manual_clock import ManualClock
from tests.provision.fleet.cloud_harness import DELETE, DESCRIBE, LAUNCH, OPEN, TERMINATE

from skyplane_orchestration.provision.azure import AzureCloud, AzureOptions
from skyplane_orchestration.provision.fleet.machines import (
    FleetResource,
    Ingress,
    Instance,
    Machines,
)
from strict_clouds.arm import SUBSCRIPTION, StrictArm
from strict_clouds.arm_network import openings
from strict_clouds.arm_state import ADDRESSES, FIREWALLS, LOCATIONS, MACHINES, Resource, properties
from strict_clouds.machines import MachineBooter

_RULES: Final = {
    LAUNCH: "machines.put",
    DESCRIBE: "machines.list",
    TERMINATE: "machines.delete",
    OPEN: "securityRules.put",
    DELETE: "groups.delete",
}
_ACTIONS: Final = {
    LAUNCH: "Microsoft.Compute/virtualMachines/write",
    DESCRIBE: "Microsoft.Compute/virtualMachines/read",
    TERMINATE: "Microsoft.Compute/virtualMachines/delete",
    OPEN: "Microsoft.Network/networkSecurityGroups/securityRules/write",
    DELETE: "Microsoft.Resources/subscriptions/resourceGroups/delete",
}
#: What the page wants for `self_delete_role`.
FOR_SELF_DELETE: Final = ("Microsoft.Authorization/roleAssignments/write",)
_KINDS: Final = {
    "network-security-group": "firewall",
    "disk": "disk",
    "network-interface": "interface",
    "public-ip-address": "address",
    "resource-group": "group",
}


class AzureHarness:
    """See `CloudHarness`."""

    region = "azure:westeurope"
    other_region = "azure:eastus"
    third_region = "azure:westus"
    closed_region = "azure:brazilsouth"
    instance_type = "Standard_D4s_v5"
    vcpus = 4
    quota_name = "cores"

    def __init__(self, arm: StrictArm) -> None:
        self.arm = arm
        self.clock = ManualClock(time.time())

    def azure(self, **options: Any) -> AzureCloud:
        """A worker with options."""
        chosen = AzureOptions(SUBSCRIPTION, endpoint_url=self.arm.url, **options)
        return AzureCloud(chosen, clock=self.clock.clock)

    def worker(self) -> Machines:
        return self.azure()

    def hide_new(self, calls: int) -> None:
        self.arm.conditions.hidden_for = calls

    def end_slowly(self, calls: int) -> None:
        self.arm.conditions.deleting_for = calls

    def lose_reply(self, verb: str) -> None:
        self.arm.lose_reply(_RULES[verb])

    def throttle(self, verb: str, times: int) -> None:
        self.arm.throttle(_RULES[verb], times)

    def deny(self, verb: str) -> str:
        self.arm.conditions.denied.add(_ACTIONS[verb])
        return _ACTIONS[verb]

    def forbid_launches(self) -> str:
        self.arm.conditions.disallowed.add(ADDRESSES)
        return "was disallowed by policy. Policy identifiers"

    def set_quota(self, vcpus: int) -> None:
        self.arm.conditions.vcpu_quota = vcpus

    def fill(self, region: str, *, all_zones: bool) -> None:
        name = region.partition(":")[2]
        zones = LOCATIONS[name][1] if all_zones else LOCATIONS[name][1][:1]
        self.arm.conditions.full |= {f"{name}-{zone}" for zone in zones}

    def empty(self) -> None:
        self.arm.conditions.full.clear()

    def unknown_id(self, instance: Instance) -> str:
        return "gw-none-such/01234567-89ab-cdef-0123-456789abcdef"

    def resource_of(self, instance: Instance) -> Resource:
        """The virtual machine of an instance."""
        name = instance.cloud_id.partition("/")[0]
        return next(one for one in self.arm.virtual_machines() if one["name"] == name)

    def end_by_hand(self, instance: Instance) -> None:
        self.arm.machines.end_by_hand(self.resource_of(instance))

    def leave_a_disk(self, instance: Instance) -> None:
        storage = properties(self.resource_of(instance))["storageProfile"]
        storage["osDisk"]["deleteOption"] = "Detach"

    def leave_an_interface(self, instance: Instance) -> None:
        """Its interface stays when it ends, and so does its address."""
        profile = properties(self.resource_of(instance))["networkProfile"]
        profile["networkInterfaces"][0]["properties"]["deleteOption"] = "Detach"

    def launch_foreign(self, name: str) -> None:
        state, location = self.arm.state, self.region.partition(":")[2]
        state.groups["theirs"] = {
            "id": f"/subscriptions/{SUBSCRIPTION}/resourceGroups/theirs",
            "name": "theirs",
            "location": location,
            "tags": {"Name": name},
            "properties": {"provisioningState": "Succeeded"},
        }
        size = {"hardwareProfile": {"vmSize": self.instance_type}}
        body = {"location": location, "tags": {"Name": name}, "properties": size}
        state.put("theirs", MACHINES, "theirs", body)
        state.put("theirs", FIREWALLS, "theirs", {**body, "properties": {"securityRules": []}})

    def foreign_is_there(self) -> bool:
        state = self.arm.state
        machine = state.find(state.id_of("theirs", MACHINES, "theirs"))
        firewall = state.find(state.id_of("theirs", FIREWALLS, "theirs"))
        return (
            machine is not None
            and properties(machine)["provisioningState"] == "Succeeded"
            and firewall is not None
            and len(list(openings(firewall))) == 1
        )

    def firewall(self, region: str) -> set[Ingress]:
        return {
            Ingress(*astuple(rule))
            for rule in self.arm.open_to(region.partition(":")[2], "skyplane:fleet")
        }

    def name_of(self, resource: FleetResource) -> str:
        return _KINDS[resource.kind]

    def launches(self) -> int:
        return len(self.arm.machines.ever_placed)

    def leftovers(self) -> dict[str, list[str]]:
        return self.arm.leftovers()


@contextmanager
def azure_harness(machines: MachineBooter | None = None) -> Iterator[AzureHarness]:
    with open_arm(machines, also=FOR_SELF_DELETE) as arm:
        yield AzureHarness(arm)
