"""Whether credentials, permissions and networks suffice; makes nothing.

Reading calls are made. Calls that make something are dry runs: AWS checks the permissions and
stops. Calls that change something need a thing of ours to be tried on, so they are not tried.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, Final

from skyplane_orchestration.errors import (
    CloudAccessDenied,
    CloudUnavailable,
    ConfigurationInvalid,
    InstanceTypeNotOffered,
)
from skyplane_orchestration.provision.aws.client import AwsApi
from skyplane_orchestration.provision.aws.describe import (
    Ec2InstanceTypes,
    described,
    enabled_regions,
    region_quotas,
)
from skyplane_orchestration.provision.aws.error_mapping import NO_CAPACITY
from skyplane_orchestration.provision.aws.firewall import Networks, Subnet
from skyplane_orchestration.provision.aws.launch import common_arguments, identity_arguments
from skyplane_orchestration.provision.aws.options import filter_of, for_fleet
from skyplane_orchestration.provision.fleet.account_check import outcomes, unknown_regions
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal
from skyplane_orchestration.provision.fleet.machines import FleetTags
from skyplane_orchestration.provision.provisioner import Finding

_CREDENTIALS: Final = "aws credentials"
_WOULD_SUCCEED: Final = "DryRunOperation"
#: Small, current, and in nearly every region; one for each architecture of an own image.
_ANY_TYPES: Final = ("c7gn.large", "c6in.large")
#: docs.aws.amazon.com/ebs/latest/userguide/ebs-encryption-requirements.html (2026-11-28).
_KEY_ACTIONS: Final = (
    "kms:CreateGrant, kms:Decrypt, kms:DescribeKey, kms:GenerateDataKeyWithoutPlaintext and"
    " kms:ReEncrypt*"
)
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
    """The checks of `Machines.check`."""

    def __init__(
        self, api: AwsApi, networks: Networks, types: Ec2InstanceTypes, deployment: str
    ) -> None:
        # The documented policy allows launches with the tag of one deployment only.
        self._tags = FleetTags("0", deployment, 0, 0, 0)
        self._api = api
        self._options = api.options
        self._networks = networks
        self._types = types
        # Regions that the options name and the account does not have.
        self._lacking: frozenset[str] = frozenset()

    def findings(self) -> tuple[Finding, ...]:
        """Credentials first; without them nothing else is tried. No other failure hides one."""
        try:
            region = self._api.home_region
            who = self._who(region)
        except (CloudAccessDenied, ConfigurationInvalid) as error:
            # Nobody needs a permission to ask who they are.
            return (Finding(_CREDENTIALS, False, str(error)),)
        return (who, *self._permissions(region), *self._other_networks(region))

    def _who(self, region: str) -> Finding:
        """Raises CloudAccessDenied, ConfigurationInvalid: there are no usable credentials."""
        what = "checking the credentials"
        try:
            answer = self._api.call(what, region, "get_caller_identity", service="sts")
        except CloudUnavailable as error:
            # Private networks may reach EC2 and not STS.
            return Finding(_CREDENTIALS, False, str(error))
        return Finding(_CREDENTIALS, True, f"{answer['Arn']}; checked in {region}")

    def _permissions(self, region: str) -> list[Finding]:
        # A later attempt may need the same call.
        found = outcomes("aws", region, self._attempts(region))
        if all(one.is_ok for one in found):
            found.append(
                Finding(
                    "aws permissions",
                    True,
                    "instances can be found and launched; not tried without a fleet:"
                    f" {', '.join(UNTRIED)}",
                )
            )
        return found

    def _attempts(self, region: str) -> list[Callable[[], object]]:
        api = self._api
        nothing = filter_of("fleet", self._tags.fleet_key)
        with_spot = self._options.spot_relays
        return [
            self._try_regions,
            lambda: list(described(api, region, nothing)),
            lambda: list(api.listed("security groups", region, nothing)),
            lambda: list(api.listed("disks", region, nothing)),
            lambda: list(api.listed("network interfaces", region, nothing)),
            lambda: self._networks.of(region),
            lambda: self._some_type(region),
            lambda: self._own_default_key(region),
            lambda: region_quotas(api, region, with_spot=with_spot),
            lambda: self._try_group(region),
            *(partial(self._try_launch, region, one) for one in self._options.identities or ("",)),
        ]

    def _try_regions(self) -> Finding | None:
        """Whether the account has the regions that the options name."""
        enabled = enabled_regions(self._api)
        self._lacking = frozenset(self._named()) - set(enabled)
        return next(iter(unknown_regions("aws", self._named(), enabled)), None)

    def _named(self) -> set[str]:
        return {*(self._options.regions or ()), *self._options.subnets}

    def _own_default_key(self, region: str) -> Finding | None:
        """A warning if new disks are encrypted with a key of the account's own."""
        if self._options.kms_key_id:
            return None
        what = "looking for the key of new disks"
        key = str(self._api.call(what, region, "get_ebs_default_kms_key_id")["KmsKeyId"])
        if key.endswith("alias/aws/ebs"):
            return None
        return Finding(
            f"aws {region}",
            True,
            f"new disks are encrypted with the account's default key for EBS, {key}: who launches"
            f" needs {_KEY_ACTIONS} on it, or instances end before they run; or name another key"
            " in the setting kms_key_id of aws",
            is_warning=True,
        )

    def _try_group(self, region: str) -> None:
        self._dry_run(
            region,
            "trying to make a security group",
            "create_security_group",
            GroupName="skyplane-check",
            Description="A dry run",
            VpcId=self._networks.of(region).vpc_id,
            TagSpecifications=self._tagged("security-group"),
        )

    def _try_launch(self, region: str, profile: str) -> Finding | None:
        """With a profile, in each subnet; a warning if none of their zones has the type."""
        kind = self._some_type(region)
        subnets = self._networks.of(region).subnets
        refusals = [self._refusal_in(region, kind, subnet, profile) for subnet in subnets]
        if not all(refusals):
            return None
        zones = (f"{one.zone} ({code})" for one, code in zip(subnets, refusals, strict=True))
        return Finding(
            f"aws {region}",
            True,
            f"launches are allowed, but no zone of the subnets has {kind} now: {', '.join(zones)};"
            " plan with another instance type or region, or give the setting subnets of aws one in"
            " another zone",
            is_warning=True,
        )

    def _refusal_in(self, region: str, kind: str, subnet: Subnet, profile: str) -> str:
        """The code that says that a zone lacks the type; empty if it has it."""
        return self._dry_run(
            region,
            "trying to launch an instance",
            "run_instances",
            expected=NO_CAPACITY,
            **common_arguments(self._options, self._types, region, kind),
            **identity_arguments(profile),
            SubnetId=subnet.subnet_id,
            TagSpecifications=self._tagged("instance", "volume", "network-interface"),
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
        named = for_fleet(self._tags, self._options.user_tags)
        return [{"ResourceType": kind, "Tags": named} for kind in kinds]

    def _dry_run(
        self,
        region: str,
        what: str,
        operation: str,
        expected: Collection[str] = (),
        **arguments: Any,
    ) -> str:
        """The code of an expected refusal; empty if the request would succeed."""
        known = {_WOULD_SUCCEED, *expected}
        try:
            self._api.call(
                f"{what} in {region}", region, operation, expected=known, DryRun=True, **arguments
            )
        except CloudRefusal as refusal:
            return "" if refusal.code == _WOULD_SUCCEED else refusal.code
        return ""

    def _other_networks(self, home: str) -> list[Finding]:
        """Of the regions that the options name."""
        return [
            finding
            for region in sorted(self._named() - self._lacking - {home})
            for finding in outcomes("aws", region, [partial(self._networks.of, region)])
        ]
