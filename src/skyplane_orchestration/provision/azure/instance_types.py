"""Sizes of virtual machines in regions, and their quotas.

Azure is asked once for the sizes of each region.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from skyplane_orchestration.errors import InstanceTypeNotOffered
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.azure.options import Resource, region_name
from skyplane_orchestration.provision.fleet.answer_cache import AnswerCache
from skyplane_orchestration.provision.fleet.launching import zones_to_try

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi

_MACHINES: Final = "virtualMachines"
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
            if sku.get("resourceType") == _MACHINES
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
