"""A cloud in memory whose instances are machines: fake ones, or emulated ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from tests.provision.fleet.memory_cloud import MemoryAccount, MemoryCloud

if TYPE_CHECKING:
    from skyplane_orchestration.provision.fleet.machines import Instance, LaunchRequest


class BootedMachine(Protocol):
    """What an account needs of a machine."""

    @property
    def address(self) -> str: ...

    @property
    def is_running(self) -> bool: ...

    def shut_down(self) -> None:
        """Press its power button."""

    def console(self) -> str:
        """All that it has written so far."""


def _boots_nothing(request: LaunchRequest) -> BootedMachine:
    raise NotImplementedError


@dataclass
class MachineAccount(MemoryAccount):
    """Its instances are what `boot` makes of a launch."""

    boot: Callable[[LaunchRequest], BootedMachine] = _boots_nothing
    machines: dict[str, BootedMachine] = field(default_factory=dict)

    def launch(self, request: LaunchRequest) -> Instance:
        with self.lock:
            instance = super().launch(request)
            if instance.cloud_id not in self.machines:
                self.machines[instance.cloud_id] = self.boot(request)
            return instance

    def look(self, cloud_id: str) -> Instance:
        with self.lock:
            machine = self.machines[cloud_id]
            if machine.is_running:
                self._set(cloud_id, state="running", address=machine.address)
            else:
                self._set(cloud_id, state="ended", address="")
            return self.instances[cloud_id]

    def end(self, cloud_id: str, why: str = "") -> None:
        self.machines[cloud_id].shut_down()


class MachineCloud(MemoryCloud):
    """Its instances write consoles."""

    def console_tail(self, instance: Instance, max_bytes: int) -> str:
        assert isinstance(self.account, MachineAccount)
        return self.account.machines[instance.cloud_id].console()[-max_bytes:]
