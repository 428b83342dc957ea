"""What a fleet has besides instances: firewall rules, and disks left behind."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.provision.fleet.machines import FleetResource
from skyplane_orchestration.provision.gcp import tags
from skyplane_orchestration.provision.gcp.describe import cloud_id, instances
from skyplane_orchestration.provision.gcp.errors import IN_USE, NOT_FOUND, Refusal
from skyplane_orchestration.provision.gcp.options import region_of_zone

if TYPE_CHECKING:
    from skyplane_orchestration.provision.gcp.client import GcpApi

DISK: Final = "disk"


def disks(api: GcpApi, filter_: str, regions: Collection[str]) -> Iterator[FleetResource]:
    """Disks in these regions that a filter chooses, but for those that end with an instance.

    One call per page, and one for instances if there are disks.
    """
    found = [
        (zone, disk)
        for zone, disk in api.in_zones(
            "disks.aggregatedList",
            "disks",
            {"filter": filter_},
            what="looking for disks",
            regions=regions,
        )
        if region_of_zone(zone) in regions
    ]
    is_used = any(disk.users for _, disk in found)
    ending = _ending_disks(api, filter_, regions) if is_used else frozenset()
    for zone, disk in found:
        fleet = tags.fleet_of(dict(disk.labels))
        if fleet is not None and (zone, disk.name) not in ending:
            yield FleetResource(DISK, cloud_id(zone, disk.id), region_of_zone(zone), fleet)


def delete_disk(api: GcpApi, disk: FleetResource) -> bool:
    """Delete one; False if an instance still uses it. One that is gone is deleted."""
    zone, _, number = disk.cloud_id.partition("/")
    what = f"deleting the disk {disk.cloud_id}"
    expected = IN_USE | NOT_FOUND
    try:
        operation = api.call(
            "disks.delete",
            {"zone": zone, "disk": number},
            what=what,
            where=disk.region,
            expected=expected,
        )
        api.wait(operation, "disks.delete", what=what, where=disk.region, expected=expected)
    except Refusal as refusal:
        return refusal.code in NOT_FOUND
    return True


def _ending_disks(
    api: GcpApi, filter_: str, regions: Collection[str]
) -> frozenset[tuple[str, str]]:
    """Zone and name of the disks that are deleted with their instance."""
    return frozenset(
        (zone, disk.source.rpartition("/")[2])
        for zone, entry in instances(api, filter_, regions)
        for disk in entry.disks
        if disk.auto_delete
    )
