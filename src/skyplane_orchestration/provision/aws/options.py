"""Options of AWS: credentials, images, networks, what instances get, and the tags of fleets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from skyplane_gateway.common.schema import check
from skyplane_orchestration.provision.fleet.options import (
    check_architectures,
    check_by_region,
    check_common,
    region_in,
)
from skyplane_orchestration.provision.fleet.tags import INSTANCE, TagAlphabet

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, TagTypeDef

    from skyplane_orchestration.provision.fleet.machines import FleetTags

#: SSM public parameters of Debian 13, which has Python 3.13 and lets nobody in without a key, by
#: the architecture of an instance type (https://wiki.debian.org/Cloud/AmazonEC2Image/Trixie).
DEBIAN: Final = {
    "arm64": "/aws/service/debian/release/13/latest/arm64",
    "x86_64": "/aws/service/debian/release/13/latest/amd64",
}
#: Size of Debian's snapshot; a disk cannot be smaller.
LEAST_DISK_GIB: Final = 8
_MOST_DISK_GIB: Final = 16384

_AMI: Final = re.compile(r"ami-[0-9a-f]{8,17}\Z")
_SUBNET: Final = re.compile(r"subnet-[0-9a-f]{8,17}\Z")

#: How regions are written, for messages.
_REGION: Final = "aws:eu-west-3"

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
class AwsOptions:
    """How instances are launched on AWS.

    Args:
        credential_ref: where credentials come from (`profile:NAME`, `env:PREFIX`,
            `airflow:CONN_ID`), as in `Location`; empty for this process's own.
        endpoint_url: address of another EC2 API, for tests; empty for AWS.
        regions: tags of the regions that are searched for fleets; None for all that the account
            has enabled.
        images: region tag -> own AMI, in place of `image_parameters`.
        image_parameters: architecture (`arm64`, `x86_64`) -> SSM parameter with the id of an AMI.
        subnets: region tag -> subnets of one VPC, which are tried in turn. Other regions use the
            default VPC.
        public_address: instances get a public address. Without one, gateways and orchestrator use
            the private ones, and must reach each other by them.
        instance_profile: name or ARN of the profile of sources and sinks; relays have none.
        spot_relays: relays are spot instances.
        user_tags: more tags of every resource.
        kms_key_id: KMS key of the disks; empty for the account's own for EBS.
        disk_gib: size of the root disk, gp3 and encrypted.

    Raises ConfigurationInvalid for an invalid value.
    """

    credential_ref: str = ""
    endpoint_url: str = ""
    regions: tuple[str, ...] | None = None
    images: Mapping[str, str] = field(default_factory=dict)
    image_parameters: Mapping[str, str] = field(default_factory=lambda: dict(DEBIAN))
    subnets: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    public_address: bool = True
    instance_profile: str = ""
    spot_relays: bool = False
    user_tags: Mapping[str, str] = field(default_factory=dict)
    kms_key_id: str = ""
    disk_gib: int = LEAST_DISK_GIB

    def __post_init__(self) -> None:
        check(self)
        check_common("aws", self, _REGION, LEAST_DISK_GIB, _MOST_DISK_GIB)
        check_by_region("aws", "images", self.images, _REGION, _AMI, "ami-0123456789abcdef0")
        subnet = "subnet-0123456789abcdef0"
        check_by_region("aws", "subnets", self.subnets, _REGION, _SUBNET, subnet)
        check_architectures("image_parameters of aws", self.image_parameters, DEBIAN)
        ALPHABET.check_user_tags("user_tags of aws", self.user_tags)


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
