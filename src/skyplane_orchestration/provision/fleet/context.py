"""What every fleet of an `InstanceProvisioner` is made with."""

from __future__ import annotations

import random
from dataclasses import dataclass

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_gateway.control.client import ControlClient
from skyplane_orchestration.model.fleet import CLOUD
from skyplane_orchestration.provision.control_sessions import SessionFactory
from skyplane_orchestration.provision.fleet.admission import Learn
from skyplane_orchestration.provision.fleet.boot import Boot
from skyplane_orchestration.provision.fleet.egress_address import egress_address
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.fleet.options import InstanceOptions


@dataclass(frozen=True, slots=True)
class FleetContext:
    """See the classes.

    Args:
        connect: opens a control session.
        visible_within_s: a cloud may show a new instance this late.
        name: the provisioner that is recorded in fleets.
        learn: finds the address by which gateways see this process.
    """

    clouds: Clouds
    boot: Boot
    options: InstanceOptions
    clock: Clock = SYSTEM_CLOCK
    connect: SessionFactory = ControlClient
    visible_within_s: float = 60.0
    name: str = CLOUD
    learn: Learn = egress_address

    def pause(self) -> None:
        """Sleep until the next look at a cloud. Fleets that start together drift apart."""
        self.clock.sleep(self.options.poll_s * random.uniform(0.8, 1.2))
