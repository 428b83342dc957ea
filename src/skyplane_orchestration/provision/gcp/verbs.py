"""The methods of Google's APIs that are called, and the permissions that each needs.

The first permission is the one that errors name. The custom role in the documentation has exactly
these, and a test compares the two.
"""

from __future__ import annotations

from typing import Final

#: Method -> permissions.
PERMISSIONS: Final[dict[str, tuple[str, ...]]] = {
    "disks.aggregatedList": ("compute.disks.list",),
    "disks.delete": ("compute.disks.delete",),
    "firewalls.delete": ("compute.firewalls.delete", "compute.networks.updatePolicy"),
    "firewalls.get": ("compute.firewalls.get",),
    "firewalls.insert": ("compute.firewalls.create", "compute.networks.updatePolicy"),
    "firewalls.list": ("compute.firewalls.list",),
    "firewalls.patch": ("compute.firewalls.update", "compute.networks.updatePolicy"),
    "globalOperations.wait": ("compute.globalOperations.get",),
    "instances.aggregatedList": ("compute.instances.list",),
    "instances.delete": ("compute.instances.delete",),
    "instances.get": ("compute.instances.get",),
    "instances.getSerialPortOutput": ("compute.instances.getSerialPortOutput",),
    "instances.insert": (
        "compute.instances.create",
        "compute.disks.create",
        "compute.disks.setLabels",
        "compute.instances.setLabels",
        "compute.instances.setMetadata",
        "compute.instances.setTags",
        "compute.subnetworks.use",
    ),
    "instances.setLabels": ("compute.instances.setLabels",),
    "machineTypes.aggregatedList": ("compute.machineTypes.list",),
    "projects.get": ("compute.projects.get",),
    "regions.list": ("compute.regions.list",),
    "zoneOperations.wait": ("compute.zoneOperations.get",),
}

#: Those that the project of the network has to grant.
NETWORK_PERMISSIONS: Final = frozenset(
    {
        "compute.firewalls.create",
        "compute.firewalls.delete",
        "compute.firewalls.get",
        "compute.firewalls.list",
        "compute.firewalls.update",
        "compute.globalOperations.get",
        "compute.networks.updatePolicy",
        "compute.subnetworks.use",
        "compute.subnetworks.useExternalIp",
    }
)
#: Of `instances.insert` for instances with an external address.
EXTERNAL_ADDRESS: Final = "compute.subnetworks.useExternalIp"
#: Of `instances.insert` for instances with a service account; the other is granted on that account.
SERVICE_ACCOUNT: Final = "compute.instances.setServiceAccount"
ACT_AS: Final = "iam.serviceAccounts.actAs"


def needed(*, with_address: bool, with_service_account: bool) -> frozenset[str]:
    """The permissions that a project has to grant."""
    found = {permission for group in PERMISSIONS.values() for permission in group}
    if with_address:
        found.add(EXTERNAL_ADDRESS)
    if with_service_account:
        found.add(SERVICE_ACCOUNT)
    return frozenset(found)
