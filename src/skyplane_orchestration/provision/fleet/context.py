"""What every fleet of an `InstanceProvisioner` is made with."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.model.fleet import CLOUD
from skyplane_orchestration.provision.fleet.boot import Boot
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.fleet.options import InstanceOptions

_JITTER: Final = (0.8, 1.2)


@dataclass(frozen=True, slots=True)
class FleetContext:
    """See the classes.

    Args:
        visible_within_s: a cloud may show a new instance this late.
        name: the provisioner that is recorded in fleets.
    """

    clouds: Clouds
    boot: Boot
    options: InstanceOptions
    clock: Clock
    visible_within_s: float
    name: str = CLOUD

    def pause(self) -> None:
        """Sleep until the next look at a cloud. Fleets that start together drift apart."""
        self.clock.sleep(self.options.poll_s * random.uniform(*_JITTER))
