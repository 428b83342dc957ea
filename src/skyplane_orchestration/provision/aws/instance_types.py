"""Instance types, their images, and the quotas that they count against.

AWS is asked once for each, but for quotas.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import ConfigurationInvalid, InstanceTypeNotOffered
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.aws.describe import described
from skyplane_orchestration.provision.aws.error_mapping import ON_DEMAND_QUOTA, SPOT_QUOTA
from skyplane_orchestration.provision.fleet.answer_cache import AnswerCache
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

    from skyplane_orchestration.provision.aws.client import AwsApi

#: The root device of Amazon Linux 2023.
_ROOT_DEVICE: Final = "/dev/xvda"
_NO_PARAMETER: Final = "ParameterNotFound"
_NO_TYPE: Final = frozenset({"InvalidInstanceType", "InvalidInstanceType.NotFound"})


@dataclass(frozen=True, slots=True)
class Ec2InstanceType:
    """Of an instance type: vCPUs as quotas count them, and `arm64` or `x86_64`."""

    vcpus: int
    architecture: str


@dataclass(frozen=True, slots=True)
class Image:
    """An AMI, and the name of its root device."""

    image_id: str
    root_device: str = _ROOT_DEVICE


class Ec2InstanceTypes:
    """Facts of instance types, and the images for them. Threads may share it."""

    def __init__(self, api: AwsApi) -> None:
        self._api = api
        self._types: AnswerCache[tuple[str, str], Ec2InstanceType] = AnswerCache()
        self._images: AnswerCache[tuple[str, str], Image] = AnswerCache()

    def of(self, region: str, instance_type: str) -> Ec2InstanceType:
        """Raises InstanceTypeNotOffered."""
        return self._types.get((region, instance_type), lambda: self._ask(region, instance_type))

    def _ask(self, region: str, instance_type: str) -> Ec2InstanceType:
        try:
            answer = self._api.call(
                f"looking for instance types in {region}",
                region,
                "describe_instance_types",
                expected=_NO_TYPE,
                InstanceTypes=[instance_type],
            )
            (entry,) = answer["InstanceTypes"]
        except (CloudRefusal, ValueError) as error:
            raise InstanceTypeNotOffered.of(region, instance_type) from error
        architectures = entry["ProcessorInfo"]["SupportedArchitectures"]
        return Ec2InstanceType(
            vcpus=entry["VCpuInfo"]["DefaultVCpus"],
            # Old types also offer i386.
            architecture="arm64" if "arm64" in architectures else "x86_64",
        )

    def image(self, region: str, instance_type: str) -> Image:
        """The image to launch. Raises ConfigurationInvalid: there is none for the type."""
        architecture = self.of(region, instance_type).architecture
        return self._images.get(
            (region, architecture), lambda: self._find_image(region, architecture, instance_type)
        )

    def _find_image(self, region: str, architecture: str, instance_type: str) -> Image:
        options = self._api.options
        if own := options.images.get(region):
            return self._own_image(region, own, architecture)
        name = options.image_for("image_parameters", architecture, instance_type)
        return self._own_image(region, self._by_parameter(region, name), architecture)

    def _own_image(self, region: str, image_id: str, architecture: str) -> Image:
        what = f"looking for the image {image_id} in {region}"
        answer = self._api.call(what, region, "describe_images", ImageIds=[image_id])
        for entry in answer["Images"]:
            if entry.get("Architecture") != architecture:
                raise ConfigurationInvalid(
                    f"the image {image_id} of {region} is for {entry.get('Architecture')}, and"
                    f" the instance type for {architecture}; choose another image or type"
                )
            return Image(image_id, entry.get("RootDeviceName") or _ROOT_DEVICE)
        raise ConfigurationInvalid(f"there is no image {image_id} in {region}")

    def _by_parameter(self, region: str, name: str) -> str:
        try:
            answer = self._api.call(
                f"looking for the image of {name} in {region}",
                region,
                "get_parameter",
                service="ssm",
                expected={_NO_PARAMETER},
                Name=name,
            )
        except CloudRefusal as refusal:
            raise ConfigurationInvalid(
                f"{region} has no SSM parameter {name}; check image_parameters of aws"
            ) from refusal
        return str(answer["Parameter"]["Value"])


#: First letters of the instance families that share the two quotas.
_STANDARD: Final = frozenset("acdhimrtz")
#: Families with such a first letter and quotas of their own: `dl1.24xlarge`, `inf2.xlarge`.
_OTHERS: Final = ("dl", "hpc", "inf", "mac", "trn")
_WHAT: Final = {
    ON_DEMAND_QUOTA: "vCPUs of on-demand instances of standard families",
    SPOT_QUOTA: "vCPUs of spot instances of standard families",
}


def region_quotas(api: AwsApi, region: str, *, with_spot: bool) -> tuple[RegionQuota, ...]:
    """The quota of on-demand instances, and that of spot instances if they are used.

    Two calls, and one more for spot.
    """
    alive: list[FilterTypeDef] = [{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    used: Counter[str] = Counter()
    for entry in described(api, region, alive):
        kind = entry["InstanceType"]
        if kind[:1] in _STANDARD and not kind.startswith(_OTHERS):
            is_spot = entry.get("InstanceLifecycle") == "spot"
            # As the instance runs; AWS counts the vCPUs of its type, which differ only by options.
            options = entry.get("CpuOptions", {})
            vcpus = options.get("CoreCount", 1) * options.get("ThreadsPerCore", 1)
            used[SPOT_QUOTA if is_spot else ON_DEMAND_QUOTA] += vcpus
    of_relays = {ON_DEMAND_QUOTA: False, SPOT_QUOTA: True} if with_spot else {ON_DEMAND_QUOTA: None}
    return tuple(
        RegionQuota(
            region,
            quota,
            vcpus=_quota(api, region, quota),
            used_vcpus=used[quota],
            of_relays=who,
        )
        for quota, who in of_relays.items()
    )


def quota_uses(api: AwsApi, region: str) -> tuple[QuotaUse, ...]:
    """Both quotas. Addresses need none: those of instances are no elastic ones."""
    return tuple(
        QuotaUse(region, one.name, _WHAT[one.name], one.vcpus, one.used_vcpus)
        for one in region_quotas(api, region, with_spot=True)
    )


def _quota(api: AwsApi, region: str, code: str) -> int | None:
    """vCPUs; None if the region has no such quota."""
    try:
        answer = api.call(
            f"reading the quota {code} of {region}",
            region,
            "get_service_quota",
            service="service-quotas",
            expected={"NoSuchResourceException"},
            ServiceCode="ec2",
            QuotaCode=code,
        )
    except CloudRefusal:
        return None
    return int(answer["Quota"]["Value"])
