"""What AWS tells: what a fleet has by its tags, instance types with their images, and quotas.

A policy of the organisation may deny a search in some regions. Types and images are asked for once.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from skyplane_orchestration.errors import (
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
    InstanceTypeNotOffered,
)
from skyplane_orchestration.model.region_quota import QuotaUse, RegionQuota
from skyplane_orchestration.provision.aws.client import AwsApi
from skyplane_orchestration.provision.aws.error_mapping import ON_DEMAND_QUOTA, SPOT_QUOTA
from skyplane_orchestration.provision.aws.firewall import NO_GROUP
from skyplane_orchestration.provision.aws.options import (
    ALPHABET,
    AwsOptions,
    as_mapping,
    region_tag,
)
from skyplane_orchestration.provision.fleet.answer_cache import AnswerCache
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal
from skyplane_orchestration.provision.fleet.machines import FleetResource, Instance, InstanceState
from skyplane_orchestration.provision.parallel import in_regions

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

log = logging.getLogger(__name__)

T = TypeVar("T")

_CLOUD: Final = "aws:"
#: AWS stops an instance whose host it retires. It does not end by itself, so it counts as one
#: that runs and does not answer: it is replaced, and a teardown ends it.
_STATES: Final[dict[str, InstanceState]] = {
    "pending": "starting",
    "running": "running",
    "shutting-down": "ending",
    "stopping": "running",
    "stopped": "running",
    "terminated": "ended",
}

GROUP: Final = "security-group"
VOLUME: Final = "volume"
INTERFACE: Final = "network-interface"
#: Kind -> its list (see `AwsApi.listed`), the fields of its id and of its tags, and the operation
#: that deletes one. Groups come behind the interfaces that use them.
_KINDS: Final = {
    VOLUME: ("disks", "VolumeId", "Tags", "delete_volume"),
    INTERFACE: ("network interfaces", "NetworkInterfaceId", "TagSet", "delete_network_interface"),
    GROUP: ("security groups", "GroupId", "Tags", "delete_security_group"),
}
_GONE: Final = frozenset(
    {*NO_GROUP, "InvalidVolume.NotFound", "InvalidNetworkInterfaceID.NotFound"}
)
#: The last is that of DeleteNetworkInterface for one in use.
_IN_USE: Final = frozenset(
    {
        "DependencyViolation",
        "IncorrectState",
        "InvalidGroup.InUse",
        "InvalidNetworkInterface.InUse",
        "VolumeInUse",
        "InvalidParameterValue",
    }
)


def described(
    api: AwsApi, region: str, filters: Sequence[FilterTypeDef]
) -> Iterator[InstanceTypeDef]:
    """The region's instances, as AWS describes them. One call per page of 1,000."""
    for reservation in api.listed("instances", region, filters):
        yield from reservation.get("Instances", [])


def our_instances(api: AwsApi, region: str, filters: Sequence[FilterTypeDef]) -> list[Instance]:
    """The instances with tags of this library."""
    found = (as_instance(api, entry, region) for entry in described(api, region, filters))
    return [instance for instance in found if instance is not None]


def as_instance(api: AwsApi, entry: InstanceTypeDef, region: str) -> Instance | None:
    """An instance of ours; None without our tags."""
    reason = entry.get("StateReason", {})
    address = entry.get("PublicIpAddress" if api.options.public_address else "PrivateIpAddress")
    found = ALPHABET.instance_of(
        as_mapping(entry.get("Tags", [])),
        region,
        cloud_id=entry["InstanceId"],
        state=_STATES.get(entry["State"]["Name"], "ending"),
        address=str(address or ""),
        launched_unix_s=entry["LaunchTime"].timestamp(),
        why_ended=str(reason.get("Message") or reason.get("Code") or ""),
    )
    if found is None or found.instance.startswith(_CLOUD):
        return found
    return replace(found, instance=_CLOUD + found.instance)


def instance_tag(instance: str) -> str:
    """The text of the tag for an instance's name: no value may begin with `aws:`."""
    return instance.removeprefix(_CLOUD)


def enabled_regions(api: AwsApi) -> tuple[str, ...]:
    """Tags of the regions that the account has enabled, sorted."""
    region = api.home_region
    answer = api.call(
        "looking for the account's regions",
        region,
        "describe_regions",
        Filters=[{"Name": "opt-in-status", "Values": ["opt-in-not-required", "opted-in"]}],
    )
    return tuple(sorted(region_tag(entry["RegionName"]) for entry in answer["Regions"]))


