"""Options of Google Cloud: project, credentials, images, networks; labels and names of fleets."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.model.location import parse_region_tag
from skyplane_orchestration.provision.fleet.machines import FleetTags
from skyplane_orchestration.provision.fleet.options import CloudOptions, check_form, region_in
from skyplane_orchestration.provision.fleet.tags import TagAlphabet

#: Public images by the architecture of a machine type. Their guest agent runs the metadata
#: `startup-script` as root, and they have Python 3.13.
#: Container-Optimized OS drops packets to all ports but 22, and has no package manager.
DEBIAN: Final = {
    "arm64": "projects/debian-cloud/global/images/family/debian-13-arm64",
    "x86_64": "projects/debian-cloud/global/images/family/debian-13",
}
#: Size of Debian's image; a disk cannot be smaller.
LEAST_DISK_GIB: Final = 10

#: Objects and listings of Cloud Storage; nothing else of the service account's permissions.
STORAGE_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_write"
#: What pulls from Artifact Registry need (https://cloud.google.com/artifact-registry/docs/integrate-compute).
REGISTRY_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_only"

_PROJECT: Final = re.compile(r"(?:[a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]\Z")
_NAME: Final = r"[a-z](?:[a-z0-9-]{0,61}[a-z0-9])?"
_IMAGE: Final = re.compile(
    r"projects/(?P<project>[a-z0-9.:-]+)/global/images/(?:family/)?" + _NAME + r"\Z"
)
_NETWORK: Final = re.compile(
    rf"(?:projects/(?P<project>[a-z0-9.:-]+)/global/networks/)?(?P<name>{_NAME})\Z"
)
_SUBNETWORK: Final = re.compile(
    rf"(?:projects/[a-z0-9.:-]+/regions/[a-z0-9-]+/subnetworks/)?{_NAME}\Z"
)
_EMAIL: Final = re.compile(r"[a-z0-9-]+@[a-z0-9.-]+\Z")
_SCOPE: Final = re.compile(r"https://www\.googleapis\.com/auth/[a-z._-]+\Z")
_KMS_KEY: Final = re.compile(
    r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+(?:/cryptoKeyVersions/\d+)?\Z"
)

#: Values have lower-case letters, digits and hyphens; `_` begins an escape. A value of more than 63
#: characters is refused.
ALPHABET: Final = TagAlphabet(
    cloud="Google Cloud",
    kind="label",
    prefix="skyplane_",
    hyphen="_",
    most_characters=63,
    most_user_tags=48,
    user_names=re.compile(r"(?!skyplane_)[a-z][a-z0-9_-]{0,62}\Z"),
    user_values=re.compile(r"[a-z0-9_-]{0,63}\Z"),
    user_rule="63 lower-case letters, digits, _ and -, and a letter first in names",
    refused=re.compile(r"[^a-z0-9-]"),
    escape="_",
)
#: Of descriptions: firewall rules have no labels, so the same tags stand there, as JSON.
_REGION_TAG: Final = ALPHABET.name("region")
#: Names have at most 63 lower-case letters, digits and hyphens.
_NAME_PREFIX: Final = "skyplane-"
#: 80 bits of a fleet's key. The whole key stands in labels and descriptions, which are compared.
_KEY_CHARACTERS: Final = 20


@dataclass(frozen=True, slots=True)
class GcpOptions(CloudOptions):
    """How instances are launched on Google Cloud.

    Args:
        project: id of the project that has the instances.
        zones: region tag -> zones, which are tried in turn. Other regions use all their zones.
        images: architecture (`arm64`, `x86_64`) -> image or family.
        network: name of the VPC network, or `projects/PROJECT/global/networks/NAME` of a shared
            one, whose project then has the firewall rules.
        subnetworks: region tag -> subnetwork. Networks in auto mode have one in each region.
        service_account: email of the service account of sources and sinks; relays have none.
        scopes: OAuth scopes of the service account's tokens.
        user_labels: more labels of instances and disks. Firewall rules have no labels.
        kms_key: Cloud KMS key of the disks; empty for Google's own.
        disk_type: of the boot disk; empty for the one that fits the machine type.

    Raises ConfigurationInvalid for an invalid value.
    """

    example_region = "gcp:europe-west1"
    identity_setting = "service_account"
    disks_gib = (LEAST_DISK_GIB, 65536)

    project: str
    zones: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=lambda: dict(DEBIAN))
    network: str = "default"
    subnetworks: Mapping[str, str] = field(default_factory=dict)
    service_account: str = ""
    scopes: tuple[str, ...] = (STORAGE_SCOPE,)
    user_labels: Mapping[str, str] = field(default_factory=dict)
    kms_key: str = ""
    disk_type: str = ""
    disk_gib: int = field(default=LEAST_DISK_GIB, kw_only=True)

    def __post_init__(self) -> None:
        CloudOptions.__post_init__(self)
        check_form(self.named("project"), self.project, _PROJECT, "my-project-123")
        self.check_by_region("zones", re.compile(r"[a-z]+-[a-z]+[0-9]+-[a-z]\Z"), "europe-west1-b")
        for region, zones in self.zones.items():
            for zone in zones:
                if region_of_zone(zone) != region:
                    raise ConfigurationInvalid(f"zones of gcp for {region} has {zone} of another")
        check_form(self.named("network"), self.network, _NETWORK, "default")
        self.check_by_region("subnetworks", _SUBNETWORK, "gateways")
        self.check_architectures("images", DEBIAN)
        for architecture, image in self.images.items():
            check_form(f"images of gcp for {architecture}", image, _IMAGE, DEBIAN[architecture])
        account = "gateways@my-project-123.iam.gserviceaccount.com"
        self.check_form("service_account", _EMAIL, account)
        self.check_form("registry_identity", _EMAIL, account)
        for scope in self.scopes:
            check_form(self.named("scopes"), scope, _SCOPE, STORAGE_SCOPE)
        key = "projects/P/locations/L/keyRings/R/cryptoKeys/K"
        self.check_form("kms_key", _KMS_KEY, key)
        ALPHABET.check_user_tags(self.named("user_labels"), self.user_labels)

    @property
    def firewall_project(self) -> str:
        """The project of the network, which has its firewall rules."""
        found = _NETWORK.match(self.network)
        return (found and found["project"]) or self.project

    @property
    def network_path(self) -> str:
        found = _NETWORK.match(self.network)
        name = found["name"] if found else self.network
        return f"projects/{self.firewall_project}/global/networks/{name}"

    def subnetwork_path(self, region: str) -> str:
        """The subnetwork of a region tag; empty for the one of a network in auto mode."""
        given = self.subnetworks.get(region, "")
        if not given or "/" in given:
            return given
        return f"projects/{self.firewall_project}/regions/{region_name(region)}/subnetworks/{given}"


def region_name(region: str) -> str:
    """Google's own name of a region tag. Raises ConfigurationInvalid for another cloud's."""
    return region_in(region, "gcp", "Google Cloud")


def region_tag(name: str) -> str:
    return f"gcp:{name}"


def region_of_zone(zone: str) -> str:
    """The region tag of a zone: that of `us-central1-a` is `gcp:us-central1`."""
    return region_tag(zone.rpartition("-")[0])


def description(tags: FleetTags, region: str) -> str:
    """The description of a firewall rule for a region tag."""
    texts = {ALPHABET.name(short): text for short, text in tags.to_texts().items()}
    return json.dumps({**texts, _REGION_TAG: region}, separators=(",", ":"))


def described(text: str) -> tuple[FleetTags, str] | None:
    """What `description` wrote: tags and region; None if the rule is none of ours."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    texts = {name: value for name, value in found.items() if isinstance(value, str)}
    region = texts.get(_REGION_TAG)
    prefix = ALPHABET.prefix
    fleet = FleetTags.from_texts(
        {name.removeprefix(prefix): text for name, text in texts.items() if name.startswith(prefix)}
    )
    return (fleet, region) if fleet is not None and region else None


def filter_of(short: str, text: str) -> str:
    """The filter of a list call for what has this text in a label."""
    return f'labels.{ALPHABET.name(short)}="{ALPHABET.escaped(text)}"'


def fleet_prefix(fleet_key: str) -> str:
    """The begin of all names of a fleet; of all fleets for an empty key."""
    return f"{_NAME_PREFIX}{fleet_key[:_KEY_CHARACTERS]}-" if fleet_key else _NAME_PREFIX


def network_tag(fleet_key: str, region: str) -> str:
    """The network tag of a fleet's instances in a region."""
    return fleet_prefix(fleet_key) + parse_region_tag(region).name


def instance_name(fleet_key: str, instance: str, number: int) -> str:
    """The name of an instance: two of one zone cannot share it.

    Args:
        instance: its name in the fleet, `gcp:us-central1/0`.
        number: above 0 while names with smaller ones belong to instances that have stopped.
    """
    part = re.sub(r"[^a-z0-9]+", "-", instance.removeprefix("gcp:"))
    return f"{fleet_prefix(fleet_key)}{part}-{number}"
