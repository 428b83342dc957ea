"""What the instances of a transfer's fleets have cost since their launch.

Each instance is billed by its cloud from its launch to its end, and for its cloud's minimum at
least, whatever the transfer does meanwhile.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from skyplane_orchestration.model.fleet import Fleet, FleetInstance
from skyplane_orchestration.units import usd_per_hour_to_usd_per_s


@dataclass(frozen=True, slots=True)
class _Priced:
    instance: FleetInstance
    usd_per_hour: float
    minimum_s: float

    def usd(self, unix_s: float) -> float:
        """Its bill if it were ended at that wall time, or has ended before."""
        end_s = self.instance.ended_unix_s
        until_s = unix_s if end_s is None else min(end_s, unix_s)
        seconds = until_s - self.instance.launched_unix_s
        if seconds <= 0:
            return 0.0
        billed_s = max(seconds, self.minimum_s)
        return billed_s * usd_per_hour_to_usd_per_s(self.usd_per_hour)


class InstanceMeter:
    """The bills of all instances that were in one of the fleets that it was shown."""

    def __init__(self) -> None:
        self._known: dict[str, _Priced] = {}

    def show(self, fleet: Fleet, unix_s: float) -> None:
        """Take a fleet that is up; members of an earlier one that it lacks have ended."""
        from skyplane_orchestration.planner.pricing.instance_billing import BILLING, cloud_of

        members = {one.cloud_id: one for one in fleet.instances}
        for cloud_id, known in self._known.items():
            if cloud_id not in members and known.instance.ended_unix_s is None:
                ended = replace(known.instance, ended_unix_s=unix_s)
                self._known[cloud_id] = replace(known, instance=ended)
        for cloud_id, instance in members.items():
            price = instance.usd_per_hour
            if price is None:
                price = fleet.plan.instances[instance.region].usd_per_hour
            minimum_s = BILLING[cloud_of(instance.region)].minimum_s
            self._known[cloud_id] = _Priced(instance, price, minimum_s)

    def usd(self, unix_s: float) -> float:
        """From the launches to that wall time."""
        return sum(one.usd(unix_s) for one in self._known.values())


def instances_usd(fleet: Fleet, unix_s: float) -> float:
    """What the instances of one fleet have cost from their launch to that wall time."""
    meter = InstanceMeter()
    meter.show(fleet, unix_s)
    return meter.usd(unix_s)
