"""Machines of the strict fakes that start no process: each is a stand-in for its gateways."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.provision.fleet.memory_cloud import Gateway

from skyplane_gateway.config import GatewayConfig
from skyplane_orchestration.errors import GatewayUnreachable
from skyplane_orchestration.provision.fleet.machines import Instance
from strict_clouds.firewall import IngressRule

if TYPE_CHECKING:
    pass


@dataclass
class StandInMachine:
    """A machine as the strict fakes know it: see `Machine` of `strict_clouds/machines.py`.

    Args:
        address: of its own, in 198.51.100.0/24.
        instance: its name in the fleet.
        gateways: port of the control API -> what the gateway was told.
    """

    address: str
    instance: str
    is_running: bool = True
    gateways: dict[int, Gateway] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)

    def shut_down(self) -> None:
        self.is_running = False

    def cut_power(self) -> None:
        self.is_running = False

    def console(self) -> str:
        return "\n".join(self.lines)

    def allow(self, rules: Iterable[IngressRule]) -> None:
        """Sessions of stand-ins pass no firewall."""


class StandInMachines:
    """See `MachineBooter` of `strict_clouds/machines.py`.

    Attributes:
        failing: names of instances that power themselves off in place of an enrolment.
    """

    def __init__(self) -> None:
        self.failing: set[str] = set()
        self._lock = threading.Lock()
        self._machines: list[StandInMachine] = []

    def boot(self, user_data: str, *, metadata_url: str = "") -> StandInMachine:
        instance = json.loads(user_data)["instance"]
        with self._lock:
            address = f"198.51.100.{len(self._machines) + 1}"
            machine = StandInMachine(address, instance)
            self._machines.append(machine)
        return machine

    def running(self) -> list[StandInMachine]:
        return [one for one in self._machines if one.is_running]

    @property
    def gateways(self) -> dict[tuple[str, int], Gateway]:
        """The address of a control API -> its gateway, for machines that run."""
        return {
            (one.address, port): gateway
            for one in self.running()
            for port, gateway in one.gateways.items()
        }

    def enrol(
        self,
        instance: Instance,
        gateways: Mapping[str, GatewayConfig],
        pin: Callable[[str], None],
    ) -> str:
        """See `EnrolsStandIns`; two workers at the same time pin the same key."""
        number = int(instance.address.rpartition(".")[2])
        key_id = instance.key_id or f"{number:040x}"
        if not instance.key_id:
            pin(key_id)
        for one in self.running():
            if one.address != instance.address or one.gateways:
                continue
            if one.instance in self.failing:
                one.lines.append(f"{one.instance}: cannot bind")
                one.cut_power()
                break
            one.gateways.update(
                {config.control_port: Gateway(node) for node, config in gateways.items()}
            )
            return key_id
        raise GatewayUnreachable(f"{instance.instance} does not listen")
