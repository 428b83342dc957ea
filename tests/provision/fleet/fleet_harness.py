"""`InstanceProvisioner` for the conformance suite, on the strict fake of one cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tests.provision.fleet.cloud_harness import DESCRIBE, VERBS, CloudHarness, MortalCloud
from tests.provision.fleet.cloud_harnesses import OpensCloud
from tests.provision.fleet.harness import FleetsHarness
from tests.provision.fleet.stand_in_machines import StandInMachines

from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.provision.fleet.options import InstanceOptions
from skyplane_orchestration.provision.provisioner import Provisioner


class CloudFleetHarness(FleetsHarness):
    """Time is that of a manual clock."""

    throttled_verbs = VERBS

    def __init__(self, cloud: CloudHarness, machines: StandInMachines) -> None:
        self.cloud = cloud
        self.place = self.machines = machines
        self.clock = cloud.clock.clock
        self.source = cloud.region
        self.relay = cloud.other_region
        self.sink = cloud.third_region
        self.instance_type = cloud.instance_type
        self.lacks = getattr(cloud, "lacks", {})
        self.quota_name = cloud.quota_name
        # Google has no console output of an instance that has stopped.
        if cloud.region.startswith("gcp:"):
            self.why_failed = "it has stopped"
        self.options = InstanceOptions(("203.0.113.7/32",), processes_per_instance=1)

    def opened(self, die: Callable[[str], None], clouds: Sequence[str]) -> list[Any]:
        return [MortalCloud(self.cloud.worker(), die)]

    def kill(self, gateway: GatewayHandle) -> None:
        for one in self.cloud.worker().describe("f1ee7", [gateway.region]):
            if one.cloud_id == gateway.details["instance_id"]:
                self.cloud.end_by_hand(one)

    def running(self) -> list[str]:
        return [one.instance for one in self.machines.running()]

    def traces(self) -> list[str]:
        left = [
            f"{kind} {name}" for kind, names in self.cloud.leftovers().items() for name in names
        ]
        return [*self.running(), *left]

    # Situations.

    def unusable(self) -> Provisioner:
        self.cloud.deny(DESCRIBE)
        return self.provisioner()

    def show_late(self) -> None:
        self.cloud.hide_new(3)

    def show_at_once(self) -> None:
        self.cloud.hide_new(0)

    def ending_slowly(self) -> Provisioner:
        self.cloud.end_slowly(3)
        return self.provisioner()

    def limited(self) -> Provisioner:
        self.cloud.set_quota(self.cloud.vcpus)
        return self.provisioner()

    def exhaust(self) -> None:
        self.cloud.fill(self.source, all_zones=True)

    def replenish(self) -> None:
        self.cloud.empty()

    def throttle(self, verb: str) -> None:
        self.cloud.throttle(verb, 3)


@contextmanager
def cloud_fleets(open_cloud: OpensCloud) -> Iterator[CloudFleetHarness]:
    """A harness on the strict fake that `open_cloud` opens."""
    machines = StandInMachines()
    with open_cloud(machines) as cloud:
        cloud.set_quota(1000)
        yield CloudFleetHarness(cloud, machines)
