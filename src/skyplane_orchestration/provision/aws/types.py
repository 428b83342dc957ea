"""Instance types and images of regions; AWS is asked once for each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

from skyplane_orchestration.errors import ConfigurationInvalid, InstanceTypeNotOffered
from skyplane_orchestration.provision.aws.errors import Refusal
from skyplane_orchestration.provision.aws.options import AMAZON_LINUX
from skyplane_orchestration.provision.fleet.answers import AnswerCache

if TYPE_CHECKING:
    from skyplane_orchestration.provision.aws.client import AwsApi
    from skyplane_orchestration.provision.aws.options import AwsOptions

#: The root device of Amazon Linux 2023.
_ROOT_DEVICE: Final = "/dev/xvda"
_NO_PARAMETER: Final = "ParameterNotFound"
_NO_TYPE: Final = frozenset({"InvalidInstanceType", "InvalidInstanceType.NotFound"})


@dataclass(frozen=True, slots=True)
class TypeFacts:
    """Of an instance type: vCPUs as quotas count them, and `arm64` or `x86_64`."""

    vcpus: int
    architecture: str


@dataclass(frozen=True, slots=True)
class Image:
    """An AMI, and the name of its root device."""

    image_id: str
    root_device: str = _ROOT_DEVICE


class Types:
    """Facts of instance types, and the images for them. Threads may share it."""

    def __init__(self, api: AwsApi, options: AwsOptions) -> None:
        self._api = api
        self._options = options
        self._types: AnswerCache[tuple[str, str], TypeFacts] = AnswerCache()
        self._images: AnswerCache[tuple[str, str], Image] = AnswerCache()

    def of(self, region: str, instance_type: str) -> TypeFacts:
        """Raises InstanceTypeNotOffered."""
        return self._types.get((region, instance_type), lambda: self._ask(region, instance_type))

    def _ask(self, region: str, instance_type: str) -> TypeFacts:
        ec2 = self._api.ec2(region)
        names = cast("Any", [instance_type])
        try:
            answer = self._api.call(
                f"looking for instance types in {region}",
                region,
                lambda: ec2.describe_instance_types(InstanceTypes=names),
                expected=_NO_TYPE,
            )
            (entry,) = answer["InstanceTypes"]
        except (Refusal, ValueError) as error:
            raise InstanceTypeNotOffered.of(region, instance_type) from error
        architectures = entry["ProcessorInfo"]["SupportedArchitectures"]
        return TypeFacts(
            vcpus=entry["VCpuInfo"]["DefaultVCpus"],
            # Old types also offer i386.
            architecture="arm64" if "arm64" in architectures else "x86_64",
        )

    def image(self, region: str, instance_type: str) -> Image:
        """The image to launch. Raises ConfigurationInvalid: there is none for the type."""
        architecture = self.of(region, instance_type).architecture
        return self._images.get(
            (region, architecture), lambda: self._find_image(region, architecture)
        )

    def _find_image(self, region: str, architecture: str) -> Image:
        own = self._options.images.get(region)
        if own is not None:
            return self._own_image(region, own, architecture)
        image_id = self._by_parameter(region, architecture)
        if self._options.image_parameters[architecture] == AMAZON_LINUX[architecture]:
            return Image(image_id)
        return self._own_image(region, image_id, architecture)

    def _own_image(self, region: str, image_id: str, architecture: str) -> Image:
        ec2 = self._api.ec2(region)
        answer = self._api.call(
            f"looking for the image {image_id} in {region}",
            region,
            lambda: ec2.describe_images(ImageIds=[image_id]),
        )
        for entry in answer["Images"]:
            if entry.get("Architecture") != architecture:
                raise ConfigurationInvalid(
                    f"the image {image_id} of {region} is for {entry.get('Architecture')}, and"
                    f" the instance type for {architecture}; choose another image or type"
                )
            return Image(image_id, entry.get("RootDeviceName") or _ROOT_DEVICE)
        raise ConfigurationInvalid(f"there is no image {image_id} in {region}")

    def _by_parameter(self, region: str, architecture: str) -> str:
        name = self._options.image_parameters.get(architecture)
        if name is None:
            raise ConfigurationInvalid(
                f"image_parameters of aws has no image for {architecture}, which the instance"
                f" type in {region} needs"
            )
        ssm = self._api.ssm(region)
        try:
            answer = self._api.call(
                f"looking for the image of {name} in {region}",
                region,
                lambda: ssm.get_parameter(Name=name),
                expected={_NO_PARAMETER},
            )
        except Refusal as refusal:
            raise ConfigurationInvalid(
                f"{region} has no SSM parameter {name}; check image_parameters of aws"
            ) from refusal
        return answer["Parameter"]["Value"]
