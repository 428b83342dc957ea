"""Launches one instance once, whatever else happens at the same time.

The client token is made of fleet, security group, instance, launch number and subnet, so AWS
refuses a second instance of the same token. AWS keeps tokens per zone, and those of failed requests
too. A fleet that was undone has another security group, and so other tokens, when it is made again.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import CloudUnavailable
from skyplane_orchestration.provision.aws.describe import (
    as_instance,
    described,
    instance_tag,
    our_instances,
)
from skyplane_orchestration.provision.aws.error_mapping import NO_CAPACITY, translate
from skyplane_orchestration.provision.aws.firewall import NO_GROUP, SecurityGroups
from skyplane_orchestration.provision.aws.options import filter_of, for_fleet
from skyplane_orchestration.provision.fleet.error_rules import CloudRefusal, torn_down
from skyplane_orchestration.provision.fleet.launching import MOST_NUMBERS, launch_in_turn
from skyplane_orchestration.provision.fleet.machines import Instance, LaunchRequest
from skyplane_orchestration.provision.fleet.tags import INSTANCE

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import FilterTypeDef

    from skyplane_orchestration.provision.aws.client import AwsApi
    from skyplane_orchestration.provision.aws.describe import Ec2InstanceTypes
    from skyplane_orchestration.provision.aws.firewall import Networks, Subnet
    from skyplane_orchestration.provision.aws.options import AwsOptions

log = logging.getLogger(__name__)

#: A token of another request, which may have succeeded or failed.
_OTHER_REQUEST: Final = "IdempotentParameterMismatch"
_DEAD_TOKEN: Final = "IdempotentInstanceTerminated"


class _RefusedBefore(CloudUnavailable):
    """AWS knows a token, and shows no instance of it: it has refused an earlier request."""


class AwsLauncher:
    """Launches instances. Threads may share it."""

    def __init__(
        self, api: AwsApi, networks: Networks, firewalls: SecurityGroups, types: Ec2InstanceTypes
    ) -> None:
        self._api = api
        self._options = api.options
        self._networks = networks
        self._firewalls = firewalls
        self._types = types

    def launch(self, request: LaunchRequest) -> Instance:
        """See `Machines.launch`."""
        first = request.launch_number
        try:
            instance = self._in_turn(request, map(str, range(first, first + MOST_NUMBERS)))
        except _RefusedBefore as error:
            log.info("%s", error)
            instance = None
        # A token that nobody else has. The caller ends the second instance if two workers get here.
        instance = instance or self._in_turn(request, [request.launch_id])
        if instance is None:
            raise CloudUnavailable(f"launching {request.instance}: it has ended at once; try again")
        return instance

    def _in_turn(self, request: LaunchRequest, numbers: Iterable[str]) -> Instance | None:
        """Raises _RefusedBefore."""
        return launch_in_turn(
            request,
            numbers,
            self._networks.of(request.region).subnets,
            attempt=partial(self._attempt, request),
            named=lambda: our_instances(self._api, request.region, _same_name(request)),
            translate=translate,
        )

    def _attempt(self, request: LaunchRequest, number: str, subnet: Subnet) -> Instance | None:
        """See `launch_in_turn`. Raises _RefusedBefore."""
        group_id = self._firewalls.group_id(request.tags, request.region)
        parts = (request.tags.fleet_key, group_id, request.instance, number, subnet.subnet_id)
        # Tokens have 64 ASCII characters at most.
        token = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        try:
            return self._run(request, token, subnet, group_id)
        except CloudRefusal as refusal:
            if refusal.code in NO_CAPACITY:
                raise
            if refusal.code == _OTHER_REQUEST:
                return self._of_token(request, token)
            if refusal.code == _DEAD_TOKEN:
                return None
            self._firewalls.forget(request.tags.fleet_key, request.region)
            raise torn_down(f"launching {request.instance}: its security group") from refusal

    def _run(
        self, request: LaunchRequest, token: str, subnet: Subnet, group_id: str
    ) -> Instance | None:
        """The instance of the token. Raises CloudRefusal for what `_attempt` handles."""
        options = self._options
        arguments: dict[str, Any] = {
            "ClientToken": token,
            **common_arguments(options, self._types, request.region, request.instance_type),
            **identity_arguments(options.own_identity(request) or options.registry_identity),
            "UserData": options.script_of(request),
            "NetworkInterfaces": [
                {
                    "DeviceIndex": 0,
                    "SubnetId": subnet.subnet_id,
                    "Groups": [group_id],
                    "AssociatePublicIpAddress": options.public_address,
                    "DeleteOnTermination": True,
                }
            ],
        }
        kinds = ["instance", "volume", "network-interface"]
        if options.spot_relays and not request.is_end:
            kinds.append("spot-instances-request")
            arguments["InstanceMarketOptions"] = {
                "MarketType": "spot",
                "SpotOptions": {
                    "SpotInstanceType": "one-time",
                    "InstanceInterruptionBehavior": "terminate",
                },
            }
        named = for_fleet(
            request.tags,
            options.user_tags,
            instance=instance_tag(request.instance),
            launch=request.launch_id,
        )
        answer = self._api.call(
            f"launching {request.instance} ({request.instance_type}) in {subnet.zone}",
            request.region,
            "run_instances",
            missing=NO_GROUP,
            expected={*NO_CAPACITY, _OTHER_REQUEST, _DEAD_TOKEN},
            TagSpecifications=[{"ResourceType": kind, "Tags": named} for kind in kinds],
            **arguments,
        )
        instance = as_instance(self._api, answer["Instances"][0], request.region)
        # AWS may answer a repeated request without tags.
        return instance or self._of_token(request, token)

    def _of_token(self, request: LaunchRequest, token: str) -> Instance | None:
        """The instance of a token.

        Raises _RefusedBefore: AWS shows none within half a minute.
        """
        found = self._api.until_visible(lambda: self._described(request, token))
        if found is None:
            raise _RefusedBefore(
                f"launching {request.instance}: AWS knows this launch, and shows no instance of it;"
                " try again later"
            )
        return found

    def _described(self, request: LaunchRequest, token: str) -> Instance | None:
        for entry in described(self._api, request.region, _same_name(request)):
            if entry.get("ClientToken") == token:
                return as_instance(self._api, entry, request.region)
        return None


def common_arguments(
    options: AwsOptions, types: Ec2InstanceTypes, region: str, instance_type: str
) -> dict[str, Any]:
    """What all instances of a type have in common, as arguments of RunInstances."""
    image = types.image(region, instance_type)
    disk: dict[str, Any] = {
        "VolumeSize": options.disk_gib,
        "VolumeType": "gp3",
        "Encrypted": True,
        "DeleteOnTermination": True,
    }
    if options.kms_key_id:
        disk["KmsKeyId"] = options.kms_key_id
    return {
        "MinCount": 1,
        "MaxCount": 1,
        "ImageId": image.image_id,
        "InstanceType": instance_type,
        "BlockDeviceMappings": [{"DeviceName": image.root_device, "Ebs": disk}],
        "MetadataOptions": {
            "HttpEndpoint": "enabled",
            "HttpTokens": "required",
            # A container with a network of its own is one hop further and gets no credentials.
            "HttpPutResponseHopLimit": 1,
        },
        "InstanceInitiatedShutdownBehavior": "terminate",
    }


def identity_arguments(profile: str) -> dict[str, Any]:
    """Of RunInstances, for a name or ARN of an instance profile, which may be empty."""
    if not profile:
        return {}
    return {"IamInstanceProfile": {"Arn" if profile.startswith("arn:") else "Name": profile}}


def _same_name(request: LaunchRequest) -> list[FilterTypeDef]:
    return [
        *filter_of("fleet", request.tags.fleet_key),
        *filter_of(INSTANCE, instance_tag(request.instance)),
    ]
