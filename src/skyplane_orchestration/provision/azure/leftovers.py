"""What a fleet has besides instances: firewalls with their networks, things left behind, groups.

The resource group is deleted with the last of them, by one call that also takes what nobody
has listed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.provision.azure.describe import machines_of
from skyplane_orchestration.provision.azure.error_mapping import GROUP_ENDS, NOT_FOUND
from skyplane_orchestration.provision.azure.options import (
    ALPHABET,
    Resource,
    group_name,
    network_name,
    properties_of,
    region_tag,
)
from skyplane_orchestration.provision.fleet.error_rules import Refusal
from skyplane_orchestration.provision.fleet.machines import FleetResource, FleetTags
from skyplane_orchestration.provision.parallel import in_parallel

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi

FIREWALL: Final = "network-security-group"
DISK: Final = "disk"
INTERFACE: Final = "network-interface"
ADDRESS: Final = "public-ip-address"
GROUP: Final = "resource-group"

#: A machine that another worker has just launched ends at once.
_FORCED: Final = "Microsoft.Compute/virtualMachines"
#: In this order; each is in use by those before it.
_ORDER: Final = (INTERFACE, ADDRESS, DISK, FIREWALL)
#: Codes for a resource that something else uses. Disks in use are refused with the last.
_IN_USE: Final = frozenset(
    {
        "InUseNetworkSecurityGroupCannotBeDeleted",
        "InUseSubnetCannotBeDeleted",
        "NicInUse",
        "NetworkInterfaceInUse",
        "PublicIPAddressCannotBeDeleted",
        "PublicIPAddressInUse",
        "CanceledAndSupersededDueToAnotherOperation",
        "Conflict",
        "OperationNotAllowed",
    }
)


class Leftovers:
    """The resources of fleets. Threads may share it."""

    def __init__(self, api: AzureApi) -> None:
        self._api = api

    def of_fleet(self, fleet_key: str, regions: Collection[str]) -> tuple[FleetResource, ...]:
        """One call if there is nothing, and six else."""
        group = self._group(group_name(fleet_key))
        return () if group is None else self.of_group(group, regions)

    def of_group(self, group: Resource, regions: Collection[str]) -> tuple[FleetResource, ...]:
        """Of a resource group, as Azure describes it.

        Disks, interfaces and addresses that end with their machine are not among them.
        """
        fleet = ALPHABET.fleet_of(group.get("tags"))
        if fleet is None:
            return ()
        name = group["name"]
        found = list(self._found(name, fleet, set(regions)))
        home = region_tag(group["location"])
        if not found and home in regions and not self._has_more(name):
            found.append(FleetResource(GROUP, name, home, fleet))
        return tuple(found)

    def delete(self, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        """Delete those of one fleet; those that are still there.

        If they are all that the group has, the group is deleted, and all of them are there until
        it is gone. Else they are deleted one by one.
        """
        name = group_name(resources[0].tags.fleet_key)
        group = self._group(name)
        if group is None:
            return ()
        if properties_of(group).get("provisioningState") == "Deleting":
            return tuple(resources)
        regions = {resource.region for resource in resources}
        if machines_of(self._api, name, regions):
            return tuple(resources)
        if self._has_more(name, besides=regions):
            return self._each(name, resources)
        self._begin_delete_group(name)
        return () if self._group(name) is None else tuple(resources)

    def _each(self, group: str, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
        left: list[FleetResource] = []
        for kind in _ORDER:
            of_kind = [one for one in resources if one.kind == kind]
            done = in_parallel([partial(self._delete, group, one) for one in of_kind])
            left += [one for one, is_gone in zip(of_kind, done, strict=True) if not is_gone]
        return tuple(left)

    def _delete(self, group: str, resource: FleetResource) -> bool:
        """Delete one; False if it is still in use. One that is gone is deleted."""
        network, compute = self._api.network, self._api.compute
        name = resource.cloud_id
        deletes: dict[str, Callable[[Any], Any]] = {
            INTERFACE: lambda polling: network.network_interfaces.begin_delete(
                group, name, polling=polling
            ),
            ADDRESS: lambda polling: network.public_ip_addresses.begin_delete(
                group, name, polling=polling
            ),
            DISK: lambda polling: compute.disks.begin_delete(group, name, polling=polling),
            FIREWALL: lambda polling: network.network_security_groups.begin_delete(
                group, name, polling=polling
            ),
        }
        if resource.kind == FIREWALL:
            virtual = network_name(resource.region)
            begin: Callable[[Any], Any] = lambda polling: network.virtual_networks.begin_delete(  # noqa: E731
                group, virtual, polling=polling
            )
            if not self._is_deleted(f"the virtual network {virtual}", resource.region, begin):
                return False
        return self._is_deleted(
            f"the {resource.kind} {name}", resource.region, deletes[resource.kind]
        )

    def _is_deleted(self, what: str, region: str, begin: Callable[[Any], Any]) -> bool:
        try:
            self._api.finished(f"deleting {what}", region, begin, expected=NOT_FOUND | _IN_USE)
        except Refusal as refusal:
            return refusal.code in NOT_FOUND
        return True

    def _begin_delete_group(self, name: str) -> None:
        resources = self._api.resources
        try:
            self._api.begin(
                f"deleting the resource group {name}",
                f"the resource group {name}",
                lambda: resources.resource_groups.begin_delete(
                    name, force_deletion_types=_FORCED, polling=False
                ),
                expected=NOT_FOUND | GROUP_ENDS | {"Conflict"},
            )
        except Refusal:
            return

    def _group(self, name: str) -> Resource | None:
        groups = self._api.resources.resource_groups
        try:
            return self._api.get(
                f"looking for the resource group {name}",
                f"the resource group {name}",
                lambda: groups.get(name),
            )
        except Refusal:
            return None

    def _has_more(self, group: str, besides: Collection[str] = ()) -> bool:
        """Whether a group has anything in other regions than those."""
        resources = self._api.resources.resources
        found = self._list(group, lambda: resources.list_by_resource_group(group))
        return any(region_tag(one["location"]) not in besides for one in found)

    def _found(self, group: str, fleet: FleetTags, regions: set[str]) -> Iterator[FleetResource]:
        network, compute = self._api.network, self._api.compute
        machines = machines_of(self._api, group, regions)
        disks = {id for one in machines for id in _disks_that_end(one)}
        interfaces = {id for one in machines for id in _interfaces_that_end(one)}

        def is_left(kind: str, one: Resource) -> bool:
            if kind == DISK:
                return one["id"].lower() not in disks
            if kind == INTERFACE:
                return one["id"].lower() not in interfaces
            if kind == ADDRESS:
                used_by = (properties_of(one).get("ipConfiguration") or {}).get("id", "").lower()
                return used_by.partition("/ipconfigurations/")[0] not in interfaces
            return True

        lists: dict[str, Callable[[], Any]] = {
            FIREWALL: lambda: network.network_security_groups.list(group),
            INTERFACE: lambda: network.network_interfaces.list(group),
            ADDRESS: lambda: network.public_ip_addresses.list(group),
            DISK: lambda: compute.disks.list_by_resource_group(group),
        }
        for kind, request in lists.items():
            for one in self._list(group, request):
                region = region_tag(one["location"])
                if region in regions and is_left(kind, one):
                    yield FleetResource(kind, one["name"], region, fleet)

    def _list(self, group: str, request: Callable[[], Any]) -> list[Resource]:
        what, where = f"looking for resources in {group}", f"the resource group {group}"
        try:
            return list(self._api.listed(what, where, request, expected=NOT_FOUND))
        except Refusal:
            return []


def _disks_that_end(machine: Resource) -> Iterator[str]:
    """Lower-case ids of the disks that are deleted with a machine."""
    disk = (properties_of(machine).get("storageProfile") or {}).get("osDisk") or {}
    if disk.get("deleteOption") == "Delete":
        yield str((disk.get("managedDisk") or {}).get("id", "")).lower()


def _interfaces_that_end(machine: Resource) -> Iterator[str]:
    """Lower-case ids of the interfaces that are deleted with a machine."""
    profile = properties_of(machine).get("networkProfile") or {}
    for one in profile.get("networkInterfaces") or ():
        if properties_of(one).get("deleteOption") == "Delete":
            yield str(one["id"]).lower()
