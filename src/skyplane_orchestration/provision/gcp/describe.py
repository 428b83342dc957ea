"""Finds by its labels what a fleet has: instances, and disks that are left."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal
from skyplane_orchestration.provision.fleet.machines import FleetResource, Instance, InstanceState
from skyplane_orchestration.provision.gcp.error_mapping import IN_USE, NOT_FOUND
from skyplane_orchestration.provision.gcp.options import ALPHABET, region_of_zone, region_tag

if TYPE_CHECKING:
    from skyplane_orchestration.provision.gcp.client import GcpApi

#: All others are `ending`: a stopped instance carries no bytes, but its disk is billed. Nothing is
#: `ended`, since Google shows no deleted instance.
_STATES: Final[dict[str, InstanceState]] = {
    "PENDING": "starting",
    "PROVISIONING": "starting",
    "STAGING": "starting",
    "RUNNING": "running",
}
DISK: Final = "disk"
#: Of an instance that was stopped, not deleted.
_STOPPED: Final = frozenset({"STOPPED", "SUSPENDED", "TERMINATED"})


def instances(api: GcpApi, filter_: str, regions: Collection[str]) -> Iterator[tuple[str, Any]]:
    """Zone and instance of all that a filter chooses in these regions, as Google describes them.

    One call per page of 500, for all regions.
    """
    found = api.in_zones(
        "instances.aggregatedList",
        "instances",
        {"filter": filter_},
        what="looking for instances",
        regions=regions,
    )
    return ((zone, entry) for zone, entry in found if region_of_zone(zone) in regions)


def our_instances(api: GcpApi, filter_: str, regions: Collection[str]) -> tuple[Instance, ...]:
    """The instances in these regions that a filter chooses and that have our labels."""
    found = (as_instance(api, entry, zone) for zone, entry in instances(api, filter_, regions))
    return tuple(instance for instance in found if instance is not None)


def as_instance(api: GcpApi, entry: Any, zone: str) -> Instance | None:
    """An instance of ours; None without our labels."""
    why = ""
    if entry.status in _STOPPED:
        why = entry.status_message or f"{entry.status}: it has stopped, and its disk remains"
    return ALPHABET.instance_of(
        dict(entry.labels),
        region_of_zone(zone),
        cloud_id=cloud_id(zone, entry.id),
        state=_STATES.get(entry.status, "ending"),
        address=_address(entry, has_public_address=api.options.public_address),
        internal_address="".join(str(one.network_i_p) for one in entry.network_interfaces[:1]),
        launched_unix_s=datetime.fromisoformat(entry.creation_timestamp).timestamp(),
        why_ended=why,
    )


def cloud_id(zone: str, number: int) -> str:
    """Zone and numeric id. A name can be that of a later instance; an id cannot."""
    return f"{zone}/{number}"


def zone_and_id(instance: Instance) -> dict[str, str]:
    """The fields of a request for an instance. Google takes an id in place of a name."""
    zone, _, number = instance.cloud_id.partition("/")
    return {"zone": zone, "instance": number}


def usable_regions(api: GcpApi) -> tuple[str, ...]:
    """Tags of the project's regions, sorted."""
    pages = api.pages("regions.list", {}, what="looking for regions")
    return tuple(
        sorted(region_tag(row.name) for page in pages for row in page.items if row.status == "UP")
    )


def _address(entry: Any, *, has_public_address: bool) -> str:
    for interface in entry.network_interfaces:
        if not has_public_address:
            return str(interface.network_i_p)
        for access in interface.access_configs:
            return str(access.nat_i_p)
    return ""


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
    # Google deletes these disks with their instances. Each has a zone and a name.
    ending = {
        (zone, disk.source.rpartition("/")[2])
        for zone, entry in (instances(api, filter_, regions) if is_used else ())
        for disk in entry.disks
        if disk.auto_delete
    }
    for zone, disk in found:
        fleet = ALPHABET.fleet_of(dict(disk.labels))
        if fleet is not None and (zone, disk.name) not in ending:
            yield FleetResource(DISK, cloud_id(zone, disk.id), region_of_zone(zone), fleet)


def delete_disk(api: GcpApi, disk: FleetResource) -> bool:
    """Delete one; False if an instance still uses it. One that is gone is deleted."""
    zone, _, number = disk.cloud_id.partition("/")
    try:
        api.done(
            "disks.delete",
            {"zone": zone, "disk": number},
            what=f"deleting the disk {disk.cloud_id}",
            where=disk.region,
            expected=IN_USE | NOT_FOUND,
        )
    except CloudRefusal as refusal:
        return refusal.code in NOT_FOUND
    return True
