"""Finds instances by their tags."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.provision.aws import tags
from skyplane_orchestration.provision.aws.options import region_tag
from skyplane_orchestration.provision.fleet.machines import Instance, InstanceState

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

    from skyplane_orchestration.provision.aws.client import AwsApi

_CLOUD: Final = "aws:"
_PAGE: Final = 1000
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


def described(
    api: AwsApi, region: str, filters: Sequence[FilterTypeDef]
) -> Iterator[InstanceTypeDef]:
    """The region's instances, as AWS describes them. One call per page of 1,000."""
    ec2 = api.ec2(region)
    pages = api.pages(
        f"looking for instances in {region}",
        region,
        lambda page: ec2.describe_instances(Filters=filters, MaxResults=_PAGE, **page),
    )
    for page in pages:
        for reservation in page["Reservations"]:
            yield from reservation.get("Instances", [])


def ours(
    api: AwsApi, region: str, filters: Sequence[FilterTypeDef], *, has_public_address: bool
) -> list[Instance]:
    """The instances with tags of this library."""
    found = (
        as_instance(entry, region, has_public_address=has_public_address)
        for entry in described(api, region, filters)
    )
    return [instance for instance in found if instance is not None]


def as_instance(
    entry: InstanceTypeDef, region: str, *, has_public_address: bool
) -> Instance | None:
    """An instance of ours; None without our tags."""
    named = tags.as_mapping(entry.get("Tags", []))
    fleet = tags.fleet_of(named)
    if fleet is None:
        return None
    reason = entry.get("StateReason", {})
    address = entry.get("PublicIpAddress" if has_public_address else "PrivateIpAddress")
    return Instance(
        tags=fleet,
        instance=instance_name(named.get(tags.INSTANCE, ""), region),
        region=region,
        cloud_id=entry["InstanceId"],
        state=_STATES.get(entry["State"]["Name"], "ending"),
        address=str(address or ""),
        launch_id=named.get(tags.LAUNCH, ""),
        key_id=named.get(tags.KEY, ""),
        launched_unix_s=entry["LaunchTime"].timestamp(),
        why_ended=str(reason.get("Message") or reason.get("Code") or ""),
    )


def instance_tag(instance: str) -> str:
    """The value of the tag for an instance's name: no value may begin with `aws:`."""
    return instance.removeprefix(_CLOUD)


def instance_name(tag: str, region: str) -> str:
    """The name that `instance_tag` wrote; an instance without one is named by its region."""
    return _CLOUD + tags.unescaped(tag) if tag else f"{region}/?"


def enabled_regions(api: AwsApi) -> tuple[str, ...]:
    """Tags of the regions that the account has enabled, sorted."""
    region = api.home_region
    ec2 = api.ec2(region)
    answer = api.call(
        "looking for the account's regions",
        region,
        lambda: ec2.describe_regions(
            Filters=[{"Name": "opt-in-status", "Values": ["opt-in-not-required", "opted-in"]}]
        ),
    )
    return tuple(sorted(region_tag(entry["RegionName"]) for entry in answer["Regions"]))
