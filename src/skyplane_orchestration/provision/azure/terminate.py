"""Ends instances by deleting their virtual machines; nobody waits for the end of one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from skyplane_orchestration.provision.azure.errors import NOT_FOUND, Refusal
from skyplane_orchestration.provision.azure.names import group_name, machine_of
from skyplane_orchestration.provision.fleet.machines import Instance
from skyplane_orchestration.provision.parallel import in_parallel

if TYPE_CHECKING:
    from skyplane_orchestration.provision.azure.client import AzureApi


def terminate(api: AzureApi, instances: Sequence[Instance]) -> None:
    """Begin to delete machines; those that are gone are no error.

    Forced: there is nothing on the disks to be saved. Azure deletes disk, interface and address
    with each machine.
    """
    in_parallel([partial(_delete, api, instance) for instance in instances])


def _delete(api: AzureApi, instance: Instance) -> None:
    compute = api.compute
    try:
        api.begin(
            f"ending {instance.instance}",
            instance.region,
            lambda: compute.virtual_machines.begin_delete(
                group_name(instance.tags.fleet_key),
                machine_of(instance),
                force_deletion=True,
                polling=False,
            ),
            expected=NOT_FOUND,
        )
    except Refusal:
        return
