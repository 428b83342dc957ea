"""Ends instances, also those that AWS does not show yet."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from skyplane_orchestration.provision.aws.errors import Refusal
from skyplane_orchestration.provision.fleet.machines import Instance

if TYPE_CHECKING:
    from skyplane_orchestration.provision.aws.client import AwsApi

_UNKNOWN: Final = "InvalidInstanceID.NotFound"
#: Most instances of one call.
_PAGE: Final = 1000
#: AWS shows an instance within a fraction of this time; clocks may differ by as much.
_FRESH_S: Final = 600.0


def terminate(api: AwsApi, region: str, instances: Sequence[Instance]) -> None:
    """Begin to end the instances of a region; those that are gone are no error."""
    for first in range(0, len(instances), _PAGE):
        page = instances[first : first + _PAGE]
        try:
            _end(api, region, page, missing=())
        except Refusal:
            # AWS ends none of them for one that it does not know.
            for instance in page:
                _end_one(api, region, instance)


def _end_one(api: AwsApi, region: str, instance: Instance) -> None:
    is_fresh = abs(api.clock.wall() - instance.launched_unix_s) < _FRESH_S
    try:
        _end(api, region, [instance], missing=(_UNKNOWN,) if is_fresh else ())
    except Refusal:
        return


def _end(api: AwsApi, region: str, instances: Sequence[Instance], missing: Sequence[str]) -> None:
    """Raises Refusal: AWS does not know one of them, also after a wait if it may be new."""
    ec2 = api.ec2(region)
    ids = [instance.cloud_id for instance in instances]
    api.call_when_visible(
        f"ending {len(ids)} instances in {region}",
        region,
        lambda: ec2.terminate_instances(InstanceIds=ids),
        missing=missing,
        expected=() if missing else (_UNKNOWN,),
    )
