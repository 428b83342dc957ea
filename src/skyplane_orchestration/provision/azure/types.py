"""Sizes of virtual machines in regions; Azure is asked once for each region."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import InstanceTypeNotOffered
from skyplane_orchestration.provision.azure.options import region_name
from skyplane_orchestration.provision.azure.tags import Resource
from skyplane_orchestration.provision.fleet.answers import AnswerCache

if TYPE_CHECKING:
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
