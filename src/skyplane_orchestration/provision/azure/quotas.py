"""Quotas of vCPUs, and how much of them is in use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import InstanceTypeNotOffered
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.azure.options import region_name

if TYPE_CHECKING:
    from azure.core.paging import ItemPaged

    from skyplane_orchestration.provision.azure.client import AzureApi
    from skyplane_orchestration.provision.azure.types import Sizes

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
