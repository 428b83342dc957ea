"""Whether credentials, permissions and networks suffice; makes nothing.

Reading calls are made. Calls that make something are dry runs: AWS checks the permissions and
stops. Calls that change something need a thing of ours to be tried on, so they are not tried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from skyplane_orchestration.errors import (
    CloudAccessDenied,
    ConfigurationInvalid,
    InstanceTypeNotOffered,
)
from skyplane_orchestration.provision.aws import tags
from skyplane_orchestration.provision.aws.describe import described, enabled_regions
from skyplane_orchestration.provision.aws.errors import Refusal
from skyplane_orchestration.provision.aws.launch import common_arguments, end_arguments
from skyplane_orchestration.provision.aws.network import groups
from skyplane_orchestration.provision.aws.quotas import region_quotas
from skyplane_orchestration.provision.aws.remainders import interfaces, volumes
from skyplane_orchestration.provision.base import Finding
from skyplane_orchestration.provision.instances.cloud import FleetTags

if TYPE_CHECKING:
    from skyplane_orchestration.provision.aws.client import AwsApi
    from skyplane_orchestration.provision.aws.options import AwsOptions
    from skyplane_orchestration.provision.aws.subnets import Networks
    from skyplane_orchestration.provision.aws.types import Types

_WOULD_SUCCEED: Final = "DryRunOperation"
#: Small, current, and in nearly every region; one for each architecture of an own image.
_ANY_TYPES: Final = ("c7gn.large", "c6in.large")
#: Actions on existing things only, which AWS answers for when there is one.
UNTRIED: Final = (
    "ec2:AuthorizeSecurityGroupIngress",
    "ec2:RevokeSecurityGroupIngress",
    "ec2:GetConsoleOutput",
    "ec2:TerminateInstances",
    "ec2:DeleteSecurityGroup",
    "ec2:DeleteVolume",
    "ec2:DeleteNetworkInterface",
)


class Checks:
    """The checks of `Cloud.check`."""

    def __init__(
        self,
        api: AwsApi,
        options: AwsOptions,
        networks: Networks,
        types: Types,
        deployment: str,
    ) -> None:
        # The documented policy allows launches with the tag of one deployment only.
        self._tags = FleetTags("0", deployment, 0, 0, 0)
        self._api = api
        self._options = options
        self._networks = networks
        self._types = types

    def findings(self) -> tuple[Finding, ...]:
        """Credentials first; without them nothing else is tried."""
        try:
            region = self._api.home_region
            who = self._who(region)
        except (CloudAccessDenied, ConfigurationInvalid) as error:
            return (Finding("aws credentials", False, str(error)),)
        return (
            Finding("aws credentials", True, f"{who}; checked in {region}"),
            *self._permissions(region),
            *self._other_networks(region),
        )

    def _who(self, region: str) -> str:
        sts = self._api.sts(region)
        answer = self._api.call("checking the credentials", region, sts.get_caller_identity)
        return answer["Arn"]

    def _permissions(self, region: str) -> list[Finding]:
        missing: dict[str, Finding] = {}
        for attempt in self._attempts(region):
            try:
                attempt()
            except CloudAccessDenied as error:
                # A later attempt may need the same call.
                missing.setdefault(str(error), Finding("aws permissions", False, str(error)))
            except (ConfigurationInvalid, InstanceTypeNotOffered) as error:
                missing.setdefault(str(error), Finding(f"aws {region}", False, str(error)))
        return list(missing.values()) or [
            Finding(
                "aws permissions",
                True,
                "instances can be found and launched; not tried without a fleet:"
                f" {', '.join(UNTRIED)}",
            )
        ]

    def _attempts(self, region: str) -> list[Callable[[], object]]:
        api = self._api
        nothing = tags.of_fleet(self._tags.fleet_key)
        with_spot = self._options.spot_relays
        return [
            lambda: enabled_regions(api),
            lambda: list(described(api, region, nothing)),
            lambda: list(groups(api, region, nothing)),
            lambda: list(volumes(api, region, nothing)),
            lambda: list(interfaces(api, region, nothing)),
            lambda: self._networks.of(region),
            lambda: self._some_type(region),
            lambda: region_quotas(api, region, with_spot=with_spot),
            lambda: self._try_group(region),
            lambda: self._try_launch(region),
        ]

    def _try_group(self, region: str) -> None:
        ec2 = self._api.ec2(region)
        self._dry_run(
            region,
            "trying to make a security group",
            lambda: ec2.create_security_group(
                DryRun=True,
                GroupName="skyplane-check",
                Description="A dry run",
                VpcId=self._networks.of(region).vpc_id,
                TagSpecifications=cast("Any", self._tagged("security-group")),
            ),
        )

    def _try_launch(self, region: str) -> None:
        """As a source or sink; those may have an instance profile."""
        ec2 = self._api.ec2(region)
        arguments: dict[str, Any] = {
            "DryRun": True,
            "MinCount": 1,
            "MaxCount": 1,
            **common_arguments(self._options, self._types, region, self._some_type(region)),
            **end_arguments(self._options),
            "SubnetId": self._networks.of(region).subnets[0].subnet_id,
            "TagSpecifications": self._tagged("instance", "volume", "network-interface"),
        }
        self._dry_run(
            region,
            "trying to launch an instance",
            lambda: ec2.run_instances(**cast("Any", arguments)),
        )

    def _some_type(self, region: str) -> str:
        """An instance type of the region for which there is an image.

        Raises ConfigurationInvalid, InstanceTypeNotOffered: there is none.
        """
        *others, last = _ANY_TYPES
        for kind in others:
            try:
                self._types.image(region, kind)
            except (ConfigurationInvalid, InstanceTypeNotOffered):
                continue
            return kind
        self._types.image(region, last)
        return last

    def _tagged(self, *kinds: str) -> list[dict[str, Any]]:
        named = tags.for_fleet(self._tags, self._options.user_tags)
        return [{"ResourceType": kind, "Tags": named} for kind in kinds]

    def _dry_run(self, region: str, what: str, request: Callable[[], object]) -> None:
        try:
            self._api.call(f"{what} in {region}", region, request, expected={_WOULD_SUCCEED})
        except Refusal:
            return

    def _other_networks(self, home: str) -> list[Finding]:
        """Of the regions that the options name."""
        found = []
        for region in dict.fromkeys([*(self._options.regions or ()), *self._options.subnets]):
            if region == home:
                continue
            try:
                self._networks.of(region)
            except (CloudAccessDenied, ConfigurationInvalid) as error:
                found.append(Finding(f"aws {region}", False, str(error)))
        return found
