"""Options of Azure: subscription, credentials, images, networks; tags and names of fleets.

Names are made of the fleet key, so every worker makes the same.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final, cast

from skyplane_orchestration.model.location import parse_region_tag
from skyplane_orchestration.provision.fleet.machines import FleetTags, Instance, LaunchRequest
from skyplane_orchestration.provision.fleet.options import CloudOptions, check_form, region_in
from skyplane_orchestration.provision.fleet.tags import TagAlphabet

#: Images of the marketplace (publisher:offer:sku:version) by the architecture of a size. Their
#: cloud-init runs the user data, and they have Python 3.13.
DEBIAN: Final = {
    "arm64": "Debian:debian-13:13-arm64:latest",
    "x86_64": "Debian:debian-13:13-gen2:latest",
}
#: Size of Debian's image; a disk cannot be smaller.
LEAST_DISK_GIB: Final = 30

_GUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z", re.IGNORECASE)
_URN: Final = re.compile(r"[\w.-]+:[\w.-]+:[\w.-]+:[\w.-]+\Z")
_IN_GROUP: Final = r"/subscriptions/[^/]+/resourceGroups/[^/]+/providers/"
_IMAGE_ID: Final = re.compile(
    _IN_GROUP + r"Microsoft\.Compute/(?:images/[^/]+|galleries/[^/]+/images/[^/]+"
    r"(?:/versions/[^/]+)?)\Z",
    re.IGNORECASE,
)
_ROLE_ID: Final = re.compile(
    r"(?:/subscriptions/[^/]+)?/providers/Microsoft\.Authorization/roleDefinitions/[0-9a-f-]{36}\Z",
    re.IGNORECASE,
)
_EXAMPLE_GUID: Final = "01234567-89ab-cdef-0123-456789abcdef"
#: Types of resources that options name by their ids.
_SUBNET: Final = "Microsoft.Network/virtualNetworks/NAME/subnets"
_IDENTITY: Final = "Microsoft.ManagedIdentity/userAssignedIdentities"
_ENCRYPTION: Final = "Microsoft.Compute/diskEncryptionSets"

#: A resource as Azure writes it in JSON.
Resource = dict[str, Any]

#: Azure takes any text of up to 256 characters as a value, so nothing is escaped. Names are as
#: virtual machines allow them; other resources allow longer ones.
ALPHABET: Final = TagAlphabet(
    cloud="Azure",
    user_names=re.compile(
        r"(?!skyplane:|azure|microsoft|windows)[^<>%&\\?/]{1,512}\Z", re.IGNORECASE
    ),
    user_values=re.compile(r".{0,256}\Z", re.DOTALL),
    user_rule="512 characters but < > % & \\ ? / in names, which do not begin with azure, microsoft"
    " or windows, and 256 in values",
)
#: The only subnet of a fleet's own virtual network.
SUBNET: Final = "gateways"
#: Behind the name of a machine, in those of its interface and of its public address.
NIC, IP = "-nic", "-ip"


class Kind(StrEnum):
    """Types of resources."""

    MACHINE = "Microsoft.Compute/virtualMachines"
    DISK = "Microsoft.Compute/disks"
    FIREWALL = "Microsoft.Network/networkSecurityGroups"
    NETWORK = "Microsoft.Network/virtualNetworks"
    INTERFACE = "Microsoft.Network/networkInterfaces"
    ADDRESS = "Microsoft.Network/publicIPAddresses"


@dataclass(frozen=True, slots=True)
class AzureOptions(CloudOptions):
    """How instances are launched on Azure.

    Args:
        subscription_id: the subscription that has the instances.
        zones: region tag -> zones (`1`), which are tried in turn. Other regions use all zones
            that the size has there, and none in regions without zones.
        images: architecture (`arm64`, `x86_64`) -> marketplace image
            (publisher:offer:sku:version), or resource id of an own one.
        subnets: region tag -> resource id of a subnet. Other regions get a virtual network of
            the fleet.
        managed_identity: resource id of the user-assigned identity of sources and sinks; relays
            have none.
        self_delete_role: resource id of a role that allows
            `Microsoft.Compute/virtualMachines/delete`. Every machine gets it on itself alone, and
            deletes itself at its end. Empty: machines power off, and are billed until a sweep.
        user_tags: more tags of every resource.
        disk_encryption_set: resource id for the disks; empty for keys of the platform.

    Raises ConfigurationInvalid for an invalid value.
    """

    example_region = "azure:westeurope"
    identity_setting = "managed_identity"
    disks_gib = (LEAST_DISK_GIB, 4095)

    subscription_id: str
    zones: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=lambda: dict(DEBIAN))
    subnets: Mapping[str, str] = field(default_factory=dict)
    managed_identity: str = ""
    self_delete_role: str = ""
    user_tags: Mapping[str, str] = field(default_factory=dict)
    disk_encryption_set: str = ""
    disk_gib: int = field(default=LEAST_DISK_GIB, kw_only=True)

    def __post_init__(self) -> None:
        CloudOptions.__post_init__(self)
        check_form(self.named("subscription_id"), self.subscription_id, _GUID, _EXAMPLE_GUID)
        self.check_by_region("zones", re.compile(r"[0-9]+\Z"), "1")
        self.check_architectures("images", DEBIAN)
        for architecture, image in self.images.items():
            form = _IMAGE_ID if image.startswith("/") else _URN
            check_form(f"images of azure for {architecture}", image, form, DEBIAN[architecture])
        self.check_by_region("subnets", *_id_form(_SUBNET))
        role = f"/subscriptions/S/providers/Microsoft.Authorization/roleDefinitions/{_EXAMPLE_GUID}"
        self.check_form("managed_identity", *_id_form(_IDENTITY))
        self.check_form("registry_identity", *_id_form(_IDENTITY))
        self.check_form("self_delete_role", _ROLE_ID, role)
        self.check_form("disk_encryption_set", *_id_form(_ENCRYPTION))
        ALPHABET.check_user_tags(self.named("user_tags"), self.user_tags)

    def body(
        self,
        fleet: FleetTags,
        region: str,
        properties: Mapping[str, Any] | None = None,
        **tags: str,
    ) -> dict[str, Any]:
        """The JSON of a resource of a fleet; `tags` are those that only this one has."""
        written = ALPHABET.written(fleet, self.user_tags, **tags)
        body: dict[str, Any] = {"location": region_name(region), "tags": written}
        return body if properties is None else {**body, "properties": properties}

    def image_reference(self, architecture: str, instance_type: str) -> dict[str, str]:
        """The image for an instance type, as Azure writes it. Raises ConfigurationInvalid."""
        image = self.image_for("images", architecture, instance_type)
        if image.startswith("/"):
            return {"id": image}
        names = ("publisher", "offer", "sku", "version")
        return dict(zip(names, image.split(":"), strict=True))


def _id_form(kind: str) -> tuple[re.Pattern[str], str]:
    """The form of ids of a type, and an example."""
    form = re.escape(kind).replace("NAME", "[^/]+")
    return (
        re.compile(rf"{_IN_GROUP}{form}/[^/]+\Z", re.IGNORECASE),
        f"/subscriptions/S/resourceGroups/G/providers/{kind}/NAME",
    )


def region_name(region: str) -> str:
    """Azure's own name of a region tag. Raises ConfigurationInvalid for another cloud's."""
    return region_in(region, "azure", "Azure")


def region_tag(location: str) -> str:
    """The region tag of a location, which Azure also writes as `East US`."""
    return f"azure:{location.replace(' ', '').lower()}"


def properties_of(resource: Resource) -> Resource:
    return cast("Resource", resource.get("properties") or {})


def group_name(fleet_key: str) -> str:
    return f"skyplane-{fleet_key}"


def path_of(group: str, kind: str, name: str = "") -> str:
    """Of a resource in a group, or of all of its type, behind the path of the subscription."""
    return f"resourceGroups/{group}/providers/{kind}/{name}".rstrip("/")


def firewall_path(fleet_key: str, region: str) -> str:
    """The network security group of a region."""
    name = f"firewall-{parse_region_tag(region).name}"
    return path_of(group_name(fleet_key), Kind.FIREWALL, name)


def network_path(fleet_key: str, region: str) -> str:
    """The virtual network of a region."""
    name = f"network-{parse_region_tag(region).name}"
    return path_of(group_name(fleet_key), Kind.NETWORK, name)


def machine_name(request: LaunchRequest, number: int, zone: str) -> str:
    """The virtual machine of a launch number in a zone, which is empty for none."""
    parts = (request.tags.fleet_key, request.instance, str(number), zone)
    return f"gw-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()[:24]}"


def machine_of(instance: Instance) -> str:
    """The name of an instance's virtual machine."""
    return instance.cloud_id.partition("/")[0]
