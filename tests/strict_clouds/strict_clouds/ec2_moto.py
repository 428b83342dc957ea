"""What the parts of the strict EC2 share: conditions, visibility, and moto's own state."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.ec2.models import ec2_backends
from moto.ec2.models.instance_types import INSTANCE_TYPES

from strict_clouds.aws_wire import Answer, AwsError, Request

ON_DEMAND_QUOTA: Final = "L-1216C47A"
SPOT_QUOTA: Final = "L-34B43A08"

#: Public parameters of Debian's images, which moto lacks -> the architecture.
DEBIAN_PARAMETERS: Final = {
    f"/aws/service/debian/release/{release}/latest/{name}": architecture
    for release in (12, 13)
    for name, architecture in (("amd64", "x86_64"), ("arm64", "arm64"))
}

# Thousands of images, which moto would make again for each test.
os.environ.setdefault("MOTO_EC2_LOAD_DEFAULT_AMIS", "false")

#: Gets moto's answer to the request.
Forward = Callable[[], Answer]
Rule = Callable[[Request, Forward], Answer]


@dataclass
class Conditions:
    """How the fake behaves; may be changed at any time.

    Args:
        hidden_for: calls for which a new instance or group is unknown.
        pending_for: descriptions for which a new instance is pending, without public address.
        shutting_down_for: descriptions for which a terminated instance still shuts down.
        ending_s: seconds for which it does so at least.
        vcpu_quota, spot_quota: vCPUs of a region.
        quotas: (region, code) -> another value.
        told_quotas: what Service Quotas answers where that is not what holds for launches.
        full: zones (`eu-west-3a`), or types of a zone (`eu-west-3a/c7gn.large`), without capacity.
        not_offered: types that a zone never has (`eu-west-3a/c7gn.large`); dry runs tell it too.
        denied: actions of IAM that are refused (`ec2:RunInstances`).
        forbidden: actions that a policy of the organisation denies (`ec2:RunInstances`).
        denied_regions: regions in which such a policy denies every action of EC2.
        silent_regions: regions that answer nothing but that they are not available.
        opt_in: region -> status in DescribeRegions.
        default_disk_key: of EBS; that of AWS, or the ARN of the account's own.
        old_types: instance types whose console has no latest output.
    """

    hidden_for: int = 0
    pending_for: int = 1
    shutting_down_for: int = 1
    ending_s: float = 0.0
    vcpu_quota: int = 64
    spot_quota: int = 64
    quotas: dict[tuple[str, str], int] = field(default_factory=dict)
    told_quotas: dict[tuple[str, str], int] = field(default_factory=dict)
    full: set[str] = field(default_factory=set)
    not_offered: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    denied_regions: set[str] = field(default_factory=set)
    silent_regions: set[str] = field(default_factory=set)
    opt_in: dict[str, str] = field(
        default_factory=lambda: {
            "af-south-1": "not-opted-in",
            "eu-south-2": "opted-in",
            "eu-west-3": "opt-in-not-required",
            "us-east-1": "opt-in-not-required",
        }
    )
    default_disk_key: str = "alias/aws/ebs"
    old_types: set[str] = field(default_factory=set)

    def quota(self, region: str, code: str) -> int:
        default = self.spot_quota if code == SPOT_QUOTA else self.vcpu_quota
        return self.quotas.get((region, code), default)


class Visibility:
    """New things are unknown for some calls."""

    def __init__(self) -> None:
        self._calls_left: dict[str, int] = {}

    def hide(self, name: str, calls: int) -> None:
        if calls:
            self._calls_left[name] = calls

    def sees(self, name: str) -> bool:
        """Counts a call."""
        left = self._calls_left.get(name, 0)
        if left > 0:
            self._calls_left[name] = left - 1
        return left <= 0

    def require(self, name: str, code: str) -> None:
        """Raises AwsError with this code for a thing that is not visible yet."""
        if not self.sees(name):
            raise AwsError(code)


def backends() -> list[tuple[str, Any]]:
    """Region name and moto's EC2 of it, for the regions that were used."""
    return list(ec2_backends[DEFAULT_ACCOUNT_ID].items())


def backend_of(region: str) -> Any:
    return ec2_backends[DEFAULT_ACCOUNT_ID][region]


def debian_image(region: str, architecture: str) -> str:
    """The id of Debian's image in a region, which is made when it is first asked for."""
    backend = backend_of(region)
    name = f"debian-{architecture}"
    for image in backend.amis.values():
        if image.name == name:
            return str(image.id)
    image = backend.register_image(name)
    image.architecture, image.root_device_name = architecture, "/dev/xvda"
    return str(image.id)


def all_instances() -> Iterator[Any]:
    """moto's instances of all regions, ended ones included."""
    for _, backend in backends():
        yield from backend.all_instances()


def vcpus_of(instance_type: str) -> int:
    return int(INSTANCE_TYPES[instance_type]["VCpuInfo"]["DefaultVCpus"])


def cpu_options_of(instance_type: str) -> dict[str, int]:
    """As instances are described that were launched without options of their own."""
    facts = INSTANCE_TYPES[instance_type]["VCpuInfo"]
    threads = int(facts.get("DefaultThreadsPerCore", 1))
    return {"CoreCount": int(facts["DefaultVCpus"]) // threads, "ThreadsPerCore": threads}


def check_tags(request: Request) -> None:
    """Raises AwsError for tags that AWS refuses."""
    for name, text in request.starting("TagSpecification.", "Tag.").items():
        is_tag = name.endswith((".Key", ".Value"))
        if is_tag and (str(text).startswith("aws:") or len(str(text)) > 256):
            raise AwsError("InvalidParameterValue", f"{name} is not allowed")


def asked_tags(request: Request, kind: str) -> dict[str, str]:
    """The tags that a request has for new things of a kind, such as `volume`."""
    tags: dict[str, str] = {}
    for name, asked in request.starting("TagSpecification.").items():
        if asked == kind and name.endswith(".ResourceType"):
            prefix = f"{name.removesuffix('ResourceType')}Tag."
            tags |= tags_of(request, prefix)
    return tags


def tags_of(request: Request, prefix: str) -> dict[str, str]:
    """The tags among the parameters that begin with `prefix`."""
    return {
        str(tag): str(request.parameters.get(f"{name.removesuffix('Key')}Value", ""))
        for name, tag in request.starting(prefix).items()
        if name.endswith(".Key")
    }


def texts_in(text: str, name: str) -> set[str]:
    """The texts of the XML elements of a name."""
    return {part.partition(f"</{name}>")[0] for part in text.split(f"<{name}>")[1:]}
