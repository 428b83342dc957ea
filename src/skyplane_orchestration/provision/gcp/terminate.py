"""Ends instances, also those that Google does not show yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from skyplane_orchestration.provision.fleet.machines import Instance
from skyplane_orchestration.provision.gcp.describe import zone_and_id
from skyplane_orchestration.provision.gcp.errors import NOT_FOUND, NOT_READY, Refusal

if TYPE_CHECKING:
    from skyplane_orchestration.provision.gcp.client import GcpApi

#: Google shows an instance within a fraction of this time; clocks may differ by as much.
_FRESH_S: Final = 600.0


def terminate(api: GcpApi, instance: Instance) -> None:
    """Begin to delete an instance, stopped ones included; one that is gone is no error."""
    if _is_begun(api, instance):
        return
    if abs(api.clock.wall() - instance.launched_unix_s) < _FRESH_S:
        api.until_visible(lambda: True if _is_begun(api, instance) else None)


def _is_begun(api: GcpApi, instance: Instance) -> bool:
    """Whether the end has begun; False if Google does not know the instance."""
    try:
        api.call(
            "instances.delete",
            zone_and_id(instance),
            what=f"ending {instance.instance}",
            where=instance.region,
            # Another worker ends it at this moment.
            expected=NOT_FOUND | NOT_READY,
        )
    except Refusal as refusal:
        return refusal.code not in NOT_FOUND
    return True
