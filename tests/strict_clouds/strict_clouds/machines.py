"""What the fakes need of the machines that stand for their instances."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from strict_clouds.firewall import IngressRule


class Machine(Protocol):
    """What runs where an instance stands, as `world.Machine`."""

    @property
    def address(self) -> str: ...

    @property
    def is_running(self) -> bool: ...

    def shut_down(self) -> None: ...

    def cut_power(self) -> None: ...

    def console(self) -> str: ...

    def allow(self, rules: Iterable[IngressRule]) -> None: ...


class MachineBooter(Protocol):
    """Boots machines from the very user data that was sent, as `world.World`."""

    def boot(self, user_data: str, *, metadata_url: str = "") -> Machine: ...
