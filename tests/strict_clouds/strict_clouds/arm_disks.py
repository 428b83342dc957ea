"""Disks of the strict Resource Manager."""

from __future__ import annotations

from typing import Final

from strict_clouds.arm_state import DISKS, Rule, State
from strict_clouds.arm_wire import ArmError, Reply, Request

_PROVIDER: Final = "Microsoft.Compute"


class DiskRules:
    """Lists disks, and deletes those of no machine."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.rules: dict[str, Rule] = {
            "disks.list": self._list_disks,
            "disks.delete": self._delete_disk,
        }

    def _list_disks(self, request: Request) -> Reply:
        group = request.path.get("group", "")
        if group:
            self._state.group(group)
        return self._state.page(self._state.of_kind(DISKS, group), request)

    def _delete_disk(self, request: Request) -> Reply:
        self._state.group(request.path["group"])
        disk = self._state.find(
            self._state.id_of(request.path["group"], DISKS, request.path["name"])
        )
        if disk is None:
            return Reply(204)
        if "managedBy" in disk:
            raise ArmError(409, "OperationNotAllowed")

        def finish() -> ArmError | None:
            self._state.remove(disk["id"])
            return None

        return self._state.begin(disk["location"], _PROVIDER, finish)
