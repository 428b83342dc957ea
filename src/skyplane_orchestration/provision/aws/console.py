"""The console output of instances, and their page in the web console."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.provision.aws.errors import Refusal
from skyplane_orchestration.provision.aws.tags import FLEET

if TYPE_CHECKING:
    from skyplane_orchestration.provision.aws.client import AwsApi
    from skyplane_orchestration.provision.fleet.machines import Instance

_NO_LATEST: Final = "UnsupportedOperation"
_GONE: Final = "InvalidInstanceID.NotFound"


def console_url(fleet_key: str, region: str) -> str:
    """The list of the region's instances, filtered by the fleet's tag."""
    name = region.partition(":")[2]
    return (
        f"https://{name}.console.aws.amazon.com/ec2/home?region={name}"
        f"#Instances:tag:{FLEET}={fleet_key}"
    )


def console_tail(api: AwsApi, instance: Instance, max_bytes: int) -> str:
    """The end of the console output; empty if AWS has none, or not any more.

    Types on the Nitro system tell what is there now. Others tell only what AWS has copied some
    minutes after the boot.
    """
    ec2 = api.ec2(instance.region)
    for is_latest in (True, False):
        try:
            answer = api.call(
                f"reading the console of {instance.instance}",
                instance.region,
                partial(ec2.get_console_output, InstanceId=instance.cloud_id, Latest=is_latest),
                expected={_NO_LATEST, _GONE},
            )
        except Refusal as refusal:
            if refusal.code == _GONE:
                return ""
            continue
        output = answer.get("Output", "").encode()
        return output[-max_bytes:].decode(errors="replace") if max_bytes > 0 else ""
    return ""
