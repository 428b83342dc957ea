"""Sizes of virtual machines in regions, and their quotas.

Azure is asked once for the sizes of each region.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import InstanceTypeNotOffered
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.azure.options import Resource, region_name
from skyplane_orchestration.provision.fleet.answer_cache import AnswerCache

if TYPE_CHECKING:
    from azure.core.paging import ItemPaged

    from skyplane_orchestration.provision.azure.client import AzureApi
    from skyplane_orchestration.provision.azure.options import AzureOptions

_MACHINES: Final = "virtualMachines"
_ARCHITECTURES: Final = {"x64": "x86_64", "Arm64": "arm64"}


@dataclass(frozen=True, slots=True)
class Size:
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


class Sizes:
    """The sizes of regions. Threads may share it."""

    def __init__(self, api: AzureApi, options: AzureOptions) -> None:
        self._api = api
        self._options = options
        self._known: AnswerCache[str, dict[str, Size]] = AnswerCache()

    def of(self, region: str, instance_type: str) -> Size:
        """Raises InstanceTypeNotOffered."""
        sizes = self._known.get(region, lambda: self._look_up(region))
        size = sizes.get(instance_type)
        if size is None:
            raise InstanceTypeNotOffered.of(region, instance_type)
        return size

    def zones(self, region: str, instance_type: str) -> tuple[str, ...]:
        """The zones to try in turn; one empty name where there are none.

        Raises InstanceTypeNotOffered, also if only other zones than ours have the size.
        """
        of_size = self.of(region, instance_type).zones
        wanted = self._options.zones.get(region)
        if wanted is None:
            return of_size or ("",)
        usable = tuple(zone for zone in wanted if zone in of_size)
        if not usable:
            raise InstanceTypeNotOffered.of(region, instance_type).adding(
                f"zones of azure names {', '.join(wanted)} for the region, which offers it in"
                f" {', '.join(of_size) or 'no zone'}"
            )
        return usable

    def _look_up(self, region: str) -> dict[str, Size]:
        location = region_name(region)
        compute = self._api.compute
        found = self._api.listed(
            f"looking for the sizes of {region}",
            region,
            lambda: compute.resource_skus.list(filter=f"location eq '{location}'"),
        )
        return {
            sku["name"]: _size(sku)
            for sku in found
            if sku.get("resourceType") == _MACHINES and not _is_closed(sku)
        }


def _is_closed(sku: Resource) -> bool:
    """Whether the subscription cannot use a size in the whole region."""
    return any(one.get("type") == "Location" for one in sku.get("restrictions") or ())


def _size(sku: Resource) -> Size:
    facts = {one["name"]: one["value"] for one in sku.get("capabilities") or ()}
    zones = {zone for one in sku.get("locationInfo") or () for zone in one.get("zones") or ()}
    for one in sku.get("restrictions") or ():
        if one.get("type") == "Zone":
            zones -= set((one.get("restrictionInfo") or {}).get("zones") or ())
    architecture = facts.get("CpuArchitectureType", "x64")
    return Size(
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


@dataclass(frozen=True, slots=True)
class Usage:
    """A quota of a region.

    Args:
        name: `cores`, or that of a family.
        shown: Azure's words for it, as its owner finds it in the portal.
    """

    name: str
    shown: str
    used: int
    limit: int


def usages(api: AzureApi, region: str) -> dict[str, Usage]:
    """The quotas of a region, by name. One call."""
    compute = api.compute
    return _named(api, region, lambda: compute.usage.list(region_name(region)))


def quota_uses(api: AzureApi, sizes: Sizes, region: str) -> tuple[QuotaUse, ...]:
    """vCPUs of the region, of spot instances and of families, and addresses. Three calls."""
    network = api.network
    found = usages(api, region)
    found |= _named(api, region, lambda: network.usages.list(region_name(region)))
    names = (REGIONAL, SPOT, *_families(sizes, region), *_ADDRESSES)
    return tuple(
        QuotaUse(region, usage.name, usage.shown, usage.limit, usage.used)
        for usage in (found[name] for name in names if name in found)
    )


def _families(sizes: Sizes, region: str) -> list[str]:
    found = []
    for instance_type in PLANNED_TYPES:
        try:
            found.append(sizes.of(region, instance_type).family)
        except InstanceTypeNotOffered:
            continue
    return found


def _named(api: AzureApi, region: str, request: Callable[[], ItemPaged[Any]]) -> dict[str, Usage]:
    named = {}
    for one in api.listed(f"reading the quotas of {region}", region, request):
        name = one["name"]["value"]
        shown = one["name"].get("localizedValue") or name
        named[name] = Usage(name, shown, int(one["currentValue"]), int(one["limit"]))
    return named


def region_quotas(api: AzureApi, region: str, *, with_spot: bool) -> tuple[RegionQuota, ...]:
    """The vCPUs of a region, and those of spot instances if they are used.

    Families have quotas of their own. They bind some sizes only, so they are not among these.
    """
    found = usages(api, region)
    quotas = []
    of_relays = {REGIONAL: False, SPOT: True} if with_spot else {REGIONAL: None}
    for name, who in of_relays.items():
        usage = found.get(name)
        limit, used = (usage.limit, usage.used) if usage else (None, 0)
        quotas.append(RegionQuota(region, name, vcpus=limit, used_vcpus=used, of_relays=who))
    return tuple(quotas)


def exceeded(api: AzureApi, region: str, vcpus: int, family: str, *, is_spot: bool) -> Usage | None:
    """The quota that does not allow so many more vCPUs of a family; None if all do."""
    found = usages(api, region)
    for name in (SPOT,) if is_spot else (REGIONAL, family):
        usage = found.get(name)
        if usage is not None and usage.used + vcpus > usage.limit:
            return usage
    return None
