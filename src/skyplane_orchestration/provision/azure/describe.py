"""What Azure tells: what a fleet has in its resource group, sizes of machines, and quotas.

The group is deleted with the last of a fleet, by one call that also takes what nobody has listed.
Azure is asked once for the sizes of each region.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final
from urllib.parse import quote

from skyplane_orchestration.errors import InstanceTypeNotOffered
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.azure.client import AzureApi
from skyplane_orchestration.provision.azure.error_mapping import GROUP_ENDS, NOT_FOUND
from skyplane_orchestration.provision.azure.options import (
    ALPHABET,
    IP,
    NIC,
    Kind,
    Resource,
    group_name,
    network_path,
    path_of,
    properties_of,
    region_name,
    region_tag,
)
from skyplane_orchestration.provision.fleet.answer_cache import AnswerCache
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal
from skyplane_orchestration.provision.fleet.launching import zones_to_try
from skyplane_orchestration.provision.fleet.machines import FleetResource, Instance, InstanceState
from skyplane_orchestration.provision.parallel import in_parallel

#: "all" -> the power states of all machines of the subscription.
Powers = AnswerCache[str, Mapping[str, str]]

_POWER: Final = "PowerState/"
#: A machine that was shut down inside is billed as before, and one that was deallocated still has
#: a disk and an address that are billed. So neither has ended: somebody has to delete it.
_STATES: Final[Mapping[str, InstanceState]] = {"starting": "starting", "running": "running"}
#: Of machines whose power is not told.
_PROGRESS: Final[Mapping[str, InstanceState]] = {"Failed": "ending", "Succeeded": "running"}
FIREWALL: Final = "network-security-group"
GROUP: Final = "resource-group"
#: Kind of what else a group has -> its type. In this order; each is in use by those before it.
_KINDS: Final = {
    "network-interface": Kind.INTERFACE,
    "public-ip-address": Kind.ADDRESS,
    "disk": Kind.DISK,
    FIREWALL: Kind.FIREWALL,
}
#: A machine that another worker has just launched ends at once.
_FORCED: Final = quote(Kind.MACHINE, safe="")
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


def power_states(api: AzureApi) -> Mapping[str, str]:
    """Lower-case resource id -> `running`; without machines that Azure tells nothing of."""
    what = "looking for the states of the subscription's instances"
    found = api.listed(what, f"providers/{Kind.MACHINE}?statusOnly=true")
    return {one["id"].lower(): power for one in found if (power := power_of(one))}


def power_of(machine: Resource) -> str:
    """`running` and others; empty if its view is not there or tells nothing."""
    view = properties_of(machine).get("instanceView") or {}
    codes = (str(status.get("code", "")) for status in view.get("statuses") or ())
    return next((one.removeprefix(_POWER) for one in codes if one.startswith(_POWER)), "")


def machines_of(api: AzureApi, group: str, regions: Collection[str]) -> list[Resource]:
    """The virtual machines of a group in some regions; none if there is no such group."""
    found = api.in_group(group, Kind.MACHINE)
    return [one for one in found if region_tag(one["location"]) in regions]


def our_instances(
    api: AzureApi, powers: Powers, group: str, regions: Collection[str]
) -> tuple[Instance, ...]:
    """The instances of a group. Two calls besides the power states."""
    machines = machines_of(api, group, regions)
    if not machines:
        return ()
    kind, suffix = (Kind.ADDRESS, IP) if api.options.public_address else (Kind.INTERFACE, NIC)
    found = api.in_group(group, kind)
    addresses = {one["name"].removesuffix(suffix): _address(one) for one in found}
    known = powers.get("all", partial(power_states, api))
    instances = (
        as_instance(one, known.get(one["id"].lower(), ""), addresses.get(one["name"], ""))
        for one in machines
    )
    return tuple(one for one in instances if one is not None)


def as_instance(machine: Resource, power: str, address: str) -> Instance | None:
    """An instance of ours; None without our tags."""
    facts = properties_of(machine)
    progress, made = facts.get("provisioningState") or "", facts.get("timeCreated")
    # One that runs stays one when a later change of it has failed.
    state = _STATES.get(power, "ending") if power else _PROGRESS.get(progress, "starting")
    if progress == "Deleting":
        state = "ending"
    return ALPHABET.instance_of(
        machine.get("tags") or {},
        region_tag(machine["location"]),
        # Unique for each machine that ever was: Azure allows a name again once it is free.
        cloud_id=f"{machine['name']}/{facts.get('vmId') or ''}",
        state=state,
        address=address,
        launched_unix_s=datetime.fromisoformat(made).timestamp() if made else 0.0,
        why_ended="" if state in ("starting", "running") else power or progress.lower(),
    )


def _address(resource: Resource) -> str:
    """Of a public address, or of an interface."""
    facts = properties_of(resource)
    for configuration in facts.get("ipConfigurations") or ():
        facts = properties_of(configuration)
    return str(facts.get("ipAddress") or facts.get("privateIPAddress") or "")


def leftovers(
    api: AzureApi, group: Resource | None, regions: Collection[str]
) -> tuple[FleetResource, ...]:
    """What a resource group has besides instances. Six calls at most.

    Disks, interfaces and addresses that end with their machine are not among them.
    """
    fleet = ALPHABET.fleet_of(group.get("tags")) if group is not None else None
    if group is None or fleet is None:
        return ()
    name = group["name"]
    ending = {id for one in machines_of(api, name, regions) for id in _ids_that_end(one)}
    found = [
        FleetResource(kind, one["name"], region, fleet)
        for kind, its_type in _KINDS.items()
        for one in api.in_group(name, its_type)
        if (region := region_tag(one["location"])) in regions
        and ending.isdisjoint((one["id"].lower(), _interface_of(one)))
    ]
    home = region_tag(group["location"])
    if not found and home in regions and not api.in_group(name):
        found.append(FleetResource(GROUP, name, home, fleet))
    return tuple(found)


def _ids_that_end(machine: Resource) -> Iterator[str]:
    """Lower-case ids of the disk and the interfaces that are deleted with a machine."""
    facts = properties_of(machine)
    disk = (facts.get("storageProfile") or {}).get("osDisk") or {}
    interfaces = (facts.get("networkProfile") or {}).get("networkInterfaces") or ()
    parts = [(disk, disk.get("managedDisk") or {})]
    for options, part in [*parts, *((properties_of(one), one) for one in interfaces)]:
        if options.get("deleteOption") == "Delete" and part.get("id"):
            yield str(part["id"]).lower()


def _interface_of(address: Resource) -> str:
    """Lower-case id of the interface that has a public address; empty for none."""
    used_by = (properties_of(address).get("ipConfiguration") or {}).get("id", "")
    return str(used_by).lower().partition("/ipconfigurations/")[0]


def group_of(api: AzureApi, fleet_key: str) -> Resource | None:
    name = group_name(fleet_key)
    return api.find(f"looking for the resource group {name}", f"resourceGroups/{name}")


def delete(api: AzureApi, resources: Sequence[FleetResource]) -> tuple[FleetResource, ...]:
    """Delete those of one fleet; those that are still there.

    If they are all that the group has, the group is deleted, and all of them are there until it is
    gone. Else they are deleted one by one.
    """
    fleet_key = resources[0].tags.fleet_key
    group = group_of(api, fleet_key)
    if group is None:
        return ()
    name, regions = group["name"], {resource.region for resource in resources}
    is_ending = properties_of(group).get("provisioningState") == "Deleting"
    if is_ending or machines_of(api, name, regions):
        return tuple(resources)
    if any(region_tag(one["location"]) not in regions for one in api.in_group(name)):
        remaining: list[FleetResource] = []
        for kind in _KINDS:
            of_kind = [one for one in resources if one.kind == kind]
            done = in_parallel(of_kind, partial(_is_deleted, api, name))
            remaining += [one for one, is_gone in zip(of_kind, done, strict=True) if not is_gone]
        return tuple(remaining)
    path = f"resourceGroups/{name}?forceDeletionTypes={_FORCED}"
    expected = NOT_FOUND | GROUP_ENDS | {"Conflict"}
    with contextlib.suppress(CloudRefusal):
        api.call(f"deleting the resource group {name}", "DELETE", path, expected=expected)
    return () if group_of(api, fleet_key) is None else tuple(resources)


def _is_deleted(api: AzureApi, group: str, resource: FleetResource) -> bool:
    """Delete one; False if it is still in use. One that is gone is deleted."""
    paths = [path_of(group, _KINDS[resource.kind], resource.cloud_id)]
    if resource.kind == FIREWALL:
        paths.insert(0, network_path(resource.tags.fleet_key, resource.region))
    for path in paths:
        try:
            api.call(
                f"deleting {path}",
                "DELETE",
                path,
                where=resource.region,
                expected=NOT_FOUND | _IN_USE,
                is_awaited=True,
            )
        except CloudRefusal as refusal:
            if refusal.code not in NOT_FOUND:
                return False
    return True


_ARCHITECTURES: Final = {"x64": "x86_64", "Arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class VmSize:
    """Of a size in a region.

    Args:
        vcpus: as quotas count them.
        architecture: `arm64` or `x86_64`.
        family: name of the quota of its family, `standardDSv5Family`.
        zones: that have it and are open to the subscription, sorted; empty in regions without.
        is_accelerated: takes accelerated networking.
    """

    vcpus: int
    architecture: str
    family: str
    zones: tuple[str, ...]
    is_accelerated: bool


class VmSizes:
    """The sizes of regions. Threads may share it."""

    def __init__(self, api: AzureApi) -> None:
        self._api = api
        self._known: AnswerCache[str, dict[str, VmSize]] = AnswerCache()

    def of(self, region: str, instance_type: str) -> VmSize:
        """Raises InstanceTypeNotOffered."""
        size = self.in_region(region).get(instance_type)
        if size is None:
            raise InstanceTypeNotOffered.of(region, instance_type)
        return size

    def in_region(self, region: str) -> dict[str, VmSize]:
        """Name -> size. Sizes that the subscription may not use are left out."""
        return self._known.get(region, lambda: self._look_up(region))

    def zones(self, region: str, instance_type: str) -> tuple[str, ...]:
        """The zones to try in turn; one empty name where there are none.

        Raises InstanceTypeNotOffered, also if only other zones than the wanted ones have the size.
        """
        offered, wanted = self.of(region, instance_type).zones, self._api.options.zones
        return zones_to_try("azure", wanted, region, instance_type, offered) or ("",)

    def _look_up(self, region: str) -> dict[str, VmSize]:
        chosen = quote(f"location eq '{region_name(region)}'")
        path = f"providers/Microsoft.Compute/skus?$filter={chosen}"
        found = self._api.listed(f"looking for the sizes of {region}", path)
        return {
            sku["name"]: _size(sku)
            for sku in found
            if sku.get("resourceType") == "virtualMachines"
            and not any(one.get("type") == "Location" for one in sku.get("restrictions") or ())
        }


def _size(sku: Resource) -> VmSize:
    facts = {one["name"]: one["value"] for one in sku.get("capabilities") or ()}
    zones = {zone for one in sku.get("locationInfo") or () for zone in one.get("zones") or ()}
    for one in sku.get("restrictions") or ():
        if one.get("type") == "Zone":
            zones -= set((one.get("restrictionInfo") or {}).get("zones") or ())
    architecture = facts.get("CpuArchitectureType", "x64")
    return VmSize(
        vcpus=int(facts["vCPUs"]),
        architecture=_ARCHITECTURES.get(architecture, architecture),
        family=sku.get("family") or "",
        zones=tuple(sorted(zones)),
        is_accelerated=facts.get("AcceleratedNetworkingEnabled") == "True",
    )


#: All vCPUs of a region but those of spot instances, which have the other.
REGIONAL: Final = "cores"
SPOT: Final = "lowPriorityCores"
#: Of the kind of address that instances get, and of all kinds.
_ADDRESSES: Final = ("StandardSkuPublicIpAddresses", "PublicIPAddresses")
#: The types of shipped plans; their families have quotas too.
PLANNED_TYPES: Final = ("Standard_D4s_v5", "Standard_D32pls_v5", "Standard_D32_v5")


def usages(api: AzureApi, region: str, provider: str = "Microsoft.Compute") -> dict[str, QuotaUse]:
    """The quotas of a region by name, with Azure's words for them in the portal. One call."""
    path = f"providers/{provider}/locations/{region_name(region)}/usages"
    named = {}
    for one in api.listed(f"reading the quotas of {region}", path):
        name = one["name"]["value"]
        shown = one["name"].get("localizedValue") or name
        limit, used = int(one["limit"]), int(one["currentValue"])
        named[name] = QuotaUse(region, name, shown, limit, used)
    return named


