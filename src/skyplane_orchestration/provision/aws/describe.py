"""Finds by its tags what a fleet has: instances, and what is left of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.provision.aws import tags
from skyplane_orchestration.provision.aws.network import NO_GROUP
from skyplane_orchestration.provision.aws.options import region_tag
from skyplane_orchestration.provision.fleet.machines import FleetResource, Instance, InstanceState
from skyplane_orchestration.provision.fleet.refusals import Refusal
from skyplane_orchestration.provision.fleet.tags import INSTANCE, KEY, LAUNCH

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import (
        FilterTypeDef,
        InstanceTypeDef,
        NetworkInterfaceTypeDef,
        VolumeTypeDef,
    )

    from skyplane_orchestration.provision.aws.client import AwsApi

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
    fleet = tags.ALPHABET.fleet_of(named)
    if fleet is None:
        return None
    reason = entry.get("StateReason", {})
    address = entry.get("PublicIpAddress" if has_public_address else "PrivateIpAddress")
    return Instance(
        tags=fleet,
        instance=instance_name(tags.ALPHABET.value(named, INSTANCE), region),
        region=region,
        cloud_id=entry["InstanceId"],
        state=_STATES.get(entry["State"]["Name"], "ending"),
        address=str(address or ""),
        launch_id=tags.ALPHABET.value(named, LAUNCH),
        key_id=tags.ALPHABET.value(named, KEY),
        launched_unix_s=entry["LaunchTime"].timestamp(),
        why_ended=str(reason.get("Message") or reason.get("Code") or ""),
    )


def instance_tag(instance: str) -> str:
    """The text of the tag for an instance's name: no value may begin with `aws:`."""
    return instance.removeprefix(_CLOUD)


def instance_name(tag: str, region: str) -> str:
    """The name that `instance_tag` wrote; an instance without one is named by its region."""
    return _CLOUD + tag if tag else f"{region}/?"


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


def leftovers(
    api: AwsApi, region: str, filters: Sequence[FilterTypeDef]
) -> Iterator[FleetResource]:
    """The region's resources of fleets, groups behind the interfaces that use them. Three calls.

    Disks and interfaces that end with their instance are not among them.
    """
    for volume in api.listed("disks", region, filters):
        if not _volume_ends(volume):
            yield from _ours(VOLUME, volume["VolumeId"], region, volume.get("Tags", []))
    for interface in api.listed("network interfaces", region, filters):
        if not _interface_ends(interface):
            name = interface["NetworkInterfaceId"]
            yield from _ours(INTERFACE, name, region, interface.get("TagSet", []))
    for group in api.listed("security groups", region, filters):
        yield from _ours(GROUP, group["GroupId"], region, group.get("Tags", []))


def delete(api: AwsApi, resource: FleetResource) -> bool:
    """Delete one; False if it is still in use. One that is gone is deleted."""
    ec2 = api.ec2(resource.region)
    name = resource.cloud_id
    deletes: dict[str, Callable[[], object]] = {
        GROUP: lambda: ec2.delete_security_group(GroupId=name),
        VOLUME: lambda: ec2.delete_volume(VolumeId=name),
        INTERFACE: lambda: ec2.delete_network_interface(NetworkInterfaceId=name),
    }
    try:
        api.call(
            f"deleting the {resource.kind} {name} in {resource.region}",
            resource.region,
            deletes[resource.kind],
            expected=_GONE | _IN_USE,
        )
    except Refusal as refusal:
        return refusal.code in _GONE
    return True


def _ours(kind: str, name: str, region: str, named: Sequence[object]) -> Iterator[FleetResource]:
    fleet = tags.ALPHABET.fleet_of(tags.as_mapping(named))
    if fleet is not None:
        yield FleetResource(kind=kind, cloud_id=name, region=region, tags=fleet)


def _volume_ends(volume: VolumeTypeDef) -> bool:
    attached = volume.get("Attachments", [])
    return volume.get("State") in ("creating", "deleting", "deleted") or any(
        one.get("DeleteOnTermination") for one in attached
    )


def _interface_ends(interface: NetworkInterfaceTypeDef) -> bool:
    return bool(interface.get("Attachment", {}).get("DeleteOnTermination"))
