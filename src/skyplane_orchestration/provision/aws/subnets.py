"""The subnets that instances are launched in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skyplane_orchestration.errors import ConfigurationInvalid
from skyplane_orchestration.provision.fleet.answers import AnswerCache

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

    from skyplane_orchestration.provision.aws.client import AwsApi
    from skyplane_orchestration.provision.aws.options import AwsOptions


@dataclass(frozen=True, slots=True)
class Subnet:
    """A subnet and its zone (`eu-west-3a`)."""

    subnet_id: str
    zone: str


@dataclass(frozen=True, slots=True)
class Network:
    """The VPC of a region, and its subnets in the order of the options, or else of zones."""

    vpc_id: str
    subnets: tuple[Subnet, ...]


class Networks:
    """Networks of regions; AWS is asked once for each. Threads may share it."""

    def __init__(self, api: AwsApi, options: AwsOptions) -> None:
        self._api = api
        self._options = options
        self._known: AnswerCache[str, Network] = AnswerCache()

    def of(self, region: str) -> Network:
        """Raises ConfigurationInvalid: no default VPC, or subnets of several VPCs."""
        return self._known.get(region, lambda: self._look_up(region))

    def _look_up(self, region: str) -> Network:
        wanted = self._options.subnets.get(region, ())
        ec2 = self._api.ec2(region)
        default: list[FilterTypeDef] = [{"Name": "default-for-az", "Values": ["true"]}]
        which: dict[str, Any] = {"SubnetIds": list(wanted)} if wanted else {"Filters": default}
        answer = self._api.call(
            f"looking for the subnets of {region}",
            region,
            lambda: ec2.describe_subnets(**which),
        )
        found = {entry["SubnetId"]: entry for entry in answer["Subnets"]}
        if not found:
            raise ConfigurationInvalid(
                f"{region} has no default VPC with subnets; give the setting subnets of aws some"
                f" for {region}, or exclude the region from plans"
            )
        if len({entry["VpcId"] for entry in found.values()}) > 1:
            raise ConfigurationInvalid(
                f"subnets of aws for {region} are of several VPCs; a fleet is in one VPC per region"
            )
        order = wanted or sorted(found, key=lambda one: found[one]["AvailabilityZone"])
        return Network(
            vpc_id=next(iter(found.values()))["VpcId"],
            subnets=tuple(Subnet(one, found[one]["AvailabilityZone"]) for one in order),
        )