def quota_uses(api: AzureApi, sizes: VmSizes, region: str) -> tuple[QuotaUse, ...]:
    """vCPUs of the region, of spot instances and of families, and addresses. Three calls."""
    found = usages(api, region) | usages(api, region, "Microsoft.Network")
    known = sizes.in_region(region)
    families = [known[one].family for one in PLANNED_TYPES if one in known]
    names = (REGIONAL, SPOT, *families, *_ADDRESSES)
    return tuple(found[name] for name in names if name in found)


def region_quotas(api: AzureApi, region: str, *, with_spot: bool) -> tuple[RegionQuota, ...]:
    """The vCPUs of a region, and those of spot instances if they are used.

    Families have quotas of their own. They bind some sizes only, so they are not among these.
    """
    found = usages(api, region)
    of_relays = {REGIONAL: False, SPOT: True} if with_spot else {REGIONAL: None}
    return tuple(
        RegionQuota(region, name, vcpus=use.limit, used_vcpus=use.used, of_relays=who)
        for name, who in of_relays.items()
        for use in [found.get(name, QuotaUse(region, name, "", None, 0))]
    )


def exceeded(api: AzureApi, region: str, size: VmSize, *, is_spot: bool) -> QuotaUse | None:
    """The quota that does not allow one more instance of a size; None if all do."""
    found = usages(api, region)
    for name in (SPOT,) if is_spot else (REGIONAL, size.family):
        usage = found.get(name)
        if usage is not None and usage.free is not None and usage.free < size.vcpus:
            return usage
    return None
