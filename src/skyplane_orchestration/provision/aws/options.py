"""Options of AWS: credentials, images, networks, what instances get, and the tags of fleets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.provision.fleet.machines import FleetTags
from skyplane_orchestration.provision.fleet.options import CloudOptions, region_in
from skyplane_orchestration.provision.fleet.tags import INSTANCE, TagAlphabet

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, TagTypeDef

#: SSM public parameters of Debian 13, which has Python 3.13 and lets nobody in without a key, by
#: the architecture of an instance type (https://wiki.debian.org/Cloud/AmazonEC2Image/Trixie).
DEBIAN: Final = {
    "arm64": "/aws/service/debian/release/13/latest/arm64",
    "x86_64": "/aws/service/debian/release/13/latest/amd64",
}
#: Size of Debian's snapshot; a disk cannot be smaller.
LEAST_DISK_GIB: Final = 8

_AMI: Final = re.compile(r"ami-[0-9a-f]{8,17}\Z")
_SUBNET: Final = re.compile(r"subnet-[0-9a-f]{8,17}\Z")

#: Values have letters, digits, spaces and `_.:/+-@` only; `=` begins an escape. So no value holds a
#: wildcard of a filter, and none begins with `aws:`, which AWS keeps for itself.
ALPHABET: Final = TagAlphabet(
    cloud="AWS",
    user_names=re.compile(r"(?!aws:|skyplane:)[\w\s.:/=+\-@]{1,128}\Z"),
    user_values=re.compile(r"(?!aws:)[\w\s.:/=+\-@]{0,256}\Z"),
    user_rule="128 letters, digits, spaces and _.:/=+-@ in names and 256 in values, without a"
    " leading 'aws:'",
    refused=re.compile(r"[^A-Za-z0-9 _.:/+\-@]"),
    escape="=",
    reserved="aws:",
)


@dataclass(frozen=True, slots=True)
class AwsOptions(CloudOptions):
    """How instances are launched on AWS. Disks are gp3 and encrypted.

    Args:
        images: region tag -> own AMI, in place of `image_parameters`.
        image_parameters: architecture (`arm64`, `x86_64`) -> SSM parameter with the id of an AMI.
        subnets: region tag -> subnets of one VPC, which are tried in turn. Other regions use the
            default VPC.
        instance_profile: name or ARN of the profile of sources and sinks; relays have none.
        user_tags: more tags of every resource.
        kms_key_id: KMS key of the disks; empty for the account's own for EBS.

    Raises ConfigurationInvalid for an invalid value.
    """

    example_region = "aws:eu-west-3"
    identity_setting = "instance_profile"
    disks_gib = (LEAST_DISK_GIB, 16384)

    images: Mapping[str, str] = field(default_factory=dict)
    image_parameters: Mapping[str, str] = field(default_factory=lambda: dict(DEBIAN))
    subnets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    instance_profile: str = ""
    user_tags: Mapping[str, str] = field(default_factory=dict)
    kms_key_id: str = ""
    disk_gib: int = field(default=LEAST_DISK_GIB, kw_only=True)

    def __post_init__(self) -> None:
        CloudOptions.__post_init__(self)
        self.check_by_region("images", _AMI, "ami-0123456789abcdef0")
        self.check_by_region("subnets", _SUBNET, "subnet-0123456789abcdef0")
        self.check_architectures("image_parameters", DEBIAN)
        ALPHABET.check_user_tags(self.named("user_tags"), self.user_tags)


def region_name(region: str) -> str:
    """AWS's own name of a region tag. Raises ConfigurationInvalid for another cloud's."""
    return region_in(region, "aws", "AWS")


def region_tag(name: str) -> str:
    return f"aws:{name}"


def for_fleet(tags: FleetTags, user_tags: Mapping[str, str], **more: str) -> list[TagTypeDef]:
    """See `TagAlphabet.written`; the web console shows `Name`."""
    shown = f"skyplane {tags.fleet_key[:8]} {ALPHABET.escaped(more.get(INSTANCE, ''))}".rstrip()
    named = ALPHABET.written(tags, {"Name": shown, **user_tags}, **more)
    return [{"Key": name, "Value": value} for name, value in named.items()]


def as_mapping(tags: Iterable[Any]) -> dict[str, str]:
    """Name -> value of tags as AWS lists them."""
    return {tag["Key"]: tag.get("Value", "") for tag in tags}


def filter_of(short: str, text: str) -> list[FilterTypeDef]:
    """The filter of a Describe call for what has this text in a tag."""
    return [{"Name": f"tag:{ALPHABET.name(short)}", "Values": [ALPHABET.escaped(text)]}]
