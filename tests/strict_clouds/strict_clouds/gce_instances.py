"""Instances and disks of the strict Compute Engine."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

from strict_clouds.gce_facts import (
    ADDRESS_QUOTA,
    IMAGES,
    SPOT_QUOTA,
    STANDARD_TIER,
    TYPES,
    ZONES,
    Conditions,
    Visibility,
)
from strict_clouds.gce_firewalls import NAME
from strict_clouds.gce_wire import PROJECT, GceError, Request, not_found
from strict_clouds.machines import Machine, MachineBooter
from strict_clouds.usage import Usage

_LABEL_NAME: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}\Z")
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}\Z")
_MOST_METADATA: Final = 262_144
_FILTER: Final = re.compile(r'labels\.([a-z][a-z0-9_-]*)="([^"]*)"\Z')
_NO_ADDRESS: Final = "compute.vmExternalIpAccess"
_ACTIVE: Final = ("PROVISIONING", "STAGING", "RUNNING")

Resource = dict[str, Any]


class Zone:
    """Instances and disks of a zone, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.region = name.rpartition("-")[0]
        self.instances: dict[str, Resource] = {}
        self.disks: dict[str, Resource] = {}


class InstanceRules:
    """Launches and deletes instances.

    Args:
        machines: boots a machine for each instance; None for instances without one.
    """

    def __init__(
        self, conditions: Conditions, visibility: Visibility, machines: MachineBooter | None
    ) -> None:
        self._conditions = conditions
        self._visibility = visibility
        self._machines = machines
        self.zones = {
            f"{region}-{letter}": Zone(f"{region}-{letter}")
            for region, letters in ZONES.items()
            for letter in letters
        }
        self.booted: dict[str, Machine] = {}
        self.usage = Usage()
        self.ever_launched: list[Resource] = []
        self._ids = itertools.count(4_711_000_000_000_000_001)
        self._addresses = itertools.count(1)
        self._deleting: dict[str, int] = {}
        self._not_before_s: dict[str, float] = {}

    # Requests. Those that make something return the code of the operation's error, or nothing.

    def insert(self, request: Request) -> tuple[Resource, str]:
        """The instance, and the code of the error that its operation ends with."""
        zone, body = self.zone(request.path["zone"]), dict(request.body)
        if body["name"] in zone.instances:
            raise GceError(409, "alreadyExists", f"{body['name']} already exists")
        self._check(zone, body)
        instance = self._made(zone, body)
        if error := self._lacks_room(zone, instance):
            return instance, error
        self._started(zone, instance, body)
        return instance, ""

    def get(self, request: Request) -> Resource:
        zone = self.zone(request.path["zone"])
        instance = self._find(zone, request.path["instance"])
        self._described(zone, instance)
        return instance

    def delete(self, request: Request) -> Resource:
        zone = self.zone(request.path["zone"])
        instance = self._find(zone, request.path["instance"])
        self.begin_delete(zone, instance)
        return instance

    def set_labels(self, request: Request) -> Resource:
        instance = self._find(self.zone(request.path["zone"]), request.path["instance"])
        if request.body["labelFingerprint"] != instance["labelFingerprint"]:
            raise GceError(412, "conditionNotMet", "Labels fingerprint either invalid or outdated")
        check_labels(request.body["labels"])
        instance["labels"] = dict(request.body["labels"])
        instance["labelFingerprint"] = f"f{int(instance['labelFingerprint'][1:]) + 1}"
        return instance

    def console(self, request: Request) -> Resource:
        instance = self._find(self.zone(request.path["zone"]), request.path["instance"])
        if instance["status"] != "RUNNING":
            raise GceError(400, "resourceNotReady", "The resource is not ready")
        machine = self.booted.get(instance["id"])
        return {"contents": machine.console() if machine is not None else "", "start": "0"}

    def described(self, request: Request) -> Iterator[tuple[str, Resource]]:
        """Zone and instance of all that the filter chooses."""
        matches = _matcher(request)
        for zone in self.zones.values():
            for instance in list(zone.instances.values()):
                if matches(instance) and self._visibility.sees(instance["id"]):
                    self._described(zone, instance)
                    if instance["name"] in zone.instances:
                        yield zone.name, instance

    def disks(self, request: Request) -> Iterator[tuple[str, Resource]]:
        matches = _matcher(request)
        for zone in self.zones.values():
            for disk in zone.disks.values():
                if matches(disk):
                    yield zone.name, disk

    def delete_disk(self, request: Request) -> Resource:
        zone = self.zone(request.path["zone"])
        for disk in zone.disks.values():
            if request.path["disk"] in (disk["name"], disk["id"]):
                if disk["users"]:
                    raise GceError(
                        400, "resourceInUseByAnotherResource", f"{disk['name']} is in use"
                    )
                del zone.disks[disk["name"]]
                return disk
        raise not_found(request.path["disk"])

    # What happens by itself, or by hand.

    def advance(self) -> None:
        """Stop instances whose machines have ended, and delete those that run too long."""
        for zone in self.zones.values():
            for instance in list(zone.instances.values()):
                machine = self.booted.get(instance["id"])
                if instance["status"] in _ACTIVE and machine is not None and not machine.is_running:
                    stop(instance)
                    self.usage.end(instance["id"])
                ends_s = instance.get("_ends_s")
                if instance["status"] == "RUNNING" and ends_s and self._conditions.now_s >= ends_s:
                    self._gone(zone, instance)

    def begin_delete(self, zone: Zone, instance: Resource) -> None:
        machine = self.booted.get(instance["id"])
        if machine is not None and machine.is_running:
            machine.shut_down()
        instance["status"] = "STOPPING"
        if instance["id"] not in self._deleting:
            self._deleting[instance["id"]] = self._conditions.deleting_for
            self._not_before_s[instance["id"]] = time.monotonic() + self._conditions.ending_s
        if not self._conditions.deleting_for:
            self._gone(zone, instance)

    def zone(self, name: str) -> Zone:
        if name not in self.zones:
            raise not_found(f"zones/{name}")
        return self.zones[name]

    def by_id(self, number: str) -> tuple[Zone, Resource]:
        return next(
            (zone, instance)
            for zone in self.zones.values()
            for instance in zone.instances.values()
            if instance["id"] == number
        )

    def used(self, region: str, metric: str) -> int:
        """What is in use of a quota; of all regions for an empty one."""
        if metric == ADDRESS_QUOTA:
            return sum(
                bool(interface.get("accessConfigs"))
                for zone in self.zones.values()
                for instance in zone.instances.values()
                if instance["status"] in _ACTIVE and region == zone.region
                for interface in instance["networkInterfaces"]
            )
        return sum(
            TYPES[_last(instance["machineType"])][0]
            for zone in self.zones.values()
            for instance in zone.instances.values()
            if instance["status"] in _ACTIVE and region in ("", zone.region)
            if metric in ("CPUS_ALL_REGIONS", self.metric(zone.name, instance))
        )

    def _find(self, zone: Zone, name: str) -> Resource:
        for instance in zone.instances.values():
            if name in (instance["name"], instance["id"]) and self._visibility.sees(instance["id"]):
                return instance
        raise not_found(f"zones/{zone.name}/instances/{name}")

    def _described(self, zone: Zone, instance: Resource) -> None:
        """One description nearer to its end."""
        is_early = time.monotonic() < self._not_before_s.get(instance["id"], 0.0)
        if instance["id"] in self._deleting and not is_early:
            self._deleting[instance["id"]] -= 1
            if self._deleting[instance["id"]] < 0:
                self._gone(zone, instance)

    def _gone(self, zone: Zone, instance: Resource) -> None:
        machine = self.booted.get(instance["id"])
        if machine is not None and machine.is_running:
            machine.cut_power()
        self.usage.end(instance["id"])
        del zone.instances[instance["name"]]
        for attached in instance["disks"]:
            disk = zone.disks[_last(attached["source"])]
            disk["users"] = []
            if attached["autoDelete"]:
                del zone.disks[disk["name"]]

    def _check(self, zone: Zone, body: Resource) -> None:
        _require(NAME.match(body["name"]), f"name {body['name']!r}")
        kind = _last(body["machineType"])
        if kind not in TYPES or zone.name in TYPES[kind][3]:
            raise not_found(body["machineType"])
        check_labels(body.get("labels", {}))
        for tag in body["tags"]["items"]:
            _require(NAME.match(tag), f"network tag {tag!r}")
        for item in body["metadata"]["items"]:
            _require(len(item["value"].encode()) <= _MOST_METADATA, f"metadata {item['key']}")
        (disk,) = body["disks"]
        _require(disk["boot"] and int(disk["initializeParams"]["diskSizeGb"]) >= 10, "boot disk")
        check_labels(disk["initializeParams"]["labels"])
        image = disk["initializeParams"]["sourceImage"]
        if _last(image) not in IMAGES:
            raise not_found(image)
        _require(("arm64" in image) == (TYPES[kind][1] == "ARM64"), "the image's architecture")
        (interface,) = body["networkInterfaces"]
        if _last(interface["network"]) not in self._conditions.networks:
            raise not_found(interface["network"])
        if interface.get("accessConfigs") and _NO_ADDRESS in self._conditions.constraints:
            raise GceError(
                412,
                "conditionNotMet",
                f"Constraint constraints/{_NO_ADDRESS} violated for project {PROJECT}. Add instance"
                f" projects/{PROJECT}/zones/{zone.name}/instances/{body['name']} to the constraint"
                " to use external IP with it.",
            )
        for access in interface.get("accessConfigs", []):
            tier = access.get("networkTier", "PREMIUM")
            _require(tier in ("PREMIUM", "STANDARD"), f"networkTier {tier!r}")
            has_tier = tier == "PREMIUM" or zone.region in STANDARD_TIER
            _require(has_tier, f"networkTier STANDARD in {zone.region}")
        scheduling = body["scheduling"]
        seconds = int(scheduling["maxRunDuration"]["seconds"])
        _require(30 <= seconds <= 120 * 86400, "maxRunDuration")
        _require(scheduling["instanceTerminationAction"] == "DELETE", "instanceTerminationAction")
        if scheduling.get("provisioningModel") == "SPOT":
            _require(scheduling["onHostMaintenance"] == "TERMINATE", "onHostMaintenance")
        _require(scheduling["automaticRestart"] is False, "automaticRestart")

    def _made(self, zone: Zone, body: Resource) -> Resource:
        (disk,) = body["disks"]
        return {
            **body,
            "id": str(next(self._ids)),
            "status": "RUNNING",
            "creationTimestamp": datetime.fromtimestamp(self._conditions.now_s, UTC).isoformat(),
            "labelFingerprint": "f1",
            "disks": [
                {
                    "boot": True,
                    "autoDelete": disk["autoDelete"],
                    "source": f"zones/{zone.name}/disks/{body['name']}",
                }
            ],
            "_ends_s": self._conditions.now_s
            + int(body["scheduling"]["maxRunDuration"]["seconds"]),
        }

    def _lacks_room(self, zone: Zone, instance: Resource) -> str:
        metric = self.metric(zone.name, instance)
        wanted = TYPES[_last(instance["machineType"])][0]
        limit = self._conditions.quota(zone.region, metric)
        if self.used(zone.region, metric) + wanted > limit:
            if not self._conditions.quota_in_operation:
                raise GceError(
                    403,
                    "quotaExceeded",
                    f"Quota '{metric}' exceeded.  Limit: {limit:.1f} in region {zone.region}.",
                )
            return "QUOTA_EXCEEDED"
        kind = _last(instance["machineType"])
        if not self._conditions.full.isdisjoint((zone.name, f"{zone.name}/{kind}")):
            return "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
        return ""

    def metric(self, zone: str, instance: Resource) -> str:
        """The quota that an instance counts against."""
        region = zone.rpartition("-")[0]
        is_spot = instance["scheduling"].get("provisioningModel") == "SPOT"
        if is_spot and self._conditions.quota(region, SPOT_QUOTA):
            return SPOT_QUOTA
        return TYPES[_last(instance["machineType"])][2]

    def _started(self, zone: Zone, instance: Resource, body: Resource) -> None:
        (disk,), (interface,) = body["disks"], instance["networkInterfaces"]
        zone.instances[instance["name"]] = instance
        zone.disks[instance["name"]] = {
            "name": instance["name"],
            "id": str(next(self._ids)),
            "labels": dict(disk["initializeParams"]["labels"]),
            "users": [f"zones/{zone.name}/instances/{instance['name']}"],
        }
        self.ever_launched.append(instance)
        self._visibility.hide(instance["id"], self._conditions.hidden_for)
        number = next(self._addresses)
        address = f"203.0.113.{number}"
        interface["networkIP"] = f"10.128.0.{number}"
        if self._machines is not None:
            script = next(
                item["value"]
                for item in instance["metadata"]["items"]
                if item["key"] == "startup-script"
            )
            machine = self.booted[instance["id"]] = self._machines.boot(script)
            address = machine.address
            interface["networkIP"] = address
            self.usage.begin(
                instance["id"],
                f"gcp:{zone.region}",
                _last(instance["machineType"]),
                disk_gib=int(disk["initializeParams"]["diskSizeGb"]),
                has_address=bool(interface.get("accessConfigs")),
                address=address,
                network_tier=_network_tier(interface),
            )
        for access in interface.get("accessConfigs", []):
            access["natIP"] = address


def _network_tier(interface: Resource) -> str:
    """Empty without an external address, which has the internal one's way."""
    return next((access["networkTier"] for access in interface.get("accessConfigs", [])), "")


def stop(instance: Resource) -> None:
    """As a guest does that powers itself off: the disk remains, the address does not."""
    instance["status"] = "TERMINATED"
    for interface in instance["networkInterfaces"]:
        for access in interface.get("accessConfigs", []):
            access.pop("natIP", None)


def check_labels(labels: dict[str, str]) -> None:
    _require(len(labels) <= 64, "the number of labels")
    for name, value in labels.items():
        _require(_LABEL_NAME.match(name) and _LABEL_VALUE.match(value), f"label {name}={value!r}")


def _require(is_valid: object, what: str) -> None:
    if not is_valid:
        raise GceError(400, "invalid", f"Invalid value for {what}")


def _matcher(request: Request) -> Callable[[Resource], bool]:
    found = _FILTER.match(request.query.get("filter", ""))
    if found is None:
        raise GceError(400, "invalid", "the strict fake wants a filter for a label")
    name, value = found.groups()
    return lambda resource: resource.get("labels", {}).get(name) == value


def _last(path: str) -> str:
    return path.rpartition("/")[2]
