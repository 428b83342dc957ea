"""What the strict Compute Engine has, and how it behaves."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

ZONES: Final = {
    "us-central1": ("a", "b", "c", "f"),
    "europe-west1": ("b", "c", "d"),
    "me-west1": ("a",),
}
#: Regions whose addresses can have the standard network tier.
STANDARD_TIER: Final = ("us-central1", "europe-west1")
#: Machine type -> vCPUs, architecture, quota, regions' zones that lack it.
TYPES: Final[dict[str, tuple[int, str, str, frozenset[str]]]] = {
    "n2-standard-4": (4, "X86_64", "N2_CPUS", frozenset()),
    "c3-standard-22": (22, "X86_64", "C3_CPUS", frozenset({"us-central1-a", "me-west1-a"})),
    "t2a-standard-2": (2, "ARM64", "T2A_CPUS", frozenset({"europe-west1-b", "me-west1-a"})),
}
ADDRESS_QUOTA: Final = "IN_USE_ADDRESSES"
SPOT_QUOTA: Final = "PREEMPTIBLE_CPUS"
ALL_REGIONS_QUOTA: Final = "CPUS_ALL_REGIONS"
IMAGES: Final = ("debian-13", "debian-13-arm64")

#: Method -> the permissions that Google's reference names for it.
PERMISSIONS: Final[dict[str, tuple[str, ...]]] = {
    "projects.get": ("compute.projects.get",),
    "regions.list": ("compute.regions.list",),
    "machineTypes.aggregatedList": ("compute.machineTypes.list",),
    "instances.aggregatedList": ("compute.instances.list",),
    "instances.get": ("compute.instances.get",),
    "instances.delete": ("compute.instances.delete",),
    "instances.setLabels": ("compute.instances.setLabels",),
    "instances.getSerialPortOutput": ("compute.instances.getSerialPortOutput",),
    "disks.aggregatedList": ("compute.disks.list",),
    "disks.delete": ("compute.disks.delete",),
    "zoneOperations.wait": ("compute.zoneOperations.get",),
    "globalOperations.wait": ("compute.globalOperations.get",),
    "firewalls.list": ("compute.firewalls.list",),
    "firewalls.get": ("compute.firewalls.get",),
    "firewalls.insert": ("compute.firewalls.create", "compute.networks.updatePolicy"),
    "firewalls.patch": ("compute.firewalls.update", "compute.networks.updatePolicy"),
    "firewalls.delete": ("compute.firewalls.delete", "compute.networks.updatePolicy"),
    "projects.testIamPermissions": (),
    "serviceAccounts.testIamPermissions": (),
}


def permissions_of(method: str, body: Any) -> tuple[str, ...]:
    """The permissions of a request; those of a launch depend on what the instance has."""
    if method != "instances.insert":
        return PERMISSIONS[method]
    found = ["compute.instances.create", "compute.disks.create", "compute.subnetworks.use"]
    if body.get("labels"):
        found.append("compute.instances.setLabels")
    if any(disk.get("initializeParams", {}).get("labels") for disk in body["disks"]):
        found.append("compute.disks.setLabels")
    if body.get("metadata", {}).get("items"):
        found.append("compute.instances.setMetadata")
    if body.get("tags", {}).get("items"):
        found.append("compute.instances.setTags")
    if any(one.get("accessConfigs") for one in body["networkInterfaces"]):
        found.append("compute.subnetworks.useExternalIp")
    if body.get("serviceAccounts"):
        found += ["compute.instances.setServiceAccount", "iam.serviceAccounts.actAs"]
    return tuple(found)


def granted_by(role: Mapping[str, Any]) -> frozenset[str]:
    """The permissions of a custom role, by its definition.

    The format is that of `gcloud iam roles create --file` (cloud.google.com/iam/docs,
    "Create and manage custom roles", as read on 2026-11-25). Raises ValueError for other fields.
    """
    if unknown := set(role) - {"title", "description", "stage", "includedPermissions"}:
        raise ValueError(f"fields of a role that the strict fake does not know: {unknown}")
    return frozenset(role["includedPermissions"])


@dataclass
class Conditions:
    """How the fake behaves; tests change it.

    Args:
        now_s: wall time; tests move it on.
        operation_waits: so many waits for an operation end before it is done.
        hidden_for: so many looks at a new resource find nothing.
        deleting_for: so many descriptions show a deleted instance.
        ending_s: seconds for which they do so at least.
        quotas: region, or empty for the project, and metric -> limit.
        quota_in_operation: refuse a quota in the operation, not at once.
        full: zones, or types of a zone (`us-central1-a/n2-standard-4`), without capacity.
        denied: permissions that the caller lacks.
        unreachable: zones that an aggregatedList misses.
        most_per_page: resources of a page.
        networks: names of the project's networks.
        constraints: policies of the organisation that hold (`compute.vmExternalIpAccess`).
    """

    now_s: float = 1_700_000_000.0
    operation_waits: int = 1
    hidden_for: int = 0
    deleting_for: int = 0
    ending_s: float = 0.0
    quotas: dict[tuple[str, str], float] = field(default_factory=dict)
    vcpu_quota: float = 1000.0
    quota_in_operation: bool = False
    full: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    unreachable: set[str] = field(default_factory=set)
    most_per_page: int = 500
    networks: set[str] = field(default_factory=lambda: {"default"})
    constraints: set[str] = field(default_factory=set)

    def quota(self, region: str, metric: str) -> float:
        default = 0.0 if metric == SPOT_QUOTA else self.vcpu_quota
        return self.quotas.get((region, metric), default)


class Visibility:
    """Which new resources are known already: by kind and id."""

    def __init__(self) -> None:
        self._hidden: dict[str, int] = defaultdict(int)

    def hide(self, key: str, looks: int) -> None:
        self._hidden[key] = looks

    def sees(self, key: str) -> bool:
        """One look."""
        if self._hidden[key] <= 0:
            return True
        self._hidden[key] -= 1
        return False
