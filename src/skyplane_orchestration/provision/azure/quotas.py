"""Quotas of vCPUs, and how much of them is in use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.model.region_quota import RegionQuota
from skyplane_orchestration.provision.azure.options import region_name

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi

#: All vCPUs of a region but those of spot instances, which have the other.
REGIONAL: Final = "cores"
SPOT: Final = "lowPriorityCores"


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
    found = api.listed(
        f"reading the quotas of {region}",
        region,
        lambda: compute.usage.list(region_name(region)),
    )
    named = {}
    for one in found:
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
    for name in (REGIONAL, SPOT) if with_spot else (REGIONAL,):
        usage = found.get(name)
        limit, used = (usage.limit, usage.used) if usage else (None, 0)
        quotas.append(RegionQuota(region, name, vcpus=limit, used_vcpus=used))
    return tuple(quotas)


def exceeded(api: AzureApi, region: str, vcpus: int, family: str, *, is_spot: bool) -> Usage | None:
    """The quota that does not allow so many more vCPUs of a family; None if all do."""
    found = usages(api, region)
    for name in (SPOT,) if is_spot else (REGIONAL, family):
        usage = found.get(name)
        if usage is not None and usage.used + vcpus > usage.limit:
            return usage
    return None
