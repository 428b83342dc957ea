"""Writes the id of an instance's public key to its tags."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from skyplane_orchestration.provision.azure import tags
from skyplane_orchestration.provision.azure.names import group_name, machine_of
from skyplane_orchestration.provision.fleet.machines import Instance

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi


def pin_key(api: AzureApi, subscription_id: str, instance: Instance, key_id: str) -> None:
    """See `Machines.pin_key`. The other tags stay as they are."""
    resources = api.resources
    body = cast("Any", {"operation": "Merge", "properties": {"tags": {tags.KEY: key_id}}})
    scope = (
        f"subscriptions/{subscription_id}/resourceGroups/{group_name(instance.tags.fleet_key)}"
        f"/providers/Microsoft.Compute/virtualMachines/{machine_of(instance)}"
    )
    api.finished(
        f"writing a tag of {instance.instance}",
        instance.region,
        lambda polling: resources.tags.begin_update_at_scope(scope, body, polling=polling),
    )
