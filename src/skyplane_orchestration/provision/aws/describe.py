"""Finds by its tags what a fleet has: instances, and what is left of them.

A policy of the organisation may deny a search in some regions.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from skyplane_orchestration.errors import CloudAccessDenied, CloudUnavailable
from skyplane_orchestration.provision.aws.firewall import NO_GROUP
from skyplane_orchestration.provision.aws.options import ALPHABET, as_mapping, region_tag
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal
from skyplane_orchestration.provision.fleet.machines import FleetResource, Instance, InstanceState
from skyplane_orchestration.provision.parallel import in_regions

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef

    from skyplane_orchestration.provision.aws.client import AwsApi
    from skyplane_orchestration.provision.aws.options import AwsOptions

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
