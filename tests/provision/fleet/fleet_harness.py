"""`InstanceProvisioner` for the conformance suite, on the strict fake of one cloud."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tests.provision.fleet.cloud_harness import DESCRIBE, VERBS, CloudHarness, MortalCloud
from tests.provision.fleet.cloud_harnesses import OpensCloud
from tests.provision.fleet.harness import Killed, killed_before
from tests.provision.fleet.memory_cloud import MemorySession, StandInBoot
from tests.provision.fleet.stand_in_machines import StandInMachines
from tests.provision.samples import SECRET, make_plan

from skyplane_gateway.common.clock import Clock
from skyplane_orchestration.errors import QuotaExceeded, SkyplaneError
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.model.plan import InstanceGroup
from skyplane_orchestration.provision.fleet.options import InstanceOptions
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.provision.provisioner import FleetSpec, Provisioner
from skyplane_orchestration.security.authority import Authority


class CloudFleetHarness:
    """See `Harness` of `tests/provision/conftest.py`. Time is that of a manual clock."""

    locks_fleets = False
    records_fleets = False
    quota_error: type[SkyplaneError] = QuotaExceeded
    throttled_verbs = VERBS
    lacks: Mapping[str, str] = {}
    session = MemorySession

    def __init__(self, cloud: CloudHarness, machines: StandInMachines) -> None:
        self.cloud = cloud
        self.machines = machines
        self.source = cloud.region
        self.relay = cloud.other_region
        self.sink = cloud.third_region
        self.quota_name = cloud.quota_name
        # Google has no console output of an instance that has stopped.
        is_google = cloud.region.startswith("gcp:")
        self.why_failed = "it has stopped" if is_google else "cannot bind"
        self.options = InstanceOptions(("203.0.113.7/32",), processes_per_instance=1)

    def provisioner(
        self, *, clock: Clock | None = None, die: Callable[[str], None] = lambda verb: None
    ) -> InstanceProvisioner:
        self.machines.failing.clear()

        def connect(host: str, port: int, context: Any, expected_uri: str) -> MemorySession:
            return MemorySession(self.machines, (host, port), expected_uri)

        return InstanceProvisioner(
            [MortalCloud(self.cloud.worker(), die)],
            StandInBoot(self.machines),
            self.options,
            connect=connect,
            clock=clock or self.cloud.clock.clock,
        )

    def failing(self) -> Provisioner:
        made = self.provisioner()
        self.machines.failing.add(f"{self.relay}/0")
        return made

    def unusable(self) -> Provisioner:
        self.cloud.deny(DESCRIBE)
        return self.provisioner()

    def late(self, seconds: float) -> Provisioner:
        manual = self.cloud.clock
        return self.provisioner(
            clock=replace(manual.clock, wall=lambda: manual.now_s + seconds),
        )

    def spec(self, key: str = "f1ee7", **changes: Any) -> FleetSpec:
        a, b, c = self.source, self.relay, self.sink
        plan = make_plan([((a, c), 4.0), ((a, b, c), 2.0)], {a: 2, b: 1, c: 2})
        groups = {
            region: InstanceGroup(self.cloud.instance_type, group.count)
            for region, group in plan.instances.items()
        }
        spec = FleetSpec(key, 0, "test", replace(plan, instances=groups))
        return replace(spec, **changes)

    def authority(self, spec: FleetSpec) -> Authority:
        return Authority(SECRET, spec.key)

    def kill(self, gateway: GatewayHandle) -> None:
        for one in self.cloud.worker().describe("f1ee7", [gateway.region]):
            if one.cloud_id == gateway.details["instance_id"]:
                self.cloud.end_by_hand(one)

    def crash_after_launch(self, spec: FleetSpec) -> None:
        try:
            self.provisioner(die=killed_before("set_ingress")).ensure(spec, self.authority(spec))
        except Killed:
            return
        raise AssertionError("it was not killed")

    def running(self) -> list[str]:
        return [one.instance for one in self.machines.running()]

    def traces(self) -> list[str]:
        left = [
            f"{kind} {name}" for kind, names in self.cloud.leftovers().items() for name in names
        ]
        return [*self.running(), *left]

    # Situations.

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

    def while_launched(self, act: Callable[[], object]) -> Provisioner:
        """One whose `ensure` meets `act` when its gateways run and are not connected yet."""
        done: list[str] = []

        def die(verb: str) -> None:
            if verb == "set_ingress" and not done:
                done.append(verb)
                act()

        return self.provisioner(die=die)


@contextmanager
def cloud_fleets(open_cloud: OpensCloud) -> Iterator[CloudFleetHarness]:
    """A harness on the strict fake that `open_cloud` opens."""
    machines = StandInMachines()
    with open_cloud(machines) as cloud:
        cloud.set_quota(1000)
        yield CloudFleetHarness(cloud, machines)
