"""Options of Azure: subscription, credentials, images, networks; tags and names of fleets.

Names are made of the fleet key, so every worker makes the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

from skyplane_gateway.common.schema import check
from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import parse_region_tag
from skyplane_orchestration.provision.fleet.machines import Instance, LaunchRequest
from skyplane_orchestration.provision.fleet.options import (
    check_common,
    check_form,
    check_regions,
    cloud_section,
    region_in,
)
from skyplane_orchestration.provision.fleet.tags import TagAlphabet

#: Images of the marketplace (publisher:offer:sku:version) by the architecture of a size. Their
#: cloud-init runs the user data, and their packages have a container engine and Python 3.12.
UBUNTU: Final = {
    "arm64": "Canonical:ubuntu-24_04-lts:server-arm64:latest",
    "x86_64": "Canonical:ubuntu-24_04-lts:server:latest",
}
#: Size of Ubuntu's image; a disk cannot be smaller.
LEAST_DISK_GIB: Final = 30
_MOST_DISK_GIB: Final = 4095

_GUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
_URN: Final = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+:[\w.-]+\Z")
_IN_GROUP: Final = r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/"
_IMAGE_ID: Final = re.compile(
    _IN_GROUP + r"Microsoft\.Compute/(?:images/[^/]+|galleries/[^/]+/images/[^/]+"
    r"(?:/versions/[^/]+)?)\Z",
    re.IGNORECASE,
)
_SUBNET_ID: Final = re.compile(
    _IN_GROUP + r"Microsoft\.Network/virtualNetworks/[^/]+/subnets/[^/]+\Z", re.IGNORECASE
)
_IDENTITY_ID: Final = re.compile(
    _IN_GROUP + r"Microsoft\.ManagedIdentity/userAssignedIdentities/[^/]+\Z", re.IGNORECASE
)
_ROLE_ID: Final = re.compile(
    r"(?:/subscriptions/[^/]+)?/providers/Microsoft\.Authorization/roleDefinitions/[0-9a-f-]{36}\Z",
    re.IGNORECASE,
)
_ENCRYPTION_ID: Final = re.compile(
    _IN_GROUP + r"Microsoft\.Compute/diskEncryptionSets/[^/]+\Z", re.IGNORECASE
)
_EXAMPLE: Final = "/subscriptions/S/resourceGroups/G/providers/"

#: How regions are written, for messages.
_REGION: Final = "azure:westeurope"

#: A resource as Azure writes it in JSON.
Resource = dict[str, Any]

#: Azure takes any text of up to 256 characters as a value, so nothing is escaped. Names are as
#: virtual machines allow them; other resources allow longer ones.
ALPHABET: Final = TagAlphabet(
    cloud="Azure",
    kind="tag",
    prefix="skyplane:",
    hyphen="-",
    most_characters=256,
    most_user_tags=40,
    user_names=re.compile(
        r"(?!skyplane:|azure|microsoft|windows)[^<>%&\\?/]{1,512}\Z", re.IGNORECASE
    ),
    user_values=re.compile(r".{0,256}\Z", re.DOTALL),
    user_rule="512 characters but < > % & \\ ? / in names, which do not begin with azure, microsoft"
    " or windows, and 256 in values",
)
#: The only subnet of a fleet's own virtual network.
SUBNET: Final = "gateways"


@dataclass(frozen=True, slots=True)
class AzureOptions:
    """How instances are launched on Azure.

    Args:
        subscription_id: the subscription that has the instances.
        credential_ref: where credentials come from (`env:PREFIX`, `airflow:CONN_ID`), as in
            `Location`; a service principal. Empty for this process's own identity.
        endpoint_url: address of another Resource Manager, of a sovereign cloud or for tests.
        regions: tags of the regions that are searched for fleets; None for all of the
            subscription.
        zones: region tag -> zones (`1`), which are tried in turn. Other regions use all zones
            that the size has there, and none in regions without zones.
        images: architecture (`arm64`, `x86_64`) -> marketplace image
            (publisher:offer:sku:version), or resource id of an own one.
        subnets: region tag -> resource id of a subnet. Other regions get a virtual network of
            the fleet.
        public_address: instances get a public address. Without one, gateways and orchestrator use
            the private ones, and must reach each other by them.
        managed_identity: resource id of the user-assigned identity of sources and sinks; relays
            have none.
        self_delete_role: resource id of a role that allows
            `Microsoft.Compute/virtualMachines/delete`. Every machine gets it on itself alone, and
            deletes itself at its end. Empty: machines power off, and are billed until a sweep.
        spot_relays: relays are spot instances.
        user_tags: more tags of every resource.
        disk_encryption_set: resource id for the disks; empty for keys of the platform.
        disk_gib: size of the disk of the operating system.

    Raises ConfigurationInvalid for an invalid value.
    """

    subscription_id: str
    credential_ref: str = ""
    endpoint_url: str = ""
    regions: tuple[str, ...] | None = None
    zones: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=lambda: dict(UBUNTU))
    subnets: Mapping[str, str] = field(default_factory=dict)
    public_address: bool = True
    managed_identity: str = ""
    self_delete_role: str = ""
    spot_relays: bool = False
    user_tags: Mapping[str, str] = field(default_factory=dict)
    disk_encryption_set: str = ""
    disk_gib: int = LEAST_DISK_GIB

    def __post_init__(self) -> None:
        check(self)
        guid = "01234567-89ab-cdef-0123-456789abcdef"
        check_form("subscription_id of azure", self.subscription_id, _GUID, guid)
        check_common("azure", self, _REGION, LEAST_DISK_GIB, _MOST_DISK_GIB)
        check_regions("azure", "zones", self.zones, _REGION)
        for region, zones in self.zones.items():
            if not zones or not all(zone.isascii() and zone.isdecimal() for zone in zones):
                raise ConfigurationInvalid(
                    f"zones of azure for {region} must be numbers such as '1', not {list(zones)}"
                )
        self._check_images()
        check_regions("azure", "subnets", self.subnets, _REGION)
        for region, subnet in self.subnets.items():
            example = f"{_EXAMPLE}Microsoft.Network/virtualNetworks/N/subnets/gateways"
            check_form(f"subnets of azure for {region}", subnet, _SUBNET_ID, example)
        if self.managed_identity:
            example = f"{_EXAMPLE}Microsoft.ManagedIdentity/userAssignedIdentities/gateways"
            check_form("managed_identity of azure", self.managed_identity, _IDENTITY_ID, example)
        if self.self_delete_role:
            example = f"/subscriptions/S/providers/Microsoft.Authorization/roleDefinitions/{guid}"
            check_form("self_delete_role of azure", self.self_delete_role, _ROLE_ID, example)
        if self.disk_encryption_set:
            example = f"{_EXAMPLE}Microsoft.Compute/diskEncryptionSets/E"
            check_form(
                "disk_encryption_set of azure", self.disk_encryption_set, _ENCRYPTION_ID, example
            )
        ALPHABET.check_user_tags("user_tags of azure", self.user_tags)

    @classmethod
    def from_settings(cls, settings: Mapping[str, Any]) -> AzureOptions:
        """Options from a JSON object. Raises ConfigurationInvalid."""
        return cloud_section(cls, settings, "the setting azure")

    def image_reference(self, architecture: str) -> dict[str, str]:
        """The image for an architecture, as Azure writes it. Raises ConfigurationInvalid."""
        image = self.images.get(architecture)
        if image is None:
            raise ConfigurationInvalid(
                f"images of azure has no image for {architecture}, which the instance type needs"
            )
        if image.startswith("/"):
            return {"id": image}
        names = ("publisher", "offer", "sku", "version")
        return dict(zip(names, image.split(":"), strict=True))

    def _check_images(self) -> None:
        for architecture, image in self.images.items():
            if architecture not in UBUNTU:
                raise ConfigurationInvalid(
                    f"images of azure has no use for {architecture}; it can have"
                    f" {' and '.join(UBUNTU)}"
                )
            form = _IMAGE_ID if image.startswith("/") else _URN
            check_form(f"images of azure for {architecture}", image, form, UBUNTU[architecture])


def region_name(region: str) -> str:
    """Azure's own name of a region tag. Raises ConfigurationInvalid for another cloud's."""
    return region_in(region, "azure", "Azure")


def region_tag(location: str) -> str:
    """The region tag of a location, which Azure also writes as `East US`."""
    return f"azure:{location.replace(' ', '').lower()}"


def filter_of_deployment(deployment: str) -> str:
    """The filter of a list of resource groups for the fleets of a deployment."""
    quoted = deployment.replace("'", "''")
    return f"tagName eq '{ALPHABET.name('deployment')}' and tagValue eq '{quoted}'"


def properties_of(resource: Resource) -> Resource:
    return cast("Resource", resource.get("properties") or {})


def group_name(fleet_key: str) -> str:
    return f"skyplane-{fleet_key}"


def firewall_name(region: str) -> str:
    """The network security group of a region."""
    return f"firewall-{parse_region_tag(region).name}"


def network_name(region: str) -> str:
    """The virtual network of a region."""
    return f"network-{parse_region_tag(region).name}"


def machine_name(request: LaunchRequest, number: int, zone: str) -> str:
    """The virtual machine of a launch number in a zone, which is empty for none."""
    parts = (request.tags.fleet_key, request.instance, str(number), zone)
    return f"gw-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:24]}"


def interface_name(machine: str) -> str:
    return f"{machine}-nic"


def address_name(machine: str) -> str:
    """The public address."""
    return f"{machine}-ip"


def disk_name(machine: str) -> str:
    return f"{machine}-disk"


def cloud_id(machine: str, unique_id: str) -> str:
    """Unique for each machine that ever was: Azure allows a name again once it is free."""
    return f"{machine}/{unique_id}"


def machine_of(instance: Instance) -> str:
    """The name of an instance's virtual machine."""
    return instance.cloud_id.partition("/")[0]
