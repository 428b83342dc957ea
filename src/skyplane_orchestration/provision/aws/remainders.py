"""What a fleet has besides instances: security groups, and disks and interfaces left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.provision.aws import tags
from skyplane_orchestration.provision.aws.errors import Refusal
from skyplane_orchestration.provision.aws.network import NO_GROUP, groups
from skyplane_orchestration.provision.fleet.machines import FleetResource

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, NetworkInterfaceTypeDef, VolumeTypeDef

    from skyplane_orchestration.provision.aws.client import AwsApi

GROUP: Final = "security-group"
VOLUME: Final = "volume"
INTERFACE: Final = "network-interface"

_PAGE: Final = 500
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


def remainders(
    api: AwsApi, region: str, filters: Sequence[FilterTypeDef]
) -> Iterator[FleetResource]:
    """The region's resources of fleets, groups behind the interfaces that use them. Three calls.

    Disks and interfaces that end with their instance are not among them.
    """
    for volume in volumes(api, region, filters):
        if not _volume_ends(volume):
            yield from _ours(VOLUME, volume["VolumeId"], region, volume.get("Tags", []))
    for interface in interfaces(api, region, filters):
        if not _interface_ends(interface):
            name = interface["NetworkInterfaceId"]
            yield from _ours(INTERFACE, name, region, interface.get("TagSet", []))
    for group in groups(api, region, filters):
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
    fleet = tags.fleet_of(tags.as_mapping(named))
    if fleet is not None:
        yield FleetResource(kind=kind, cloud_id=name, region=region, tags=fleet)


def volumes(api: AwsApi, region: str, filters: Sequence[FilterTypeDef]) -> Iterator[VolumeTypeDef]:
    """The region's disks, as AWS describes them."""
    ec2 = api.ec2(region)
    pages = api.pages(
        f"looking for disks in {region}",
        region,
        lambda page: ec2.describe_volumes(Filters=filters, MaxResults=_PAGE, **page),
    )
    for page in pages:
        yield from page["Volumes"]


def interfaces(
    api: AwsApi, region: str, filters: Sequence[FilterTypeDef]
) -> Iterator[NetworkInterfaceTypeDef]:
    """The region's network interfaces, as AWS describes them."""
    ec2 = api.ec2(region)
    pages = api.pages(
        f"looking for network interfaces in {region}",
        region,
        lambda page: ec2.describe_network_interfaces(Filters=filters, MaxResults=_PAGE, **page),
    )
    for page in pages:
        yield from page["NetworkInterfaces"]


def _volume_ends(volume: VolumeTypeDef) -> bool:
    attached = volume.get("Attachments", [])
    return volume.get("State") in ("creating", "deleting", "deleted") or any(
        one.get("DeleteOnTermination") for one in attached
    )


def _interface_ends(interface: NetworkInterfaceTypeDef) -> bool:
    return bool(interface.get("Attachment", {}).get("DeleteOnTermination"))