def leftovers(
    api: AwsApi, region: str, filters: Sequence[FilterTypeDef]
) -> Iterator[FleetResource]:
    """The region's resources of fleets. Three calls.

    Disks and interfaces that end with their instance are not among them.
    """
    for kind, (listed, id_field, tags_field, _) in _KINDS.items():
        for one in api.listed(listed, region, filters):
            fleet = ALPHABET.fleet_of(as_mapping(one.get(tags_field, [])))
            if fleet is not None and not _ends_by_itself(one):
                yield FleetResource(kind, one[id_field], region, fleet)


def delete(api: AwsApi, resource: FleetResource) -> bool:
    """Delete one; False if it is still in use. One that is gone is deleted."""
    _, id_field, _, operation = _KINDS[resource.kind]
    try:
        api.call(
            f"deleting the {resource.kind} {resource.cloud_id} in {resource.region}",
            resource.region,
            operation,
            expected=_GONE | _IN_USE,
            **{id_field: resource.cloud_id},
        )
    except CloudRefusal as refusal:
        return refusal.code in _GONE
    return True


def _ends_by_itself(resource: Mapping[str, Any]) -> bool:
    """Whether a disk or an interface ends with its instance. A group has no attachment."""
    attached = [*resource.get("Attachments", []), resource.get("Attachment", {})]
    return resource.get("State") in ("creating", "deleting", "deleted") or any(
        one.get("DeleteOnTermination") for one in attached
    )


#: Names the limit of a denied region in plans.
DENIED: Final = "the regions that the credentials for aws may use"


class DeniedRegions:
    """Passes over regions that refuse a search. Threads may share it.

    The setting `regions` names regions that must answer. Without it the account's regions are
    searched, and AWS lists those too that a policy denies.

    Attributes:
        all_regions: those of the account; a search has at least these.
        used: regions in which this worker has prepared a fleet; they must answer.
    """

    def __init__(self, options: AwsOptions) -> None:
        self._are_named = options.regions is not None
        self.all_regions: frozenset[str] = frozenset()
        self.used: set[str] = set()
        self._logged: set[str] = set()
        # A search is repeated without the regions that have not answered.
        self._silent: set[str] = set()

    def search(self, regions: Sequence[str], look: Callable[[str], Sequence[T]]) -> tuple[T, ...]:
        """What `look` finds in each region.

        Raises CloudAccessDenied: the regions are not all of the account, or see `passed_over`.
        """
        if self.all_regions and self.all_regions <= {*regions, *self._silent}:
            found = list(self.passed_over(regions, look).values())
        else:
            found = in_regions(regions, look)
        return tuple(one for rows in found for one in rows)

    def passed_over(self, regions: Sequence[str], work: Callable[[str], T]) -> dict[str, T]:
        """Region -> the result of `work`, without regions that deny it.

        Raises CloudAccessDenied: all regions do, or one that must answer. CloudUnavailable names
        the regions that do not answer.
        """

        found: dict[str, T] = {}
        denied: dict[str, CloudAccessDenied] = {}

        def attempt(region: str) -> None:
            try:
                found[region] = work(region)
            except CloudAccessDenied as error:
                denied[region] = error

        try:
            in_regions(regions, attempt)
        except CloudUnavailable as no_answer:
            self._silent.update(no_answer.regions)
            raise
        for region in sorted(denied):
            if self._are_named or region in self.used or not found:
                raise denied[region]
        if new := sorted(set(denied) - self._logged):
            self._logged.update(new)
            log.warning(
                "AWS denies %s to these credentials: nothing is searched or planned there;"
                " name the regions that fleets may use in the setting regions of aws",
                ", ".join(new),
            )
        return {region: found[region] for region in regions if region in found}


#: The root device of Amazon Linux 2023.
_ROOT_DEVICE: Final = "/dev/xvda"


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
                expected={"InvalidInstanceType", "InvalidInstanceType.NotFound"},
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
        try:
            answer = self._api.call(
                f"looking for the image of {name} in {region}",
                region,
                "get_parameter",
                service="ssm",
                expected={"ParameterNotFound"},
                Name=name,
            )
        except CloudRefusal as refusal:
            raise ConfigurationInvalid(
                f"{region} has no SSM parameter {name}; check image_parameters of aws"
            ) from refusal
        return self._own_image(region, str(answer["Parameter"]["Value"]), architecture)

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
            region, quota, vcpus=_quota(api, region, quota), used_vcpus=used[quota], of_relays=who
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
