"""`InstanceProvisioner` for the conformance suite, and on three clouds in memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from tests.provision.fleet.memory_cloud import (
    HoldsStandIns,
    MemoryAccount,
    MemoryCloud,
    MemorySession,
    StandInBoot,
)
from tests.provision.samples import SECRET, A, B, C, make_plan
from tests.provision.situations import THROTTLED_API

from skyplane_gateway.common.clock import SYSTEM_CLOCK, Clock
from skyplane_orchestration.errors import QuotaExceeded, SkyplaneError
from skyplane_orchestration.model.fleet import GatewayHandle
from skyplane_orchestration.model.plan import InstanceGroup
from skyplane_orchestration.provision.fleet.context import FleetContext
from skyplane_orchestration.provision.fleet.multi_cloud import Clouds
from skyplane_orchestration.provision.fleet.options import LEAST_POLL_S, InstanceOptions
from skyplane_orchestration.provision.fleet.provisioner import InstanceProvisioner
from skyplane_orchestration.provision.provisioner import FleetSpec, Provisioner
from skyplane_orchestration.security.authority import Authority

#: Nobody has to wait for a cloud in memory.
HASTY: Final = replace(SYSTEM_CLOCK, sleep=lambda seconds: time.sleep(seconds / 100))
ALL_CLOUDS: Final = ("aws", "gcp", "azure")


class Killed(BaseException):
    """A worker was killed with SIGKILL: it makes no further call."""


def killed_before(verb: str) -> Callable[[str], None]:
    """For a worker that is killed before its first call of a verb."""
    dead: list[str] = []

    def die(called: str) -> None:
        if dead or called == verb:
            dead.append(called)
            raise Killed

    return die


class FleetsHarness:
    """See `Harness` of `tests/provision/conftest.py`: fleets whose instances are stand-ins.

    Each call of `provisioner` is a worker of its own, which knows nothing of the others.
    """

    locks_fleets = False
    records_fleets = False
    quota_error: type[SkyplaneError] = QuotaExceeded
    throttled_verbs: tuple[str, ...] = ()
    lacks: Mapping[str, str] = {}
    session = MemorySession
    why_failed = "cannot bind"
    quota_name: str
    source: str
    relay: str
    sink: str
    instance_type: str
    #: Where stand-ins run, and the time of workers.
    place: HoldsStandIns
    clock: Clock
    options: InstanceOptions

    def opened(self, die: Callable[[str], None], clouds: Sequence[str]) -> list[Any]:
        """The clouds of a worker, which calls `die` before each of its calls."""
        raise NotImplementedError

    def provisioner(
        self,
        *,
        clock: Clock | None = None,
        die: Callable[[str], None] = lambda verb: None,
        clouds: Sequence[str] = ALL_CLOUDS,
        **options: Any,
    ) -> InstanceProvisioner:
        self.place.failing.clear()

        def connect(host: str, port: int, context: Any, expected_uri: str) -> MemorySession:
            return MemorySession(self.place, (host, port), expected_uri)

        context = FleetContext(
            Clouds(self.opened(die, clouds), clock or self.clock),
            StandInBoot(self.place),
            replace(self.options, **options),
            clock or self.clock,
            connect,
        )
        return InstanceProvisioner(context)

    def failing(self) -> InstanceProvisioner:
        """One for which the relay's instance does not come up."""
        made = self.provisioner()
        self.place.failing.add(f"{self.relay}/0")
        return made

    def late(self, seconds: float) -> InstanceProvisioner:
        """One that looks at the world so many seconds from now."""
        return self.provisioner(clock=replace(self.clock, wall=lambda: self.clock.wall() + seconds))

    def spec(self, key: str = "f1ee7", **changes: Any) -> FleetSpec:
        a, b, c = self.source, self.relay, self.sink
        plan = make_plan([((a, c), 4.0), ((a, b, c), 2.0)], {a: 2, b: 1, c: 2})
        groups = {
            region: InstanceGroup(self.instance_type, group.count)
            for region, group in plan.instances.items()
        }
        spec = FleetSpec(key, 0, "test", replace(plan, instances=groups))
        return replace(spec, **changes)

    def authority(self, spec: FleetSpec) -> Authority:
        return Authority(SECRET, spec.key)

    def crash_after_launch(self, spec: FleetSpec) -> None:
        """A worker that is killed when gateways run and nothing else is done."""
        try:
            self.provisioner(die=killed_before("set_ingress")).ensure(spec, self.authority(spec))
        except Killed:
            return
        raise AssertionError("it was not killed")

    def while_launched(self, act: Callable[[], object]) -> Provisioner:
        """One whose `ensure` meets `act` when its gateways run and are not connected yet."""
        done: list[str] = []

        def die(verb: str) -> None:
            if verb == "set_ingress" and not done:
                done.append(verb)
                act()

        return self.provisioner(die=die)


class InstancesHarness(FleetsHarness):
    """Three clouds in memory."""

    source, relay, sink = A, B, C
    instance_type = "process"
    clock = HASTY
    quota_name = "vCPUs in memory"
    lacks: Mapping[str, str] = {
        THROTTLED_API: "a cloud in memory says so only after all retries of its client",
    }

    def __init__(self) -> None:
        self.place = self.account = MemoryAccount()
        self.options = InstanceOptions(
            control_cidrs=("203.0.113.7/32",),
            ready_timeout_s=20.0,
            end_timeout_s=20.0,
            poll_s=LEAST_POLL_S,
        )

    def opened(self, die: Callable[[str], None], clouds: Sequence[str]) -> list[Any]:
        return [MemoryCloud(name, self.account, die) for name in clouds]

    def kill(self, gateway: GatewayHandle) -> None:
        self.account.end(gateway.details["instance_id"], "Server.SpotInstanceTermination")

    def running(self) -> list[str]:
        return [one.instance for one in self.account.alive()]

    def traces(self) -> list[str]:
        firewalls = [f"the firewall of {region}" for region, _ in self.account.firewalls]
        return [*self.running(), *firewalls]

    # Situations.

    def unusable(self) -> Provisioner:
        self.account.is_closed = True
        return self.provisioner()

    def show_late(self) -> None:
        self.account.hidden_looks = 3

    def show_at_once(self) -> None:
        self.account.hidden_looks = 0

    def ending_slowly(self) -> Provisioner:
        self.account.slow_ends = 3
        return self.provisioner()

    def limited(self) -> Provisioner:
        self.account.vcpu_quota = 1
        return self.provisioner()

    def exhaust(self) -> None:
        self.account.full.add(self.source)

    def replenish(self) -> None:
        self.account.full.clear()

    def throttle(self, verb: str) -> None:
        raise AssertionError(f"{THROTTLED_API} is in `lacks`")
