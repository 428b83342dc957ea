"""What a fake cloud would bill: which machines it has had, and from when to when."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class UsedMachine:
    """A machine, from the moment from which it is billed.

    Args:
        cloud_id: unique in its cloud.
        region: region tag.
        kind: the cloud's name of its type.
        disk_gib: size of its disk.
        has_address: it has a public address.
        address: where the world has booted it.
        network_tier: the cloud's name of the tier of its public address, where it has some.
        began_unix_s, ended_unix_s: wall time of the fake; None while it is billed.
    """

    cloud_id: str
    region: str
    kind: str
    disk_gib: int
    has_address: bool
    address: str
    began_unix_s: float
    ended_unix_s: float | None = None
    network_tier: str = ""


class Usage:
    """The machines of one fake cloud."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._machines: dict[str, UsedMachine] = {}

    def begin(
        self,
        cloud_id: str,
        region: str,
        kind: str,
        *,
        disk_gib: int,
        has_address: bool,
        address: str,
        network_tier: str = "",
    ) -> None:
        with self._lock:
            self._machines[cloud_id] = UsedMachine(
                cloud_id,
                region,
                kind,
                disk_gib,
                has_address,
                address,
                time.time(),
                network_tier=network_tier,
            )

    def end(self, cloud_id: str) -> None:
        """It is not billed any more; may be called again."""
        with self._lock:
            machine = self._machines.get(cloud_id)
            if machine is not None and machine.ended_unix_s is None:
                self._machines[cloud_id] = replace(machine, ended_unix_s=time.time())

    def machines(self) -> tuple[UsedMachine, ...]:
        with self._lock:
            return tuple(self._machines.values())
