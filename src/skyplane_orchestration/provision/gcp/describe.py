"""What Google Cloud tells: what a fleet has by its labels, machine types, and quotas.

It is asked once for each type.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from skyplane_orchestration.errors import InstanceTypeNotOffered
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.fleet.answer_cache import AnswerCache
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal
from skyplane_orchestration.provision.fleet.launching import zones_to_try
from skyplane_orchestration.provision.fleet.machines import FleetResource, Instance, InstanceState
from skyplane_orchestration.provision.gcp.client import GcpApi
from skyplane_orchestration.provision.gcp.error_mapping import IN_USE, NOT_FOUND, SERIES
from skyplane_orchestration.provision.gcp.options import ALPHABET, region_of_zone, region_tag

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
    """Zone and instance of all that a filter chooses in these regions, as Google describes them."""
    return api.in_zones("instances", filter_, what="looking for instances", regions=regions)


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
    found = list(api.in_zones("disks", filter_, what="looking for disks", regions=regions))
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


#: Series whose instances can have no disk of the older kind.
_HYPERDISK_SERIES: Final = frozenset({"c4", "c4a", "c4d", "h4d", "m4", "n4", "n4a", "n4d", "x4"})


@dataclass(frozen=True, slots=True)
class MachineType:
    """Of a machine type in a region: vCPUs, `arm64` or `x86_64`, and the zones that have it."""

    vcpus: int
    architecture: str
    zones: tuple[str, ...]


class MachineTypes:
    """Facts of machine types. Threads may share it."""

    def __init__(self, api: GcpApi) -> None:
        self._api = api
        self._options = api.options
        self._known: AnswerCache[str, dict[str, MachineType]] = AnswerCache()

    def of(self, region: str, instance_type: str) -> MachineType:
        """Raises InstanceTypeNotOffered."""
        known = self._known.get(instance_type, lambda: self._ask(instance_type))
        if region not in known:
            raise InstanceTypeNotOffered.of(region, instance_type)
        return known[region]

    def zones(self, region: str, instance_type: str) -> tuple[str, ...]:
        """The zones to try, in order: every worker tries them in the same one.

        Raises InstanceTypeNotOffered, also if only other zones than ours have the type.
        """
        offered = self.of(region, instance_type).zones
        return zones_to_try("gcp", self._options.zones, region, instance_type, offered)

    def disk_type(self, instance_type: str) -> str:
        if self._options.disk_type:
            return self._options.disk_type
        is_new = instance_type.partition("-")[0] in _HYPERDISK_SERIES
        return "hyperdisk-balanced" if is_new else "pd-balanced"

    def image(self, region: str, instance_type: str) -> str:
        """The image of a boot disk. Raises ConfigurationInvalid: there is none for the type."""
        architecture = self.of(region, instance_type).architecture
        return self._options.image_for("images", architecture, instance_type)

    def _ask(self, instance_type: str) -> dict[str, MachineType]:
        """Region tag -> facts, in one call for all zones of the project."""
        zones: dict[str, list[str]] = {}
        rows = {}
        what = f"looking for the machine type {instance_type}"
        # A zone that does not answer launches nothing.
        for zone, row in self._api.in_zones(
            "machineTypes", f'name="{instance_type}"', what=what, regions=None
        ):
            zones.setdefault(region_of_zone(zone), []).append(zone)
            rows[region_of_zone(zone)] = row
        facts = {}
        for region, offered in zones.items():
            is_arm = rows[region].architecture == "ARM64"
            facts[region] = MachineType(
                vcpus=rows[region].guest_cpus,
                architecture="arm64" if is_arm else "x86_64",
                zones=tuple(sorted(offered)),
            )
        return facts


_SPOT: Final = "PREEMPTIBLE_CPUS"
#: Of the whole project. Each region may have all that is free of it.
_ALL_REGIONS: Final = "CPUS_ALL_REGIONS"
#: Metric -> limit and use.
_Row = dict[str, tuple[int, int]]


def quota_uses(api: GcpApi, regions: Sequence[str]) -> tuple[QuotaUse, ...]:
    """All that Google tells of them, and that of all regions once. Two calls."""
    project, rows = _rows(api)
    words = {
        "CPUS": "vCPUs of E2, F1, G1 and N1",
        **{metric: f"vCPUs of {metric.removesuffix('_CPUS')}" for metric in list(SERIES)[1:]},
        _SPOT: "vCPUs of spot instances",
        "IN_USE_ADDRESSES": "external addresses in use",
    }
    everywhere = ("gcp", project, {_ALL_REGIONS: "vCPUs of all regions together"})
    return tuple(
        QuotaUse(tag, metric, what, *row[metric])
        for tag, row, wanted in (everywhere, *((one, rows.get(one, {}), words) for one in regions))
        for metric, what in wanted.items()
        if metric in row
    )


def region_quotas(
    api: GcpApi, regions: Sequence[str], *, with_spot: bool
) -> tuple[RegionQuota, ...]:
    """The quotas of each region, and the one that all regions share, for each. Two calls."""
    if not regions:
        return ()
    project, rows = _rows(api)
    shared = {metric: found for metric, found in project.items() if metric == _ALL_REGIONS}
    return tuple(
        RegionQuota(region, metric, *row[metric], None, series, of_relays)
        for region in regions
        if region in rows
        for row in [rows[region] | shared]
        for metric, series, of_relays in _limits(row, with_spot=with_spot)
        if metric in row
    )


def _limits(row: _Row, *, with_spot: bool) -> Iterator[tuple[str, str, bool | None]]:
    """Metric, series of machine types, and whether it limits relays only; see `RegionQuota`."""
    # Without a quota of their own, spot instances count against those of their series.
    has_spot = with_spot and row.get(_SPOT, (0, 0))[0] > 0
    for metric, series in SERIES.items():
        yield from ((metric, one, False if has_spot else None) for one in series)
    if has_spot:
        yield _SPOT, "", True
    yield _ALL_REGIONS, "", None


def _rows(api: GcpApi) -> tuple[_Row, dict[str, _Row]]:
    """Limit and use by metric: of the project, and of its regions by tag."""
    what = "reading quotas"
    project = api.call("projects.get", {}, what=what)
    pages = api.pages("regions.list", {}, what=what)
    regions = {region_tag(row.name): _row(row) for page in pages for row in page.items}
    return _row(project), regions


def _row(found: Any) -> _Row:
    return {quota.metric: (int(quota.limit), int(quota.usage)) for quota in found.quotas}
