"""Writes the id of an instance's public key to its tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skyplane_orchestration.errors import CloudUnavailable
from skyplane_orchestration.provision.aws import tags
from skyplane_orchestration.provision.aws.errors import Refusal
from skyplane_orchestration.provision.fleet.machines import Instance

if TYPE_CHECKING:
    from skyplane_orchestration.provision.aws.client import AwsApi

_UNKNOWN: Final = ("InvalidInstanceID.NotFound", "InvalidID")


def pin_key(api: AwsApi, instance: Instance, key_id: str) -> None:
    """See `Machines.pin_key`. Raises CloudUnavailable: AWS does not know the instance."""
    ec2, what = api.ec2(instance.region), f"writing a tag of {instance.instance}"
    try:
        api.call_when_visible(
            what,
            instance.region,
            lambda: ec2.create_tags(
                Resources=[instance.cloud_id], Tags=[{"Key": tags.KEY, "Value": key_id}]
            ),
            missing=_UNKNOWN,
        )
    except Refusal as refusal:
        raise CloudUnavailable(
            f"{what}: AWS does not know {instance.cloud_id} any more; try again"
        ) from refusal
