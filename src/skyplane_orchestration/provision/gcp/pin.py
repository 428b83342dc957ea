"""Writes the id of an instance's public key to its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from skyplane_orchestration.errors import CloudUnavailable, NotAuthorised
from skyplane_orchestration.provision.fleet.machines import Instance
from skyplane_orchestration.provision.gcp import tags
from skyplane_orchestration.provision.gcp.describe import zone_and_id
from skyplane_orchestration.provision.gcp.errors import NOT_FOUND, STALE, Refusal

if TYPE_CHECKING:
    from skyplane_orchestration.provision.gcp.client import GcpApi

#: Each is spoilt by another change of the labels at the same moment.
_ATTEMPTS: Final = 5


def pin_key(api: GcpApi, instance: Instance, key_id: str) -> None:
    """See `Machines.pin_key`. The fingerprint of the labels keeps two workers apart.

    Raises NotAuthorised: another key is pinned already.
    """
    what = f"writing a label of {instance.instance}"
    for _ in range(_ATTEMPTS):
        entry = api.until_visible(lambda: _get(api, instance, what))
        if entry is None:
            raise CloudUnavailable(f"{what}: Google Cloud does not know the instance any more")
        labels = dict(entry.labels)
        pinned = labels.get(tags.KEY, "")
        if pinned == key_id:
            return
        if pinned:
            raise NotAuthorised(
                f"instance {instance.instance} shows the key {key_id}, and another one"
                f" ({pinned}) is pinned; end the instance"
            )
        if _is_written(api, instance, entry, {**labels, tags.KEY: key_id}, what):
            return
    raise CloudUnavailable(f"{what}: others change its labels all the time; try again")


def _get(api: GcpApi, instance: Instance, what: str) -> Any | None:
    try:
        return api.call(
            "instances.get",
            zone_and_id(instance),
            what=what,
            where=instance.region,
            expected=NOT_FOUND,
        )
    except Refusal:
        return None


def _is_written(
    api: GcpApi, instance: Instance, entry: Any, labels: dict[str, str], what: str
) -> bool:
    """False if the labels have changed since they were read."""
    try:
        operation = api.call(
            "instances.setLabels",
            {
                **zone_and_id(instance),
                "instances_set_labels_request_resource": {
                    "labels": labels,
                    "label_fingerprint": entry.label_fingerprint,
                },
            },
            what=what,
            where=instance.region,
            expected=STALE,
        )
        api.wait(operation, "instances.setLabels", what=what, where=instance.region, expected=STALE)
    except Refusal:
        return False
    return True
